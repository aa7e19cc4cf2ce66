"""`splice chat` against the whole front end: as a conversation, and as one message in a pipe."""

import asyncio
import io
from collections import deque
from pathlib import Path

import pytest
from rich.console import Console
from typer.testing import CliRunner

from app.cli import app
from app.keys import METRICS
from app.terminal.conversation import Conversation
from app.terminal.screen import Screen
from model.errors import SequenceFailedError
from model.messages import FinishReason
from splice import Client
from tests.support.fake_engine import FakeReply
from tests.support.front_end import serving

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def _home(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)


async def run(front, *args, stdin: str | bytes = "", **environ):
    """The command, in a pipe."""
    environ = {"SPLICE_URL": front.base_url, **environ}
    return await asyncio.to_thread(CliRunner().invoke, app, ["chat", *args], stdin, environ)


class Script:
    """A reader that types lines; an exception among them is raised, a callable called first."""

    def __init__(self, *lines):
        self._lines = deque(lines)
        self.prefills = []

    def read(self, prompt, *, prefill=""):
        self.prefills.append(prefill)
        if not self._lines:
            raise EOFError
        line = self._lines.popleft()
        if isinstance(line, type):
            raise line
        return prefill + line[1:] if line.startswith("+") else line


async def talk(front, *lines, session=None, width=120):
    """What is on the screen behind a conversation of these lines."""

    def converse():
        console = Console(file=io.StringIO(), width=width, color_system=None)
        with Client(front.base_url) as client:
            chosen = client.sessions.get(session) if session else client.sessions.create()
            is_new = session is None
            Conversation(client, chosen, Screen(console), Script(*lines), is_new=is_new).run()
        return console.file.getvalue()

    return await asyncio.to_thread(converse)


async def turns(front, session_id):
    return (await front.call("GET", f"/v1/sessions/{session_id}/turns"))[1]["data"]


async def session_ids(front):
    listed = (await front.call("GET", "/v1/sessions"))[1]["data"]
    return [session["id"] for session in listed]


async def until(holds):
    """Wait for what happens behind the wire and tells nobody."""
    async with asyncio.timeout(10):
        while not holds():  # noqa: ASYNC110
            await asyncio.sleep(0.01)


# ---- in a pipe


async def test_a_piped_message_is_answered_with_plain_text(front):
    result = await run(front, stdin="hi\n")

    assert (result.exit_code, result.stdout, result.stderr) == (0, "Hello\n", "")
    (session_id,) = await session_ids(front)
    (turn,) = await turns(front, session_id)
    assert turn["input"][0]["content"][0]["text"] == "hi"


async def test_what_is_piped_stands_below_what_is_asked(front):
    await run(front, "sum it up", "-i", "be brief", stdin="a long text")

    (session_id,) = await session_ids(front)
    (turn,) = await turns(front, session_id)
    assert turn["input"][0]["content"][0]["text"] == "sum it up\n\na long text"
    session = (await front.call("GET", f"/v1/sessions/{session_id}"))[1]
    assert session["instructions"] == "be brief"


@pytest.mark.parametrize(
    ("args", "piped"), [(["Say it"], b"+Sm\xf8rrebr\xf8d\n"), (["Sm\udcf8rrebr\udcf8d"], b"")]
)
async def test_what_is_no_utf8_is_said_as_far_as_it_can_be_read(front, args, piped):
    done = await run(front, *args, stdin=piped)

    assert (done.exit_code, done.stdout) == (0, "Hello\n")
    (session_id,) = await session_ids(front)
    (turn,) = await turns(front, session_id)
    assert "Sm\ufffdrrebr\ufffdd" in turn["input"][0]["content"][0]["text"]


async def test_a_conversation_is_gone_on_with_by_its_id_or_as_the_last(front):
    await run(front, "one")
    (session_id,) = await session_ids(front)

    await run(front, "two", "--session", session_id)
    await run(front, "three", "--session", "last")

    assert len(await turns(front, session_id)) == 3


async def test_a_reply_that_is_cut_or_fails_ends_in_one_and_a_sentence(front):
    front.engine.replies.append(FakeReply(reason=FinishReason.LENGTH))
    cut = await run(front, "hi")
    front.engine.replies.append(FakeReply(error=SequenceFailedError("broken")))
    failed = await run(front, "hi")

    assert (cut.exit_code, cut.stdout) == (1, "Hello\n")
    assert "the reply is cut" in cut.stderr
    assert failed.exit_code == 1
    assert "the turn failed: " in failed.stderr


