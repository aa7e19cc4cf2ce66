"""The ephemeral path: rendered, generated, forgotten."""

from contextlib import aclosing

import pytest

from model.config import SamplingParams
from model.errors import EngineUnavailableError
from model.messages import FinishReason, GenerationDelta, GenerationFinished, GenerationStarted
from sessions.completions import Completions
from sessions.errors import InvalidInputError, UnsupportedInputError
from sessions.types import InputMessage
from tests.support.chat import ANN
from tests.support.fake_engine import FakeReply

HELLO = (InputMessage(role="user", text="hello"),)


@pytest.fixture
def completions(engine, renderer):
    made = Completions(engine=engine)
    made.use_renderer(renderer)
    return made


def stream(completions, messages=HELLO):
    return completions.stream(ANN, messages, SamplingParams(seed=1), request_id="chatcmpl-1")


async def test_what_the_engine_says_is_passed_on(completions, engine, renderer):
    events = [event async for event in stream(completions)]

    assert isinstance(events[0], GenerationStarted)
    assert [e.text for e in events if isinstance(e, GenerationDelta)] == ["Hel", "lo"]
    assert events[-1].reason is FinishReason.STOP
    (request,) = engine.requests
    assert request.token_ids == renderer.whole(HELLO)
    assert (request.owner, request.request_id) == (ANN, "chatcmpl-1")
    assert request.conversation_id is request.parent_turn_id is None


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
        ((InputMessage(role="tool", text="x"),), UnsupportedInputError),
    ],
)
async def test_messages_are_checked_first(completions, engine, messages, error):
    with pytest.raises(error):
        await anext(stream(completions, messages))

    assert engine.requests == []


async def test_a_finished_generation_is_the_last_event(completions):
    *_, last = [event async for event in stream(completions)]

    assert isinstance(last, GenerationFinished)
