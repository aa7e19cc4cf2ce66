"""Replies in the making, by owner."""

import pytest

from model.errors import EngineUnavailableError
from sessions.completion_events import CompletionRequest
from sessions.completions import Completions
from sessions.errors import TooManyTurnsError
from sessions.manager import ManagerConfig, SessionManager
from sessions.places import Places
from sessions.types import InputMessage, OwnerId, SamplingParams, TurnRequest
from tests.support.clock import FakeClock
from tests.support.fake_engine import FakeReply

ANN, BOB = OwnerId("ann"), OwnerId("bob")
HELLO = (InputMessage(role="user", text="hello"),)


def test_an_owner_has_so_many_places_and_gets_them_back():
    places = Places(2)
    places.take(ANN)
    places.take(ANN)
    with pytest.raises(TooManyTurnsError, match="as many replies in the making as may be at on"):
        places.take(ANN)
    places.take(BOB)

    places.leave(ANN)
    places.take(ANN)


def test_owners_without_a_reply_in_the_making_are_forgotten():
    places = Places(1)
    for n in range(100):
        places.take(OwnerId(f"owner-{n}"))
        places.leave(OwnerId(f"owner-{n}"))
    places.take(ANN)
    with pytest.raises(TooManyTurnsError):
        places.take(ANN)
    places.leave(ANN)

    assert places.num_owners == 0


def test_without_a_limit_all_are_let_in():
    places = Places()
    for _ in range(100):
        places.take(ANN)


async def test_turns_and_completions_share_an_owners_places(store, engine, renderer):
    places = Places(1)
    config = ManagerConfig(runner_id="runner-1")
    completions = Completions(engine=engine, places=places)
    completions.use_renderer(renderer)
    params = SamplingParams(temperature=0.0, max_output_tokens=4)
    async with SessionManager(
        store=store, engine=engine, clock=FakeClock(), config=config, places=places
    ) as manager:
        manager.use_renderer(renderer)
        mine, also_mine = await manager.create(ANN), await manager.create(ANN)
        other = await manager.create(BOB)
        request = TurnRequest(input=HELLO, params=params)
        asked = CompletionRequest(messages=HELLO, params=params)
        engine.replies.append(FakeReply(holds_after=1))
        turn = await manager.submit(ANN, mine.id, request)
        await engine.held(turn.id)
        with pytest.raises(TooManyTurnsError):
            await manager.submit(ANN, also_mine.id, request)
        with pytest.raises(TooManyTurnsError):
            await anext(completions.stream(ANN, asked, request_id="r"))
        await manager.submit(BOB, other.id, request)
        await manager.cancel(ANN, turn.id)

        await manager.submit(ANN, also_mine.id, request)

    assert places.num_owners == 0


async def test_a_turn_without_rows_that_no_model_can_make_takes_no_place(store, engine):
    places = Places(1)
    config = ManagerConfig(runner_id="runner-1")
    request = TurnRequest(input=HELLO, params=SamplingParams())
    async with SessionManager(
        store=store, engine=engine, clock=FakeClock(), config=config, places=places
    ) as manager:
        for _ in range(2):
            with pytest.raises(EngineUnavailableError):
                await anext(manager.ephemeral.run(ANN, request, None))

    assert places.num_owners == 0
