"""The ephemeral path: rendered, generated, forgotten."""

from contextlib import aclosing

import pytest

from model.config import SamplingParams
from model.errors import EngineUnavailableError
from model.messages import FinishReason
from sessions.call_scanner import CallDone
from sessions.completion_events import (
    CompletionFinished,
    CompletionRequest,
    CompletionStarted,
    ReplyPiece,
)
from sessions.completions import Completions
from sessions.errors import InvalidInputError, UnsupportedInputError
from sessions.messages import ToolCall
from sessions.reply_parser import TextDelta
from sessions.tools import Tool, ToolChoice, ToolMode
from sessions.types import InputMessage
from tests.support.chat import ANN
from tests.support.fake_engine import FakeReply

HELLO = (InputMessage(role="user", text="hello"),)


@pytest.fixture
def completions(engine, renderer):
    made = Completions(engine=engine)
    made.use_renderer(renderer)
    return made


def stream(completions, messages=HELLO, **fields):
    asked = CompletionRequest(messages=messages, params=SamplingParams(seed=1), **fields)
    return completions.stream(ANN, asked, request_id="chatcmpl-1")


def texts(events):
    told = [event for piece in events if isinstance(piece, ReplyPiece) for event in piece.events]
    return [event.text for event in told if isinstance(event, TextDelta)]


async def test_what_the_engine_says_is_passed_on(completions, engine, renderer):
    events = [event async for event in stream(completions)]

    assert isinstance(events[0], CompletionStarted)
    assert texts(events) == ["Hel", "lo"]
    assert events[-1].finished.reason is FinishReason.STOP
    assert events[-1].reply.text == "Hello"
    (request,) = engine.requests
    assert tuple(request.token_ids) == renderer.whole(HELLO)
    assert (request.owner, request.request_id) == (ANN, "chatcmpl-1")
    assert (request.conversation_id, request.parent_turn_id) == ("chat_chatcmpl-1", None)


async def test_leaving_early_ends_the_generation(completions, engine):
    engine.replies.append(FakeReply(holds_after=1))

    async with aclosing(stream(completions)) as events:
        await anext(events)

    assert (await engine.stats()).num_running == 0


async def test_without_a_renderer_the_engine_is_still_starting(engine):
    with pytest.raises(EngineUnavailableError):
        await anext(stream(Completions(engine=engine)))


@pytest.mark.parametrize(
    ("messages", "error"),
    [
        ((), InvalidInputError),
        ((InputMessage(role="user", text="\ud800"),), InvalidInputError),
        ((InputMessage(role="oracle", text="x"),), UnsupportedInputError),
    ],
)
async def test_messages_are_checked_first(completions, engine, messages, error):
    with pytest.raises(error):
        await anext(stream(completions, messages))

    assert engine.requests == []


async def test_the_whole_reply_is_the_last_event(completions):
    *_, last = [event async for event in stream(completions)]

    assert isinstance(last, CompletionFinished)


TOOLS = (Tool(name="time"),)
CALL = '<tool_call>\n{"name": "time", "arguments": {}}\n</tool_call>'


async def test_a_call_is_found_in_the_reply_and_told_in_the_prompt(completions, engine, renderer):
    engine.replies.append(FakeReply(pieces=("Hm.", CALL[:20], CALL[20:])))

    events = [event async for event in stream(completions, tools=TOOLS)]

    assert texts(events) == ["Hm."]
    assert events[-1].reply.calls == (CallDone(0, "time", "{}", is_complete=True),)
    (request,) = engine.requests
    assert tuple(request.token_ids) == renderer.whole(HELLO, tools=TOOLS)
    assert request.params.grammar is None


async def test_a_reply_that_must_call_is_held_to_it(completions, engine):
    choice = ToolChoice(mode=ToolMode.REQUIRED)

    _ = [event async for event in stream(completions, tools=TOOLS, choice=choice)]

    assert engine.requests[0].params.grammar.param == "tools"


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"tools": (Tool(name="no name"),)}, "tools[0].name"),
        ({"tools": (*TOOLS, *TOOLS)}, "tools[1].name"),
        ({"tools": (Tool(name="f", parameters="[]"),)}, "tools[0].parameters"),
        ({"choice": ToolChoice(mode=ToolMode.REQUIRED)}, "tool_choice"),
        ({"tools": TOOLS, "choice": ToolChoice(names=frozenset({"x"}))}, "tool_choice"),
        (
            {"messages": (*HELLO, InputMessage(role="tool", text="x", call_id="c"))},
            "input[1].tool_call_id",
        ),
    ],
)
async def test_tools_and_results_that_cannot_be_are_refused_by_name(completions, fields, param):
    with pytest.raises(InvalidInputError) as caught:
        await anext(stream(completions, **fields))

    assert caught.value.param == param


async def test_results_may_follow_their_calls(completions, engine):
    asked = InputMessage(
        role="assistant", text="", calls=(ToolCall(id="c", name="time", arguments="{}"),)
    )
    result = InputMessage(role="tool", text="noon", call_id="c")

    *_, last = [event async for event in stream(completions, (*HELLO, asked, result), tools=TOOLS)]

    assert last.reply.text == "Hello"


async def test_a_text_is_gone_on_with_as_it_stands(completions, engine, renderer):
    generated = completions.stream_raw(ANN, "hello", SamplingParams(seed=1), request_id="cmpl-1")
    events = [event async for event in generated]

    assert "".join(texts(events)) == "Hello"
    (request,) = engine.requests
    assert tuple(request.token_ids) == renderer.raw("hello")
    assert request.conversation_id is None
    assert await completions.raw_text(request.token_ids) == "hello"
