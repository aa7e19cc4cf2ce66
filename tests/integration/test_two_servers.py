"""Two servers on one PostgreSQL: neither touches what the other runs, one migrates at once."""

import asyncio
from contextlib import asynccontextmanager

import psycopg
import pytest
from sqlalchemy import text

from sessions.database import MIGRATION_LOCK, VERSION_TABLE, Database
from sessions.errors import ConflictError, ForeignDatabaseError, SessionBusyError
from sessions.manager import ManagerConfig, SessionManager
from sessions.store import Store
from sessions.types import TurnStatus
from tests.support import tiny_tokenizer as tiny
from tests.support.chat import ANN, Chat
from tests.support.clock import FakeClock
from tests.support.fake_engine import FakeEngine, FakeReply
from tests.support.postgres import POSTGRESQL, PROGRAMS

LEASE_S = 30.0


@pytest.fixture(params=[POSTGRESQL] if PROGRAMS is not None else [])
def url(request, postgres_server):
    return postgres_server.new_url()


@asynccontextmanager
async def server(url: str, name: str, clock: FakeClock):
    """A manager with an engine and connections of its own."""
    database, engine = Database(url), FakeEngine()
    await database.migrate()
    config = ManagerConfig(runner_id=name, lease_s=LEASE_S, checkpoint_s=0.001)
    async with SessionManager(
        store=Store(database), engine=engine, clock=clock, config=config
    ) as manager:
        manager.use_renderer(tiny.make_renderer(tiny.SMOLLM2))
        yield manager, engine
    await database.close()


async def test_a_turn_that_runs_elsewhere_is_neither_ended_nor_doubled(url):
    clock = FakeClock()
    async with server(url, "one", clock) as (one, engine), server(url, "two", clock) as (two, _):
        chat = await Chat.open(one)
        engine.replies.append(FakeReply(holds_after=1))
        turn = await chat.submit("hello")
        await engine.held(turn.id)

        assert await two.recover() == 0
        elsewhere = Chat(two, chat.session)
        with pytest.raises(SessionBusyError):
            await elsewhere.submit("me too")
        with pytest.raises(ConflictError, match="another server"):
            await two.cancel(ANN, turn.id)
        assert (await two.get(ANN, chat.id)).active == (turn.id,)

        engine.let_go()
        ended = await chat.end(turn)
        assert ended.status is TurnStatus.COMPLETED
        assert (await elsewhere.end(turn)).reply_text == "Hello"
        assert (await elsewhere.say("again")).parent_id == turn.id


async def test_who_watches_on_one_server_hears_what_is_done_on_the_other(url):
    clock = FakeClock()
    async with server(url, "one", clock) as (one, _), server(url, "two", clock) as (two, _):
        chat = await Chat.open(one)
        watching = two.catalog.watch(ANN, chat.id)
        begun = await anext(watching)
        turn = await chat.say("hello")

        heard = []
        async with asyncio.timeout(20):
            while len(heard) < 2:
                heard += (await anext(watching)).events

        assert [event.turn_id for event in heard] == [turn.id, turn.id]
        assert [e.revision for e in heard] == [begun.revision + 1, begun.revision + 2]


async def test_a_dead_servers_turn_is_ended_by_the_other_once_its_lease_is_over(url):
    clock = FakeClock()
    async with server(url, "one", clock) as (one, engine), server(url, "two", clock) as (two, _):
        chat = await Chat.open(one)
        engine.replies.append(FakeReply(holds_after=1))
        turn = await chat.submit("hello")
        await engine.held(turn.id)
        await chat.kept(turn)
        # The first server stops renewing, as one that hangs does.
        clock.advance(LEASE_S + 1)

        assert await two.recover() == 1

        assert (await two.turn(ANN, turn.id)).status is TurnStatus.INTERRUPTED
        engine.let_go()
        # Its runner finds out, and writes nothing over the end that is there.
        assert (await chat.end(turn)).status is TurnStatus.INTERRUPTED
        goes_on = await two.go_on(ANN, turn.id, max_more_tokens=None)
        assert (await Chat(two, chat.session).end(goes_on)).reply_text == "HelHello"


async def test_of_many_writers_at_once_each_turn_follows_another(url):
    clock = FakeClock()
    async with server(url, "one", clock) as (one, _), server(url, "two", clock) as (two, _):
        chat = await Chat.open(one)
        both = [chat, Chat(two, chat.session)]

        async def say(number: int) -> str:
            while True:
                try:
                    return (await both[number % 2].say(f"{number}")).id
                except ConflictError:
                    await asyncio.sleep(0)

        said = await asyncio.gather(*(say(number) for number in range(8)))

        path = await chat.turns()
        assert {turn.id for turn in path} == set(said)
        assert [t.parent_id for t in path] == [None, *(t.id for t in path[:-1])]


async def test_servers_that_start_together_migrate_once(url):
    databases = [Database(url) for _ in range(4)]

    await asyncio.gather(*(database.migrate() for database in databases))

    async with databases[0].reading() as tx:
        versions = (await tx.scalars(text(f"SELECT version_num FROM {VERSION_TABLE}"))).all()
    assert len(versions) == 1
    for database in databases:
        await database.close()


async def test_a_migration_waits_for_another_to_end(url):
    database = Database(url)
    async with await psycopg.AsyncConnection.connect(url) as other:
        await other.execute(f"SELECT pg_advisory_xact_lock({MIGRATION_LOCK})")
        migrating = asyncio.create_task(database.migrate())
        waiting = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
        async with await psycopg.AsyncConnection.connect(url, autocommit=True) as watcher:
            async with asyncio.timeout(20):
                while (await (await watcher.execute(waiting)).fetchone()) != (1,):
                    assert not migrating.done()
        assert not migrating.done()
        await other.rollback()
    await migrating
    assert await database.pending() == ()
    await database.close()


async def test_another_programs_database_and_a_newer_ones_are_refused(url, postgres_server):
    with psycopg.connect(url, autocommit=True) as other:
        other.execute("CREATE TABLE recipes (id INTEGER)")
    foreign = Database(url)
    with pytest.raises(ForeignDatabaseError, match="recipes"):
        await foreign.migrate()
    await foreign.close()

    newer = Database(ahead := postgres_server.new_url())
    await newer.migrate()
    with psycopg.connect(ahead, autocommit=True) as other:
        other.execute(f"UPDATE {VERSION_TABLE} SET version_num = '9999'")
    with pytest.raises(ForeignDatabaseError, match=r"9999.*newer"):
        await newer.migrate()
    await newer.close()
