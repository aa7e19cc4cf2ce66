"""The server as it is run, told to stop in the middle of a reply, by signals."""

import asyncio
import os
import signal
import time

import pytest
from aiohttp import WSMsgType

from tests.support.front_end import receive, receive_until
from tests.support.live_server import LiveServer
from tests.support.wire import reply_of, wired

pytestmark = pytest.mark.timeout(300)
LONG = {"ignore_eos": True, "max_output_tokens": 4000, "temperature": 0}


async def test_a_second_signal_cuts_a_long_reply_which_goes_on_after_the_restart(tmp_path):
    server = LiveServer(tmp_path, "--drain-timeout-s", "600", "--device", "cpu")
    await asyncio.to_thread(server.start)
    async with wired(server.url) as wire, wire.http.ws_connect("/v1/ws") as ws:
        session, other = await wire.new_session(), await wire.new_session()
        create = {"type": "response.create", "input": "Tell me of the sea.", **LONG}
        await ws.send_json({**create, "conversation": session})
        await receive_until(ws, "response.output_text.delta")

        os.kill(server.pid, signal.SIGTERM)
        async with asyncio.timeout(30):
            while (await (await wire.http.get("/readyz")).json())["state"] != "draining":
                await receive(ws)
        await ws.send_json({**create, "conversation": other, "event_id": "late"})
        refused = (await receive_until(ws, "error"))[-1]
        began = time.monotonic()
        stopping = asyncio.create_task(asyncio.to_thread(server.stop))
        cut = (await receive_until(ws, "response.incomplete"))[-1]["response"]
        goodbye = await ws.receive(timeout=10)
        await stopping
        took_s = time.monotonic() - began

    assert (refused["status"], refused["error"]["code"]) == (503, "draining")
    assert cut["incomplete_details"] == {"reason": "server_restart"}
    assert (goodbye.type, goodbye.data) == (WSMsgType.CLOSE, 1001)
    assert took_s < 10  # seconds of a busy machine; the drain had ten minutes

    with server:
        async with wired(server.url) as wire:
            path = f"/v1/sessions/{session}/turns/{cut['id']}"
            stored = await wire.call("GET", path)
            more = await wire.call("POST", path + "/continue", {"max_output_tokens": 8})

    assert reply_of(stored) == reply_of(cut) != ""
    assert reply_of(more).startswith(reply_of(cut))
    assert len(reply_of(more)) > len(reply_of(cut))


@pytest.mark.full
async def test_a_drain_ends_in_time_and_says_when_to_come_back(tmp_path):
    server = LiveServer(tmp_path, "--drain-timeout-s", "0.5", "--device", "cpu")
    await asyncio.to_thread(server.start)
    async with wired(server.url) as wire, wire.http.ws_connect("/v1/ws") as ws:
        session = await wire.new_session()
        frame = {"type": "response.create", "conversation": session, "input": "On!", **LONG}
        await ws.send_json(frame)
        await receive_until(ws, "response.output_text.delta")
        stopping = asyncio.create_task(asyncio.to_thread(server.stop))
        cut = (await receive_until(ws, "response.incomplete"))[-1]["response"]
        goodbye = await ws.receive(timeout=10)
        await stopping

    assert cut["incomplete_details"] == {"reason": "server_restart"}
    assert (goodbye.type, goodbye.data) == (WSMsgType.CLOSE, 1012)
