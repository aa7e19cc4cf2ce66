"""Every error is reachable through the wire, by both doors, and is what docs/errors.md says.

`PROVOCATIONS` walks with the two families: a class without one fails here.
"""

import itertools
from collections.abc import Awaitable, Callable

import pytest

import model.errors as engine
import sessions.errors as sessions
from app.errors import describe
from app.errors_docs import family_of, sample_of
from sessions.types import ANONYMOUS
from tests.support.doors import Door, Seen, opened
from tests.support.fake_engine import FakeReply
from tests.support.whole_front import WholeFront, serving_whole

Provocation = Callable[[WholeFront, Door], Awaitable[Seen]]

FAMILIES = [*family_of(sessions.SessionsError), *family_of(engine.ModelError)]
LIMITS = {
    sessions.TooManyTurnsError: {"owner_max_turns": 1},
    engine.EngineBusyError: {"max_turns": 1},
}


async def _running(front: WholeFront) -> tuple[str, str]:
    """A session, and a turn of it that doesn't end before it is told to."""
    session = (await front.session())["id"]
    front.engine.replies.append(FakeReply(holds_after=1))
    stream = await front.client.post(
        f"/v1/sessions/{session}/turns", json={"input": "hi", "stream": True}
    )
    while b"response.created" not in (line := await stream.content.readline()):
        assert line
    (turn,) = (await front.call("GET", f"/v1/sessions/{session}"))[1]["active"]
    await front.engine.held(turn)
    return session, turn


async def _session_of_nobody(front, door):
    return await door.say("conv_0")


async def _turn_of_nobody(front, door):
    return await door.read((await front.session())["id"], "resp_0")


async def _nothing_to_continue(front, door):
    session = (await front.session())["id"]
    turn = await front.say(session)
    return await door.go_on(session, turn["id"])


async def _two_turns_at_once(front, door):
    session, _ = await _running(front)
    return await door.say(session)


async def _another_session_meanwhile(front, door):
    await _running(front)
    return await door.say((await front.session())["id"])


async def _a_parent_that_runs(front, door):
    session, turn = await _running(front)
    return await door.say(session, parent=turn)


async def _a_client_turn_id_for_two_things(front, door):
    session = (await front.session())["id"]
    await front.say(session, "one", client_turn_id="c")
    return await door.say(session, "two", client_turn_id="c")


async def _somebody_else_keeps_writing(front, door):
    session = (await front.session())["id"]
    heads = itertools.cycle([None, (await front.say(session))["id"]])
    compose = front.manager._composer.compose

    async def compose_while_others_write(*args):
        await front.manager.move_head(ANONYMOUS, session, next(heads))
        return await compose(*args)

    front.manager._composer.compose = compose_while_others_write
    return await door.say(session)


async def _no_text_in_a_message(front, door):
    return await door.say((await front.session())["id"], text=[])


async def _an_image(front, door):
    content = [{"type": "input_image", "image_url": "x"}]
    session = (await front.session())["id"]
    return await door.say(session, text=[{"role": "user", "content": content}])


async def _a_manager_that_drains(front, door):
    session = (await front.session())["id"]
    await front.manager.drain(0)
    return await door.say(session)


async def _no_database(front, door):
    session = (await front.session())["id"]
    await front.database.close()
    for path in front.folder.glob("splice.db*"):
        path.unlink()
    (front.folder / "splice.db").mkdir()
    return await door.say(session)


async def _something_else_in_its_place(front, door):
    session = (await front.session())["id"]
    await front.database.close()
    for path in front.folder.glob("splice.db*"):
        path.unlink()
    (front.folder / "splice.db").write_bytes(b"a recipe for waffles " * 1000)
    return await door.say(session)


async def _a_token_that_is_none(front, door):
    return await door.say((await front.session())["id"], logit_bias={"99999999": 1})


async def _a_prompt_too_long(front, door):
    front.engine.becomes(max_context_tokens=8)
    return await door.say((await front.session())["id"], "word " * 50)


async def _an_engine_that_is_away(front, door):
    session = (await front.session())["id"]
    front.engine.is_up = False
    return await door.say(session)


def _raising(error: Exception):
    async def refuse(*_args, **_kwargs):
        raise error

    return refuse


