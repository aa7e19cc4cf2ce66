"""Log records as lines."""

import asyncio
import json
import logging
import sys
from contextlib import contextmanager, suppress

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from app.logs import bound, configure_logging, formatter


def record(message, *args, **extra):
    made = logging.LogRecord("splice.test", logging.WARNING, __file__, 1, message, args, None)
    made.__dict__.update(extra)
    return made


def entry_of(made):
    return json.loads(formatter("json").format(made))


def failed(words):
    """A record with a traceback through a frame that has the words in a variable."""
    try:
        raise KeyError(len(words))
    except KeyError:
        made = record("broke", path=object)
        made.exc_info = sys.exc_info()
    return made


def test_a_json_line_has_what_extra_gave():
    entry = entry_of(record("took %d", 3, turn_id="resp_1"))

    assert entry.pop("time").endswith("Z")
    assert entry == {
        "message": "took 3",
        "level": "warning",
        "logger": "splice.test",
        "turn_id": "resp_1",
    }


def test_a_json_line_keeps_the_traceback_and_what_json_does_not_know():
    line = formatter("json").format(failed("words"))

    assert "\n" not in line
    assert "KeyError" in json.loads(line)["exception"]


@pytest.mark.parametrize("log_format", ["text", "json"])
def test_a_traceback_shows_no_variables(log_format):
    assert "my darkest secret" not in formatter(log_format).format(failed("my darkest secret"))


def test_a_line_for_people_ends_with_the_ids():
    line = formatter("text").format(record("took 3", turn_id="resp_1", owner="ann"))

    assert "\x1b" not in line
    assert "[warning] took 3 [splice.test]" in " ".join(line.split())
    assert line.endswith("turn_id=resp_1 owner=ann")


async def test_what_is_bound_is_in_every_record_of_the_block_and_of_its_tasks():
    async def task():
        return entry_of(record("in the task"))

    with bound(request_id="req_1"):
        with bound(turn_id="resp_1"):
            inner = entry_of(record("in the block"))
            begun = asyncio.create_task(task())
        outer = entry_of(record("behind it"))
    entry = await begun

    assert (inner["request_id"], inner["turn_id"]) == ("req_1", "resp_1")
    assert (entry["request_id"], entry["turn_id"]) == ("req_1", "resp_1")
    assert outer["request_id"] == "req_1"
    assert "turn_id" not in outer
    assert "request_id" not in entry_of(record("outside"))


def test_what_a_record_says_itself_goes_before_what_is_bound():
    with bound(turn_id="resp_1"):
        assert entry_of(record("of another", turn_id="resp_2"))["turn_id"] == "resp_2"


@contextmanager
def configured(level):
    before = logging.root.handlers[:], logging.root.level
    try:
        configure_logging(level, "json")
        yield
    finally:
        logging.captureWarnings(capture=False)
        logging.root.handlers[:], logging.root.level = before


def test_packages_are_heard_from_warnings_on(capsys):
    with configured("info"):
        logging.getLogger("alembic.runtime").info("never mind")
        logging.getLogger("alembic.runtime").warning("look here")
    (line,) = capsys.readouterr().err.splitlines()
    assert json.loads(line)["message"] == "look here"


NO_HTTP = {
    "a header with a zero": b"GET / HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer secret\0\r\n\r\n",
    "a long line": b"GET /v1/search?q=" + b"secret" * 3000 + b" HTTP/1.1\r\nHost: a\r\n\r\n",
    "an unknown method": b"FOO /secret HTTP/1.1\r\nHost: a\r\n\r\n",
    "a coding nobody knows": b"POST / HTTP/1.1\r\nHost: a\r\nContent-Encoding: br\r\n"
    b"Content-Length: 6\r\n\r\nsecret",
    "a coding that does not fit": b"POST / HTTP/1.1\r\nHost: a\r\nContent-Encoding: gzip\r\n"
    b"Content-Length: 6\r\n\r\nsecret",
}


@pytest.mark.parametrize("level", ["info", "warning"])
@pytest.mark.parametrize("sent", NO_HTTP.values(), ids=NO_HTTP)
async def test_what_is_no_http_is_one_line_without_what_was_sent(sent, level, capsys):
    async def read(request):
        with suppress(web.RequestPayloadError):
            await request.read()
        return web.Response(status=400)

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", read)
    with configured(level):
        async with TestServer(app) as server:
            reader, writer = await asyncio.open_connection(server.host, server.port)
            writer.write(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
            assert b" 400 " in await reader.readline()
            writer.write(sent)
            await reader.read()
            writer.close()
    entries = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    lines = [entry for entry in entries if entry["logger"] == "aiohttp.server"]
    assert "secret" not in str(lines)
    assert {entry["level"] for entry in lines} <= {"info"}
    assert len(lines) == (1 if level == "info" else 0)