@pytest.mark.parametrize(
    ("args", "said"),
    [
        ([], "nothing to say"),
        (["hi", "--session", "conv_0"], "conv_0"),
        (["hi", "--session", "last"], "no conversation yet"),
        (["hi", "--session", "conv_0", "-i", "x"], "--session names one"),
    ],
)
async def test_what_cannot_be_said_ends_in_a_sentence(front, args, said):
    result = await run(front, *args)

    assert result.exit_code == 1
    assert said in result.stderr
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize("url", ["http://127.0.0.1:9", "127.0.0.1:9/v1", "http://a b"])
def test_without_a_server_it_says_how_to_start_one(url):
    result = CliRunner().invoke(app, ["chat", "hi", "--url", url])

    assert result.exit_code == 1
    assert url.removesuffix("/v1") in result.stderr
    assert "Traceback" not in result.stderr


def test_a_server_that_is_not_there_is_not_waited_for():
    result = CliRunner().invoke(app, ["chat", "hi", "--url", "http://127.0.0.1:9"])

    assert "start one with `splice serve`" in result.stderr


async def test_where_a_key_is_needed_it_is_asked_for_and_taken():
    async with serving() as front:
        front.manager.auto_reply = "Hello"
        key = front.keys.add("ann")
        without = await run(front, "hi")
        wrong = await run(front, "hi", SPLICE_API_KEY="sk-splice-wrong")
        with_key = await run(front, "hi", SPLICE_API_KEY=key)

    assert without.exit_code == wrong.exit_code == 1
    assert "needs an API key" in without.stderr
    assert "--key, or the variable SPLICE_API_KEY" in wrong.stderr
    assert (with_key.exit_code, with_key.stdout) == (0, "Hello\n")


# ---- as a conversation


async def test_a_conversation_shows_replies_and_how_they_went(front):
    front.engine.replies.append(FakeReply(pieces=("It is **", "bold**.\n\n- a\n", "- b")))
    shown = await talk(front, "hello", "again", "/quit")

    assert "It is bold." in shown
    assert " • a" in shown
    assert "tokens reused" in shown
    (session_id,) = await session_ids(front)
    assert f"splice chat --session {session_id}" in shown
    assert len(await turns(front, session_id)) == 2


async def test_regen_and_edit_answer_the_last_message_again(front):
    front.engine.replies.extend(FakeReply(pieces=(text,)) for text in ("one", "two", "three"))
    shown = await talk(front, "hello", "/regen", "/edit", "+ there", "/edit bye")

    (session_id,) = await session_ids(front)
    tree = (await front.call("GET", f"/v1/sessions/{session_id}/tree"))[1]["turns"]
    assert [node["parent"] for node in tree] == [None] * 4
    assert [node["input_preview"] for node in tree] == ["hello", "hello", "hello there", "bye"]
    assert all(text in shown for text in ("one", "two", "three"))


async def test_fork_new_and_open_change_the_conversation(front):
    shown = await talk(front, "hello", "/fork copy", "in the copy", "/new fresh", "/title named")

    copied, origin, fresh = "copy", None, "named"
    listed = (await front.call("GET", "/v1/sessions"))[1]["data"]
    by_title = {session["title"]: session["id"] for session in listed}
    assert set(by_title) == {copied, origin, fresh}
    assert len(await turns(front, by_title[copied])) == 2
    assert len(await turns(front, by_title[origin])) == 1
    assert by_title[fresh] in shown.splitlines()[-1]

    back = await talk(front, f"/open {by_title[copied]}", "/sessions", session=by_title[fresh])
    assert "in the copy" in back
    assert "named" in back


@pytest.mark.parametrize("width", [72, 80, 90])
async def test_no_id_is_cut_in_a_narrow_terminal(front, width):
    await talk(front, "hello", "/title a title that has many more words than fit on one line")
    shown = await talk(front, "hello", "/sessions", width=width)

    assert all(session_id in shown for session_id in await session_ids(front))


async def test_ids_are_folded_where_there_is_no_room_for_them(front):
    shown = await talk(front, "hello", "/sessions", width=40)

    (session_id,) = await session_ids(front)
    parts = [line.split()[-1] if line[:6].strip() else line.strip() for line in shown.splitlines()]
    assert "…" not in shown.rpartition("last used")[2]
    assert any(len(part) > 3 and part in session_id for part in parts)


async def test_a_conversation_is_opened_by_number_and_by_how_its_id_begins(front):
    await talk(front, "first")
    await talk(front, "second")
    newest, oldest = await session_ids(front)

    by_number = await talk(front, "/sessions", "/open 2", "/title picked", session=newest)
    by_start = await talk(front, f"/open {oldest[5:-1]}", "/title again", session=newest)
    alike = await talk(front, "/open conv_", session=newest)

    assert "first" in by_number
    assert "called 'again'" in by_start
    assert (await front.call("GET", f"/v1/sessions/{oldest}"))[1]["title"] == "again"
    assert "more than one conversation's id begins with conv_" in alike


