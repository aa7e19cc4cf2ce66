"""Deletion: taken back while it can be, for good afterwards, and never under a fork's feet."""

import asyncio

import pytest
from sqlalchemy import func, select

from sessions.errors import SessionNotFoundError, StoreUnavailableError, TurnNotFoundError
from sessions.sweeper import Sweeper
from sessions.tables import Row, SessionRow
from tests.support.chat import ANN, BOB, Chat
from tests.support.fake_engine import FakeReply
from tests.support.postgres import DATABASES, SQLITE


@pytest.fixture(params=DATABASES)
def database_kind(request):
    return request.param


DAY = 86400.0


@pytest.fixture
def sweeper(store, engine, clock):
    return Sweeper(store=store, engine=engine, clock=clock, delete_grace_s=DAY)


async def counts(database) -> dict[str, int]:
    """Rows by table, of those that belong to sessions."""
    async with database.reading() as tx:
        found = {
            name: (await tx.scalars(select(func.count()).select_from(table))).one()
            for name, table in Row.metadata.tables.items()
        }
    return {name: n for name, n in found.items() if n and name != "owners"}


async def test_a_deletion_is_taken_back_whole(manager, engine):
    chat = await Chat.open(manager, title="T")
    turn = await chat.say("one")
    before = await manager.get(ANN, chat.id)
    await manager.delete(ANN, chat.id)

    restored = await manager.catalog.restore(ANN, chat.id)

    assert restored.revision == before.revision + 2
    assert (restored.title, restored.head_turn_id) == ("T", turn.id)
    assert [t.id for t in await chat.turns()] == [turn.id]
    assert (await manager.catalog.search(ANN, "one")).data
    assert (await chat.say("two")).parent_id == turn.id


async def test_a_living_session_is_left_as_it_is(manager):
    chat = await Chat.open(manager)

    assert await manager.catalog.restore(ANN, chat.id) == chat.session


async def test_a_fork_claims_its_origins_table_behind_the_origins_deletion(chatting, store, clock):
    async with chatting("chatml") as chat:
        await chat.say("One", "fine")
        fork, later = await chat.chat.fork(), await chat.chat.fork()
        origin, manager = chat.chat, chat.chat.manager
        await manager.delete(ANN, origin.id)
        chat.chat = fork
        first = await chat.say("Two", "good")
        clock.advance(DAY + 1)
        sweeper = Sweeper(store=store, engine=chat.engine, clock=clock, delete_grace_s=DAY)
        assert await sweeper.sweep() == 0
        chat.chat = later
        second = await chat.say("Two", "good")

        assert first.usage.claim.reason is second.usage.claim.reason is None
        # What is new, and the one token behind the table's end.
        assert 0 < second.usage.claim.computed <= first.usage.claim.computed < 20
        assert len(await later.turns()) == 2
        assert chat.engine.core.tables(origin.id)
        # Each has its own table now, so the origin's can go.
        assert await sweeper.sweep() == 0
        assert not chat.engine.core.tables(origin.id)


@pytest.fixture
def files(tmp_path):
    """All that SQLite has written, in small letters."""

    def read() -> bytes:
        return b"".join(path.read_bytes() for path in tmp_path.glob("splice.db*")).lower()

    return read


async def test_no_byte_of_it_is_left_in_sqlites_files(
    manager, sweeper, clock, engine, files, database_kind
):
    kept = await Chat.open(manager, title="Keptotter")
    await kept.say("otterly")
    chat = await Chat.open(manager, title="Goneheron", instructions="Ibisgone.")
    engine.replies.append(FakeReply(pieces=("stork", "gone " * 2000)))
    await chat.say("egretgone " * 200)
    words = {b"goneheron", b"ibisgone", b"storkgone", b"egretgone"}
    assert {w for w in words if w in files()} == (words if database_kind == SQLITE else set())
    await manager.delete(ANN, chat.id)
    clock.advance(DAY + 1)

    assert await sweeper.sweep() == 1

    assert not [word for word in words if word in files()]
    assert (b"keptotter" in files()) is (database_kind == SQLITE)
    assert (await manager.catalog.search(ANN, "otterly")).data


async def test_nobody_else_takes_it_back_and_nobody_too_late(manager, clock):
    chat = await Chat.open(manager)
    await manager.delete(ANN, chat.id)
    with pytest.raises(SessionNotFoundError):
        await manager.catalog.restore(BOB, chat.id)

    clock.advance(DAY + 1)

    with pytest.raises(SessionNotFoundError):
        await manager.catalog.restore(ANN, chat.id)


async def test_nothing_of_it_is_left_when_its_grace_is_over(
    manager, sweeper, database, clock, engine
):
    chat = await Chat.open(manager, title="T", instructions="Be brief.")
    turn = await chat.say("one")
    await chat.regenerate(turn)
    await chat.say("two")
    await manager.delete(ANN, chat.id)
    assert await sweeper.sweep() == 0

    clock.advance(DAY + 1)

    assert await sweeper.sweep() == 1
    assert await counts(database) == {}
    assert engine.released[-1] == chat.id
    assert await sweeper.sweep() == 0


async def test_what_lives_is_not_touched(manager, sweeper, clock):
    kept, gone = await Chat.open(manager), await Chat.open(manager)
    turn = await kept.say("one")
    await gone.say("two")
    await manager.delete(ANN, gone.id)
    clock.advance(DAY + 1)

    await sweeper.sweep()

    assert [t.id for t in await kept.turns()] == [turn.id]