def _beneath(kind: type[Exception]) -> Provocation:
    """What no request can bring about, raised by the layer below all the same."""

    async def provoke(front, door):
        session = (await front.session())["id"]
        front.manager.submit = _raising(sample_of(kind))
        return await door.say(session)

    return provoke


def _in_a_turn(kind: type[engine.ModelError]) -> Provocation:
    """What befalls a turn that runs."""

    async def provoke(front, door):
        front.engine.replies.append(FakeReply(pieces=("a",), error=sample_of(kind)))
        return await door.say((await front.session())["id"])

    return provoke


PROVOCATIONS: dict[type[Exception], Provocation] = {
    sessions.SessionsError: _beneath(sessions.SessionsError),
    sessions.NotFoundError: _beneath(sessions.NotFoundError),
    sessions.SessionNotFoundError: _session_of_nobody,
    sessions.TurnNotFoundError: _turn_of_nobody,
    sessions.ItemNotFoundError: _beneath(sessions.ItemNotFoundError),
    sessions.KeyNotFoundError: _beneath(sessions.KeyNotFoundError),
    sessions.ConflictError: _nothing_to_continue,
    sessions.SessionBusyError: _two_turns_at_once,
    sessions.RevisionConflictError: _somebody_else_keeps_writing,
    sessions.IdempotencyConflictError: _a_client_turn_id_for_two_things,
    sessions.TurnNotEndedError: _a_parent_that_runs,
    sessions.InvalidInputError: _no_text_in_a_message,
    sessions.UnsupportedInputError: _an_image,
    sessions.TooManyTurnsError: _another_session_meanwhile,
    sessions.UnavailableError: _beneath(sessions.UnavailableError),
    sessions.DrainingError: _a_manager_that_drains,
    sessions.StoreUnavailableError: _no_database,
    sessions.ForeignDatabaseError: _something_else_in_its_place,
    engine.ModelError: _in_a_turn(engine.ModelError),
    engine.InvalidGenerationError: _a_token_that_is_none,
    engine.ContextLengthError: _a_prompt_too_long,
    engine.EngineBusyError: _another_session_meanwhile,
    engine.EngineUnavailableError: _an_engine_that_is_away,
    engine.EngineDiedError: _in_a_turn(engine.EngineDiedError),
    engine.RepeatedCrashError: _in_a_turn(engine.RepeatedCrashError),
    engine.SequenceFailedError: _in_a_turn(engine.SequenceFailedError),
    engine.ModelLoadError: _in_a_turn(engine.ModelLoadError),
    engine.OutOfBlocksError: _in_a_turn(engine.OutOfBlocksError),
}
BEFALLS_A_TURN = {
    engine.ModelError,
    engine.EngineUnavailableError,
    engine.EngineDiedError,
    engine.RepeatedCrashError,
    engine.SequenceFailedError,
    engine.ModelLoadError,
    engine.OutOfBlocksError,
}


def test_each_class_of_both_families_has_its_provocation():
    assert set(PROVOCATIONS) == set(FAMILIES)


@pytest.mark.parametrize("name", ["rest", "socket"])
@pytest.mark.parametrize("kind", FAMILIES, ids=lambda kind: kind.__name__)
async def test_each_error_comes_through_each_door(kind, name, tmp_path):
    async with (
        serving_whole(tmp_path, **LIMITS.get(kind, {})) as front,
        opened(name, front) as door,
    ):
        seen = await PROVOCATIONS[kind](front, door)
        front.engine.let_go()

    if kind in BEFALLS_A_TURN:
        assert (seen.status, seen.code) == (200, kind.code)
    else:
        error = describe(sample_of(kind))
        assert (seen.status, seen.code) == (error.status, error.code)


@pytest.mark.parametrize(
    "kind", [k for k in FAMILIES if k in BEFALLS_A_TURN], ids=lambda kind: kind.__name__
)
async def test_what_befalls_a_turn_is_an_error_to_a_chat_completion(kind, tmp_path):
    body = {"messages": [{"role": "user", "content": "hi"}]}
    async with serving_whole(tmp_path) as front:
        front.engine.replies.append(FakeReply(pieces=("a",), error=sample_of(kind)))
        status, answer = await front.call("POST", "/v1/chat/completions", json=body)

    error = describe(sample_of(kind))
    assert (status, answer["error"]["code"]) == (error.status, error.code)
    assert answer["error"]["type"] == error.error()["type"]
