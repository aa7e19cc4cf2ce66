"""Serving an application from the bound socket to the end."""

import asyncio
import gc
import os
import signal
import socket

import aiohttp
import pytest
from aiohttp import web

from app.serving import Serving, bind, settle, url_of


@pytest.fixture
def sock():
    sock = bind("127.0.0.1", 0)
    yield sock
    sock.close()


def an_application(events):
    async def life(app):
        events.append("started")
        yield
        events.append("cleaned up")

    async def hello(request):
        return web.Response(text="hello")

    app = web.Application()
    app.cleanup_ctx.append(life)
    app.router.add_get("/", hello)
    return app


async def hurry(app):
    raise AssertionError("nobody was in a hurry")


async def until_it_answers(url):
    async with aiohttp.ClientSession() as http:
        while True:
            try:
                async with http.get(url) as answer:
                    return await answer.text()
            except aiohttp.ClientConnectorError:
                await asyncio.sleep(0)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_drains_and_cleans_up(sock, number):
    events = []
    serving = Serving(sock)
    async with asyncio.TaskGroup() as tasks:

        async def drain(app):
            events.append("drained")

        running = tasks.create_task(serving.run(an_application(events), drain, hurry))
        assert await until_it_answers(url_of(sock)) == "hello"
        os.kill(os.getpid(), number)
        await running

    assert events == ["started", "drained", "cleaned up"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_second_signal_hurries_the_drain_and_still_cleans_up(sock, number):
    events = []
    draining, hurried = asyncio.Event(), asyncio.Event()
    serving = Serving(sock)

    async def drain(app):
        draining.set()
        await hurried.wait()
        events.append("drained")

    async def hurry(app):
        events.append("hurried")
        hurried.set()

    async with asyncio.timeout(20), asyncio.TaskGroup() as tasks:
        running = tasks.create_task(serving.run(an_application(events), drain, hurry))
        await until_it_answers(url_of(sock))
        os.kill(os.getpid(), number)
        await draining.wait()
        os.kill(os.getpid(), number)
        await running

    assert [e for e in events if e != "hurried"] == ["started", "drained", "cleaned up"]
    assert "hurried" in events


async def test_stop_ends_it_from_within(sock):
    events = []
    serving = Serving(sock)

    async def drain(app):
        events.append("drained")

    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(serving.run(an_application(events), drain, hurry))
        await until_it_answers(url_of(sock))
        serving.stop()
        await running

    assert events == ["started", "drained", "cleaned up"]


async def test_what_the_start_raises_comes_out(sock):
    events = []
    app = an_application(events)

    async def broken(app):
        raise ValueError("no start")
        yield

    async def drain(app):
        events.append("drained")

    app.cleanup_ctx.append(broken)

    with pytest.raises(ValueError, match="no start"):
        await Serving(sock).run(app, drain, hurry)

    assert events == ["started", "cleaned up"]


def test_a_taken_port_is_an_error_at_once(sock):
    with pytest.raises(OSError, match="in use"):
        bind("127.0.0.1", sock.getsockname()[1])


def test_an_address_of_version_six_is_written_in_brackets():
    with socket.socket(socket.AF_INET6) as sock:
        sock.bind(("::1", 0))
        port = sock.getsockname()[1]

        assert url_of(sock) == f"http://[::1]:{port}"


def test_what_was_loaded_is_not_walked_by_the_collector_again():
    class Loaded:
        pass

    loaded = Loaded()
    assert any(found is loaded for found in gc.get_objects())

    settle()
    try:
        assert not any(found is loaded for found in gc.get_objects())
    finally:
        gc.unfreeze()
