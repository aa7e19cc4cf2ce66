"""Trips to a connection's thread: how many a transaction makes, and that none is overtaken."""

import asyncio
import sqlite3
import threading

import pytest
from sqlalchemy import LargeBinary, Text, bindparam, text
from sqlalchemy.exc import IntegrityError, OperationalError

from sessions import sqlite_driver
from sessions.database import Database
from sessions.errors import StoreUnavailableError

COUNT = text("SELECT count(*) FROM owners")
INSERT = text("INSERT INTO owners (id, created_at) VALUES (:id, '2026-01-01')")
both = pytest.mark.parametrize("is_brief", [True, False])


@pytest.fixture
async def database(tmp_path):
    """SQLite's, whatever others are tested on; with a connection that is there."""
    database = Database(f"sqlite:///{tmp_path / 'splice.db'}")
    await database.migrate()
    yield database
    await database.close()


@pytest.fixture
def trips(monkeypatch):
    """What was sent to a connection's thread."""
    sent = []
    send = sqlite_driver.Connection._execute

    async def noting(self, function, *arguments, **named):
        sent.append(function)
        return await send(self, function, *arguments, **named)

    monkeypatch.setattr(sqlite_driver.Connection, "_execute", noting)
    return sent


async def make_function(tx, name, function):
    connection = await (await tx.connection()).get_raw_connection()
    connection.driver_connection._conn.create_function(name, 1, function)


async def owners(database):
    async with database.reading() as tx:
        return (await tx.scalars(COUNT)).one()


@pytest.mark.parametrize(("is_brief", "expected"), [(True, 1), (False, 4)])
async def test_a_brief_reader_waits_for_its_first_statement_alone(
    database, trips, is_brief, expected
):
    async with database.reading(is_brief=is_brief) as tx:
        for _ in range(3):
            assert (await tx.scalars(COUNT)).one() == 0

    assert len(trips) == expected


@pytest.mark.parametrize(("is_brief", "expected"), [(True, 2), (False, 4)])
async def test_a_brief_writer_waits_for_the_lock_and_the_disk(database, trips, is_brief, expected):
    async with database.writing(is_brief=is_brief) as tx:
        for name in "abc":
            await tx.execute(INSERT, {"id": name})

    assert len(trips) == expected
    assert await owners(database) == 3


@both
async def test_a_transaction_that_asks_nothing_begins_nothing(database, trips, is_brief):
    async with database.reading(is_brief=is_brief) as tx:
        await tx.connection()

    assert trips == []


@pytest.mark.parametrize("kind", ["x", b"x"])
async def test_what_is_large_is_stored_on_a_trip(database, trips, kind):
    threads = []
    async with database.writing(is_brief=True) as tx:
        await tx.scalars(COUNT)
        await make_function(
            tx, "noted", lambda value: threads.append(threading.current_thread()) or value
        )
        for size in (10, sqlite_driver.LARGE, sqlite_driver.LARGE + 1):
            type_ = LargeBinary() if isinstance(kind, bytes) else Text()
            statement = text("SELECT noted(:value)").bindparams(bindparam("value", type_=type_))
            await tx.execute(statement, {"value": kind * size})

    *here, there = threads
    assert here == [threading.current_thread()] * 2
    assert there is not threading.current_thread()
    assert len(trips) == 3  # and the first statement, and the commit