async def test_opening_what_is_open_does_not_delete_it(front):
    shown = await talk(front, "/sessions", "/open 1", "hello")

    assert "this is the conversation that is open" in shown
    assert "Hello" in shown


async def test_a_cut_reply_goes_on(front):
    front.engine.replies.append(FakeReply(pieces=("Hel",), reason=FinishReason.LENGTH))
    front.engine.replies.append(FakeReply(pieces=("lo",)))
    shown = await talk(front, "hello", "/continue")

    assert "/continue goes on" in shown
    (session_id,) = await session_ids(front)
    assert (await turns(front, session_id))[-1]["output"][0]["content"][0]["text"] == "Hello"


async def test_kv_shows_the_block_tables(front):
    before = await talk(front, "/kv")
    after = await talk(front, "hello", "/kv")

    assert "nothing of this conversation is in the cache" in before
    (session_id,) = await session_ids(front)
    (turn,) = await turns(front, session_id)
    assert turn["id"] in after


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("/regne", "did you mean /regen?"),
        ("/zzz", "/help lists"),
        ("/regen", "nothing has been said yet"),
        ("/stop", "nothing is being said"),
        ("/open", "/sessions lists them"),
        ("/open conv_none", "there is no conversation conv_none"),
        ("/open 7", "there is no conversation 7"),
        ("/title", "it has no title"),
        ("/help", "/fork [TITLE]"),
    ],
)
async def test_what_a_command_cannot_do_is_said_and_the_conversation_goes_on(front, line, said):
    shown = await talk(front, line, "hello")

    assert said in shown
    assert "Hello" in shown


async def test_two_slashes_begin_a_message_with_one(front):
    await talk(front, "//etc is a folder")

    (session_id,) = await session_ids(front)
    (turn,) = await turns(front, session_id)
    assert turn["input"][0]["content"][0]["text"] == "/etc is a folder"


async def test_a_refused_message_is_explained_and_the_conversation_goes_on(front):
    shown = await talk(front, "many words " * 2000, "hello")

    assert "Hello" in shown
    assert "4,096" in shown


async def test_one_ctrl_c_at_the_prompt_warns_and_the_second_leaves(front):
    warned = await talk(
        front, KeyboardInterrupt, "hello", KeyboardInterrupt, KeyboardInterrupt, "x"
    )

    assert warned.count("Ctrl-C again leaves") == 2
    assert "Hello" in warned
    (session_id,) = await session_ids(front)
    assert len(await turns(front, session_id)) == 1


async def test_a_conversation_that_is_gone_on_with_shows_its_end_and_what_is_being_said(front):
    session_id = (await front.session())["id"]
    for number in range(4):
        await front.say(session_id, f"message {number}")
    front.engine.replies.append(FakeReply(pieces=("still ", "here"), holds_after=1))
    submitted = asyncio.create_task(front.say(session_id, "message 4"))
    await until(lambda: bool(front.engine._flights))
    await front.engine.held(next(iter(front.engine._flights)))
    talking = asyncio.create_task(talk(front, session=session_id))
    metrics = front.client.app[METRICS]
    await until(lambda: metrics._streams.labels("sse")._value.get() == 1)
    front.engine.let_go()

    shown = await talking
    await submitted

    assert "2 earlier turns" in shown
    assert "message 1" not in shown
    assert "message 3" in shown
    assert "still here" in shown


@pytest.mark.parametrize("lines", [(), ("/new",), ("/new", "/new", "/help")])
async def test_a_conversation_in_which_nothing_was_said_is_not_left_behind(front, lines):
    shown = await talk(front, *lines)

    assert await session_ids(front) == []
    assert "to go on" not in shown


async def test_one_that_was_there_is_left_as_it_is(front):
    session_id = (await front.session())["id"]
    await talk(front, "/quit", session=session_id)

    assert await session_ids(front) == [session_id]


async def test_a_lost_connection_is_made_again_and_the_reply_goes_on(front):
    front.engine.replies.append(FakeReply(pieces=("half of ", "a reply"), holds_after=1))
    talking = asyncio.create_task(talk(front, "hello"))
    metrics = front.client.app[METRICS]
    await until(lambda: metrics._streams.labels("sse")._value.get() == 1)
    for connection in front.client.server.runner.server.connections:
        connection.transport.abort()
    front.engine.let_go()

    shown = await talking

    assert shown.count("half of a reply") == 1
    (session_id,) = await session_ids(front)
    assert len(await turns(front, session_id)) == 1
