"""The manager: what its callers can do with sessions, and who may."""

import asyncio

import pytest

from model.errors import EngineUnavailableError
from sessions.errors import (
    DrainingError,
    InvalidInputError,
    SessionNotFoundError,
    TurnNotEndedError,
    TurnNotFoundError,
)
from sessions.manager import ManagerConfig, SessionManager
from sessions.types import TurnStatus
from tests.support.chat import ANN, BOB, Chat, ask
from tests.support.fake_engine import FakeReply
from tests.support.postgres import DATABASES


@pytest.fixture(params=DATABASES)
def database_kind(request):
    return request.param


async def test_a_session_is_what_it_was_made_of(manager):
    made = await manager.create(ANN, title="T", instructions="Be brief.", metadata={"a": "b"})

    assert made.id.startswith("conv_")
    assert (made.model, made.fingerprint) == ("fake-model", "fake-1")
    assert await manager.get(ANN, made.id) == made


async def test_nothing_is_made_before_the_engine_is_known(store, engine, clock):
    config = ManagerConfig(runner_id="r")
    async with SessionManager(store=store, engine=engine, clock=clock, config=config) as manager:
        with pytest.raises(EngineUnavailableError):
            await manager.create(ANN)


async def test_another_owners_session_is_not_found(manager):
    chat = await Chat.open(manager)
    turn = await chat.say()

    with pytest.raises(SessionNotFoundError):
        await manager.get(BOB, chat.id)
    with pytest.raises(SessionNotFoundError):
        await manager.submit(BOB, chat.id, ask())
    with pytest.raises(SessionNotFoundError):
        await manager.tables(BOB, chat.id)
    with pytest.raises(TurnNotFoundError):
        await manager.turn(BOB, turn.id)
    with pytest.raises(TurnNotFoundError):
        await manager.cancel(BOB, turn.id)
    with pytest.raises(TurnNotFoundError):
        await anext(manager.read(BOB, turn.id))
    with pytest.raises(TurnNotFoundError):
        await manager.regenerate(BOB, turn.id, params=ask().params)


async def test_sessions_are_listed_by_last_use_in_pages(manager):
    chats = [await Chat.open(manager, title=str(n)) for n in range(5)]
    await chats[1].say()
    await manager.create(BOB)

    first = await manager.list(ANN, limit=3)
    second = await manager.list(ANN, limit=3, after=first.data[-1].id)

    assert [s.title for s in first.data] == ["1", "4", "3"]
    assert [s.title for s in second.data] == ["2", "0"]
    assert (first.has_more, second.has_more) == (True, False)
    assert [s.title for s in (await manager.list(ANN, is_descending=False)).data] == list("02341")


@pytest.mark.parametrize("bad", [{"limit": 0}, {"limit": 101}, {"after": "x"}])
async def test_a_list_refuses_what_it_does_not_know(manager, bad):
    with pytest.raises(InvalidInputError) as caught:
        await manager.list(ANN, **bad)

    assert caught.value.param == next(iter(bad))


async def test_a_deleted_session_is_gone_and_the_engine_forgets_it(manager, engine):
    chat = await Chat.open(manager)
    turn = await chat.say()

    await manager.delete(ANN, chat.id)

    assert engine.released == [chat.id]
    assert (await manager.list(ANN)).data == ()
    for lost in (manager.get(ANN, chat.id), manager.turns(ANN, chat.id)):
        with pytest.raises(SessionNotFoundError):
            await lost
    with pytest.raises(TurnNotFoundError):
        await manager.turn(ANN, turn.id)
    with pytest.raises(SessionNotFoundError):
        await manager.delete(ANN, chat.id)


async def test_a_session_can_be_deleted_while_the_engine_is_away(manager, engine):
    chat = await Chat.open(manager)
    engine.is_up = False

    await manager.delete(ANN, chat.id)

    assert (await manager.list(ANN)).data == ()


async def test_deleting_a_session_cancels_its_turn(manager, engine):
    engine.replies.append(FakeReply(pieces=("a", "b"), holds_after=1))
    chat = await Chat.open(manager)
    turn = await chat.submit()
    await engine.held(turn.id)
    reader = manager.read(ANN, turn.id)
    first = await anext(reader)

    await manager.delete(ANN, chat.id)

    events = [first, *[numbered async for numbered in reader]]
    assert events[-1][1].turn.status is TurnStatus.CANCELLED
    assert manager.num_active == 0


async def test_a_fork_goes_on_where_it_left_and_leaves_the_origin_alone(manager):
    chat = await Chat.open(manager, title="T", instructions="Be brief.", metadata={"a": "b"})
    first = await chat.say("one")
    second = await chat.say("two")

    fork = await chat.fork(at=first.id)
    third = await fork.say("three")

    assert fork.session.forked_from == fork.session.head_turn_id == first.id
    assert fork.session.title == "T"
    assert fork.session.instructions == "Be brief."
    assert fork.session.metadata == {"a": "b"}
    assert third.parent_id == first.id
    assert [t.id for t in await fork.turns()] == [first.id, third.id]
    assert [t.id for t in await fork.turns(whole_tree=True)] == [first.id, third.id]
    assert [t.id for t in await chat.turns(whole_tree=True)] == [first.id, second.id]
    assert (await manager.get(ANN, chat.id)).head_turn_id == second.id


