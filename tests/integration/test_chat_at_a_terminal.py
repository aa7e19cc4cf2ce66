"""`splice chat` as a person uses it: keys typed into a terminal, Ctrl-C among them."""

import asyncio

import pytest

from tests.support.fake_engine import FakeReply
from tests.support.terminal import at_terminal
from tests.support.whole_front import serving_whole


@pytest.fixture
async def front(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    async with serving_whole(tmp_path) as front:
        yield front


async def test_at_a_terminal_ctrl_c_stops_a_reply_and_keeps_it_and_the_second_leaves(
    front, tmp_path
):
    front.engine.replies.append(FakeReply(pieces=("half of ", "a reply"), holds_after=1))
    async with at_terminal("chat", SPLICE_URL=front.base_url) as (process, terminal):
        await terminal.until("/help")
        await terminal.until("> ")
        await terminal.type("tell me\n")
        await terminal.until("half of")
        await terminal.type("\x03")
        await terminal.until("stopped")
        await terminal.until("> ")
        await terminal.type("\x03")
        await terminal.until("to go on: splice chat --session conv_")
        assert await asyncio.wait_for(process.wait(), 10) == 0

    (session,) = (await front.call("GET", "/v1/sessions"))[1]["data"]
    (turn,) = (await front.call("GET", f"/v1/sessions/{session['id']}/turns"))[1]["data"]
    assert turn["status"] == "cancelled"
    assert turn["output"][0]["content"][0]["text"] == "half of "
    history = tmp_path / ".local/state/splice/chat-history"
    assert history.read_text() == "tell me\n"
    assert history.stat().st_mode & 0o077 == 0