async def test_a_forks_ancestors_stay_and_the_rest_goes(manager, sweeper, clock, database, engine):
    chat = await Chat.open(manager, title="secret")
    first = await chat.say("one")
    second = await chat.regenerate(first)
    await chat.say("behind the fork")
    await chat.say("beside it", parent=first.id)
    fork = await chat.fork(second.id, title="open")
    await fork.say("onward")
    await manager.delete(ANN, chat.id)
    clock.advance(DAY + 1)

    assert await sweeper.sweep() == 0

    path = await fork.turns()
    assert [t.input_items[0].text for t in path] == ["one", "onward"]
    assert (await fork.say("and on")).status == "completed"
    async with database.reading() as tx:
        assert (await tx.get_one(SessionRow, chat.id)).title is None
    # The fork's own two, the turn it was made from, and the one whose input that shares.
    assert (await counts(database))["responses"] == 4
    assert not (await manager.catalog.search(ANN, "secret")).data

    await manager.delete(ANN, fork.id)
    clock.advance(DAY + 1)
    # The fork's session goes first or second, in the order of deletion.
    await sweeper.sweep()
    await sweeper.sweep()
    assert await counts(database) == {}


async def test_a_fork_without_turns_keeps_what_it_was_made_from(manager, sweeper, clock):
    chat = await Chat.open(manager)
    turn = await chat.say("one")
    fork = await chat.fork()
    await manager.delete(ANN, chat.id)
    clock.advance(DAY + 1)

    await sweeper.sweep()

    assert [t.id for t in await fork.turns()] == [turn.id]
    with pytest.raises(SessionNotFoundError):
        await manager.get(ANN, chat.id)


async def test_a_deleted_fork_can_be_restored_with_its_history(manager, sweeper, clock):
    chat = await Chat.open(manager)
    turn = await chat.say("one")
    fork = await chat.fork()
    await manager.delete(ANN, chat.id)
    clock.advance(DAY)
    await manager.delete(ANN, fork.id)
    clock.advance(2)

    await sweeper.sweep()
    await manager.catalog.restore(ANN, fork.id)

    assert [t.id for t in await fork.turns()] == [turn.id]


async def test_what_still_runs_somewhere_is_not_purged_yet(
    manager, store, sweeper, clock, engine, database
):
    chat = await Chat.open(manager)
    engine.replies.append(FakeReply(holds_after=0))
    turn = await chat.submit("one")
    await engine.held(turn.id)
    # As another server, whose delete can't reach the runner.
    await store.delete_session(ANN, chat.id, clock())
    clock.advance(DAY + 1)

    assert await sweeper.sweep() == 0

    engine.let_go()
    await manager.drain(5)
    assert await sweeper.sweep() == 1
    with pytest.raises(TurnNotFoundError):
        await manager.turn(ANN, turn.id)


async def test_it_sweeps_by_itself_and_survives_a_store_that_is_away(
    manager, store, engine, clock, caplog
):
    chat = await Chat.open(manager)
    await manager.delete(ANN, chat.id)
    clock.advance(DAY + 1)
    over = asyncio.Event()

    class Flaky:
        num_asked = 0

        async def due(self, before):
            Flaky.num_asked += 1
            if Flaky.num_asked == 1:
                raise StoreUnavailableError("away")
            return await store.due(before)

        async def purge(self, session_id, before):
            return await store.purge(session_id, before)

        async def is_continued_elsewhere(self, session_id):
            return False

        async def forget_deleted(self):
            over.set()

        async def living(self, names):
            return frozenset(names)

    sweeper = Sweeper(store=Flaky(), engine=engine, clock=clock, delete_grace_s=DAY, sweep_s=0.001)
    async with sweeper, asyncio.timeout(5):
        await over.wait()

    assert "nothing is purged: away" in caplog.text


async def test_what_the_tiers_hold_for_nobody_is_released(manager, engine, sweeper):
    kept, deleted = await Chat.open(manager), await Chat.open(manager)
    engine.stored = {kept.id, deleted.id, "conv_of_nobody"}
    engine.is_up = False
    await manager.delete(ANN, deleted.id)  # the engine hears nothing of it
    engine.is_up = True

    assert await sweeper.reconcile() == 2
    assert sorted(engine.released) == sorted([deleted.id, "conv_of_nobody"])
    assert await sweeper.reconcile() == 0


async def test_what_a_fork_goes_on_with_is_not_released(manager, engine, sweeper):
    origin = await Chat.open(manager)
    await origin.say()
    fork = await origin.fork()
    await manager.delete(ANN, origin.id)
    engine.stored = {origin.id}

    assert await sweeper.reconcile() == 0
    assert engine.released == []

    await fork.say()
    assert await sweeper.reconcile() == 1
    assert engine.released == [origin.id]


async def test_two_that_look_at_once_release_it_once(engine, sweeper):
    engine.stored = {"conv_of_nobody"}

    counts = await asyncio.gather(sweeper.reconcile(), sweeper.reconcile())

    assert sorted(counts) == [0, 1]
    assert engine.released == ["conv_of_nobody"]


async def test_it_sweeps_when_it_is_woken(manager, store, engine, clock):
    swept = asyncio.Event()
    sweeper = Sweeper(store=store, engine=engine, clock=clock, delete_grace_s=DAY, sweep_s=3600)

    async with sweeper, asyncio.timeout(5):
        engine.stored = {"conv_of_nobody"}
        release = engine.release

        async def hear(name):
            await release(name)
            swept.set()

        engine.release = hear
        sweeper.wake()
        await swept.wait()

    assert engine.released == ["conv_of_nobody"]
