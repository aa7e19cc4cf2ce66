"""`splice chat` in a process of its own: keys typed at a terminal, Ctrl-C among them, and pipes."""

import asyncio
import os
import sys
from asyncio.subprocess import DEVNULL, PIPE

import pytest

from tests.support.fake_engine import FakeReply
from tests.support.terminal import ROOT, at_terminal
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


@pytest.mark.parametrize(
    ("stdin", "complaint"),
    [(PIPE, "splice: nothing came through the pipe\n"), (DEVNULL, "")],
    ids=["an empty pipe", "no input"],
)
async def test_of_an_empty_pipe_it_says_so_and_asks_without(front, stdin, complaint):
    front.engine.replies.append(FakeReply(pieces=("a reply",)))
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "app.cli", "chat", "describe it"),
        stdin=stdin,
        stdout=PIPE,
        stderr=PIPE,
        env={**os.environ, "PYTHONPATH": str(ROOT), "SPLICE_URL": front.base_url},
    )
    reply, said = await process.communicate(b"" if stdin is PIPE else None)

    assert (process.returncode, reply.decode(), said.decode()) == (0, "a reply\n", complaint)


async def test_from_a_shell_an_unknown_conversation_s_hint_is_a_shells(front):
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "app.cli", "chat", "--session", "conv_nope", "hi"),
        stdin=DEVNULL,
        stderr=PIPE,
        env={**os.environ, "PYTHONPATH": str(ROOT), "SPLICE_URL": front.base_url},
    )
    _, said = await process.communicate()

    assert process.returncode != 0
    assert "`splice kv ls` lists what there is" in said.decode()