async def test_many_small_values_are_large_together(database, trips):
    names = [{"id": f"{i:0300}"} for i in range(sqlite_driver.LARGE // 300 + 1)]
    async with database.writing(is_brief=True) as tx:
        await tx.execute(INSERT, {"id": "first"})
        await tx.execute(INSERT, names[:2])
        await tx.execute(INSERT, names[2:])
        assert len(trips) == 1
    async with database.writing(is_brief=True) as tx:
        await tx.execute(text("DELETE FROM owners"))
        await tx.execute(INSERT, names)
        assert len(trips) == 4  # with the commit before


@both
async def test_what_is_rolled_back_is_so_once(database, trips, is_brief):
    async def change_its_mind() -> None:
        async with database.writing(is_brief=is_brief) as tx:
            await tx.execute(INSERT, {"id": "a"})
            raise LookupError

    with pytest.raises(LookupError):
        await change_its_mind()

    assert len(trips) == 2
    assert await owners(database) == 0


@both
async def test_nothing_is_written_without_the_lock(database, tmp_path, is_brief):
    """Also when somebody goes on behind a statement that didn't get it."""
    other = sqlite3.connect(tmp_path / "splice.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")

    async def go_on_regardless() -> None:
        async with database.writing(is_brief=is_brief) as tx:
            await tx.execute(INSERT, {"id": "a"})

    async def impatient(tx) -> None:
        connection = await (await tx.connection()).get_raw_connection()
        connection.driver_connection._conn.execute("PRAGMA busy_timeout=10")

    async with database.reading() as tx:  # the pool's only connection
        await impatient(tx)
    with pytest.raises(StoreUnavailableError, match="locked"):
        await go_on_regardless()
    async with database.writing(is_brief=is_brief) as tx:
        with pytest.raises(OperationalError, match="locked"):
            await tx.execute(INSERT, {"id": "a"})
        other.execute("ROLLBACK")
        await tx.execute(INSERT, {"id": "b"})
        assert other.execute("SELECT count(*) FROM owners").fetchone() == (0,)
    other.close()

    assert await owners(database) == 1


@both
async def test_a_savepoint_is_undone_alone(database, is_brief):
    async def insert_two(tx) -> None:
        async with tx.begin_nested():
            await tx.execute(INSERT, {"id": "b"})
            await tx.execute(INSERT, {"id": "a"})

    async with database.writing(is_brief=is_brief) as tx:
        await tx.execute(INSERT, {"id": "a"})
        with pytest.raises(IntegrityError):
            await insert_two(tx)
        await tx.execute(INSERT, {"id": "c"})

    assert await owners(database) == 2


async def test_what_is_no_transaction_is_not_brief_behind_one(database, trips):
    async with database.writing(is_brief=True) as tx:
        await tx.execute(INSERT, {"id": "a"})
    trips.clear()
    await database.forget_deleted()

    async with database.reading(is_brief=True) as tx:
        assert (await tx.scalars(COUNT)).one() == 1
    assert len(trips) >= 3


@both
async def test_a_statement_that_fails_leaves_nothing_of_its_transaction(database, is_brief):
    async def write() -> None:
        async with database.writing(is_brief=is_brief) as tx:
            for name in "aba":
                await tx.execute(INSERT, {"id": name})

    with pytest.raises(IntegrityError):
        await write()

    assert await owners(database) == 0


@both
async def test_who_is_cancelled_on_a_trip_leaves_nothing_and_the_next_waits(database, is_brief):
    begun, go_on = threading.Event(), threading.Event()

    def wait(_value):
        begun.set()
        assert go_on.wait(20)
        return 1

    async def write() -> None:
        async with database.writing(is_brief=is_brief) as tx:
            await make_function(tx, "wait", wait)
            # The first statement, which makes a trip in any case.
            await tx.execute(text("INSERT INTO owners (id, created_at) VALUES ('a', wait(1))"), {})

    writer = asyncio.create_task(write())
    assert await asyncio.to_thread(begun.wait, 20)
    writer.cancel()
    asyncio.get_running_loop().call_later(0.1, go_on.set)
    with pytest.raises(asyncio.CancelledError):
        await writer

    assert await owners(database) == 0
    async with database.writing(is_brief=is_brief) as tx:
        await tx.execute(INSERT, {"id": "b"})
    assert await owners(database) == 1


async def test_a_brief_reader_sees_one_state_of_the_database(database):
    async with database.reading(is_brief=True) as tx:
        assert (await tx.scalars(COUNT)).one() == 0
        async with database.writing(is_brief=True) as writer:
            await writer.execute(INSERT, {"id": "a"})
        assert (await tx.scalars(COUNT)).one() == 0

    assert await owners(database) == 1


async def test_brief_writers_take_turns(database):
    async def write(name: str) -> None:
        async with database.writing(is_brief=True) as tx:
            before = (await tx.scalars(COUNT)).one()
            await asyncio.sleep(0)
            await tx.execute(INSERT, {"id": name})
            assert (await tx.scalars(COUNT)).one() == before + 1

    await asyncio.gather(*(write(str(n)) for n in range(12)))

    assert await owners(database) == 12


async def test_others_have_their_turn_between_brief_statements(database):
    num_turns = 0

    async def others() -> None:
        nonlocal num_turns
        while True:
            num_turns += 1
            await asyncio.sleep(0)

    async with database.reading(is_brief=True) as tx:
        await tx.scalars(COUNT)
        task = asyncio.create_task(others())
        for expected in range(1, 6):
            await tx.scalars(COUNT)
            assert num_turns >= expected
        task.cancel()
