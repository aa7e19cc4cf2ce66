"""The warm-up behind a start: the busiest system prompts, until somebody asks for something."""

import asyncio

import pytest

from model.messages import FinishReason
from sessions.manager import ManagerConfig, SessionManager
from tests.support.chat import ANN, BOB, Chat
from tests.support.fake_engine import FakeEngine, FakeReply

EMPTY = FakeReply(pieces=(), reason=FinishReason.LENGTH)


@pytest.fixture
def later(store, clock, renderer):
    """A server that starts on what another one left."""

    def make(engine):
        config = ManagerConfig(runner_id="runner-2")
        manager = SessionManager(store=store, engine=engine, clock=clock, config=config)
        manager.use_renderer(renderer)
        return manager

    return make


async def test_the_busiest_prompts_come_first_each_for_its_owner(manager, later):
    for owner, instructions, num_turns in ((ANN, "busy", 3), (BOB, "quiet", 1), (ANN, None, 2)):
        chat = await Chat.open(manager, owner, instructions=instructions)
        for _ in range(num_turns):
            await chat.say()
    engine = FakeEngine(default=EMPTY)

    async with later(engine) as restarted:
        num_warm = await restarted.presence.warm_up.run(10)

    assert num_warm == 3
    assert [request.owner for request in engine.requests] == [ANN, ANN, BOB]
    assert all(r.conversation_id is None for r in engine.requests)
    assert all(r.params.max_output_tokens == 0 for r in engine.requests)


async def test_what_was_not_asked_for_within_a_day_stays_cold(manager, later, clock):
    await (await Chat.open(manager, instructions="old")).say()
    clock.advance(90_000)
    engine = FakeEngine(default=EMPTY)

    async with later(engine) as restarted:
        assert await restarted.presence.warm_up.run(10) == 0

    assert engine.requests == []


async def test_a_turn_ends_it(manager, later):
    for text in ("one", "two"):
        await (await Chat.open(manager, instructions=text)).say()
    engine = FakeEngine()
    engine.replies.append(FakeReply(pieces=("x",), holds_after=0))

    async with later(engine) as restarted:
        warming = asyncio.create_task(restarted.presence.warm_up.run(10))
        started = asyncio.Event()
        engine.on_start = lambda _request: started.set()
        await started.wait()
        await engine.held(engine.requests[0].request_id)
        await (await Chat.open(restarted)).say()

        assert await warming == 0

    assert len(engine.requests) == 2  # the one that was ended, and the turn


async def test_it_ends_when_its_time_is_over(manager, later):
    await (await Chat.open(manager, instructions="one")).say()
    engine = FakeEngine(default=FakeReply(holds_after=0))

    async with later(engine) as restarted:
        assert await restarted.presence.warm_up.run(0.05) == 0


async def test_a_turn_with_a_warmed_prompt_counts_as_its_use(manager, later):
    await (await Chat.open(manager, instructions="one")).say()
    engine = FakeEngine(default=EMPTY)

    async with later(engine) as restarted:
        await restarted.presence.warm_up.run(10)
        engine.default = FakeReply()
        await (await Chat.open(restarted, instructions="another")).say()
        await (await Chat.open(restarted, instructions="one")).say()

        assert dict(restarted.presence.ledger.stats().outcomes) == {("start", "used"): 1}