async def test_a_fork_is_made_at_the_head_unless_told(manager):
    chat = await Chat.open(manager)
    head = await chat.say()

    fork = await chat.fork(title="mine")

    assert (fork.session.forked_from, fork.session.title) == (head.id, "mine")


async def test_an_empty_session_can_be_forked(manager):
    fork = await (await Chat.open(manager)).fork()

    assert fork.session.forked_from is None
    assert (await fork.say()).status is TurnStatus.COMPLETED


async def test_a_fork_waits_for_the_turn_it_is_made_at(manager, engine):
    engine.replies.append(FakeReply(holds_after=0))
    chat = await Chat.open(manager)
    turn = await chat.submit()

    with pytest.raises(TurnNotEndedError):
        await chat.fork()
    await manager.cancel(ANN, turn.id)
    assert (await chat.fork()).session.head_turn_id == turn.id


async def test_a_fork_outlives_its_origin(manager):
    chat = await Chat.open(manager)
    first = await chat.say("one")
    unrelated = await chat.say("two")
    fork = await chat.fork(at=first.id)
    grandchild = await fork.fork()

    await manager.delete(ANN, chat.id)

    for living in (fork, grandchild):
        assert [t.id for t in await living.turns()] == [first.id]
        assert (await living.say("on")).parent_id == first.id
    assert (await manager.turn(ANN, first.id)).reply_text == "Hello"
    assert (await fork.read(first))[-1][1].turn.id == first.id
    with pytest.raises(TurnNotFoundError):
        await manager.turn(ANN, unrelated.id)

    await manager.delete(ANN, fork.id)
    await manager.delete(ANN, grandchild.id)
    with pytest.raises(TurnNotFoundError):
        await manager.turn(ANN, first.id)


async def test_a_fork_at_a_turn_of_another_session_is_refused(manager):
    stranger = await (await Chat.open(manager)).say()
    chat = await Chat.open(manager)

    with pytest.raises(TurnNotFoundError):
        await chat.fork(at=stranger.id)


async def test_the_tables_are_the_engines(manager):
    chat = await Chat.open(manager)
    turn = await chat.say()

    assert [t.turn_id for t in await manager.tables(ANN, chat.id)] == [turn.id]


async def test_a_draining_manager_takes_no_turns_and_lets_the_others_end(manager, engine):
    engine.replies.append(FakeReply(holds_after=1))
    chat = await Chat.open(manager)
    turn = await chat.submit()
    await engine.held(turn.id)
    engine.let_go()

    await manager.drain(timeout_s=30)

    assert (await manager.turn(ANN, turn.id)).status is TurnStatus.COMPLETED
    with pytest.raises(DrainingError):
        await chat.submit()


async def test_a_drain_out_of_patience_interrupts_and_keeps_what_there_is(manager, engine):
    engine.replies.append(FakeReply(holds_after=1))
    chat = await Chat.open(manager)
    turn = await chat.submit()
    await engine.held(turn.id)

    await manager.drain(timeout_s=0)

    ended = await manager.turn(ANN, turn.id)
    assert (ended.status, ended.reply_text) == (TurnStatus.INTERRUPTED, "Hel")
    assert ended.incomplete_reason == "server_restart"
    assert manager.num_active == 0


async def test_a_turn_that_was_cancelled_before_the_drain_stays_cancelled(manager, engine):
    engine.replies.append(FakeReply(holds_after=1))
    engine.ignores_cancel = True
    chat = await Chat.open(manager)
    turn = await chat.submit()
    await engine.held(turn.id)
    asked = asyncio.Event()

    async def cancel(_request_id):
        asked.set()

    engine.cancel = cancel
    async with asyncio.TaskGroup() as tasks:
        cancelling = tasks.create_task(manager.cancel(ANN, turn.id))
        await asked.wait()
        tasks.create_task(manager.drain(timeout_s=0))
        manager.hurry()

    assert cancelling.result().status is TurnStatus.CANCELLED


async def test_a_hurried_drain_waits_neither_for_replies_nor_for_a_deaf_engine(manager, engine):
    engine.replies.append(FakeReply(holds_after=1))
    engine.ignores_cancel = True
    chat = await Chat.open(manager)
    turn = await chat.submit()
    await engine.held(turn.id)

    async with asyncio.timeout(5), asyncio.TaskGroup() as tasks:
        tasks.create_task(manager.drain(timeout_s=600))
        await asyncio.sleep(0)
        manager.hurry()

    ended = await manager.turn(ANN, turn.id)
    assert (ended.status, ended.reply_text) == (TurnStatus.INTERRUPTED, "Hel")


@pytest.mark.parametrize(
    ("field", "value", "param"),
    [
        ("title", "\ud800", "title"),
        ("title", "x" * 501, "title"),
        ("instructions", "a\0b", "instructions"),
        ("instructions", "x" * 3_000_000, "instructions"),
        ("metadata", {"k": "\0"}, "metadata.k"),
        ("metadata", {"k": "v" * 513}, "metadata.k"),
        ("metadata", {str(n): "v" for n in range(17)}, "metadata"),
    ],
)
async def test_a_session_is_not_made_of_what_cannot_be_stored(manager, field, value, param):
    with pytest.raises(InvalidInputError) as caught:
        await manager.create(ANN, **{field: value})

    assert caught.value.param == param
