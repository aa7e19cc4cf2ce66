"""The database: how its transactions behave."""

import asyncio
import sqlite3
from contextlib import closing

import pytest
from sqlalchemy import text

from sessions import database as module
from sessions.database import MAX_LARGE_READS, Database
from sessions.errors import StoreUnavailableError


@pytest.mark.parametrize(
    ("pragma", "value"),
    [("journal_mode", "wal"), ("foreign_keys", 1), ("synchronous", 2), ("busy_timeout", 5000)],
)
async def test_every_connection_is_set_up(database, pragma, value):
    async with database.reading() as tx:
        assert (await tx.scalars(text(f"PRAGMA {pragma}"))).one() == value


async def test_what_was_written_before_an_exception_is_not_kept(database):
    async def write_and_think_again() -> None:
        async with database.writing() as tx:
            await tx.execute(text("INSERT INTO owners (id, created_at) VALUES ('x', '2026-01-01')"))
            raise RuntimeError("on second thoughts")

    with pytest.raises(RuntimeError, match="on second thoughts"):
        await write_and_think_again()

    async with database.reading() as tx:
        assert (await tx.execute(text("SELECT id FROM owners"))).all() == []


async def test_writers_take_turns_and_readers_wait_for_none(database):
    insert = text("INSERT INTO owners (id, created_at) VALUES (:id, '2026-01-01')")
    count = text("SELECT count(*) FROM owners")

    async def write(name: str) -> None:
        async with database.writing() as tx:
            # Read before write: deferred transactions would fail here under contention.
            await tx.scalars(count)
            await tx.execute(insert, {"id": name})

    async with database.writing() as tx:
        await tx.execute(insert, {"id": "first"})
        async with database.reading() as reader:
            assert (await reader.scalars(count)).one() == 0
    await asyncio.gather(*(write(str(n)) for n in range(8)))

    async with database.reading() as reader:
        assert (await reader.scalars(count)).one() == 9


async def test_writers_queue_in_the_order_they_came_and_keep_no_reader_waiting(database):
    order: list[int] = []

    async def write(number: int) -> None:
        async with database.writing():
            order.append(number)

    async with asyncio.TaskGroup() as tasks, database.writing():
        # More than there are connections.
        for number in range(40):
            tasks.create_task(write(number))
        async with asyncio.timeout(2), database.reading() as reader:
            await reader.scalars(text("SELECT count(*) FROM owners"))
        assert order == []

    assert order == list(range(40))


@pytest.fixture
async def impatient(tmp_path, monkeypatch):
    """A database that waits for another program's lock a tenth of a second, and its file."""
    pragmas = ("PRAGMA busy_timeout=100", *module.SQLITE_PRAGMAS[1:])
    monkeypatch.setattr(module, "SQLITE_PRAGMAS", pragmas)
    file = tmp_path / "impatient.db"
    database = Database(f"sqlite:///{file}")
    await database.migrate()
    yield database, file
    await database.close()


async def test_who_queues_behind_a_writer_that_was_locked_out_waits_no_longer(impatient):
    database, file = impatient
    insert = text("INSERT INTO owners (id, created_at) VALUES (:id, '2026-01-01')")

    async def write(name: str) -> str:
        try:
            async with database.writing() as tx:
                await tx.execute(insert, {"id": name})
        except StoreUnavailableError as exc:
            return str(exc)
        return "written"

    with closing(sqlite3.connect(file, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        async with asyncio.timeout(2):  # and not 40 times a tenth
            said = await asyncio.gather(*(write(str(n)) for n in range(40)))
        other.execute("ROLLBACK")

    assert set(said) == {"another program keeps the database locked"}
    assert await write("later") == "written"


async def test_the_log_is_not_waited_for_while_somebody_reads(impatient):
    database, _ = impatient
    async with database.reading() as reader:
        await reader.scalars(text("SELECT count(*) FROM owners"))

        async with asyncio.timeout(2):
            await database.forget_deleted()
        async with database.writing() as tx:
            await tx.execute(text("INSERT INTO owners (id, created_at) VALUES ('x', '2026-01-01')"))


async def test_large_reads_leave_connections_to_small_ones(database):
    count = text("SELECT count(*) FROM owners")
    reading, are_full, done = 0, asyncio.Event(), asyncio.Event()

    async def read_much() -> None:
        nonlocal reading
        async with database.reading(is_large=True) as tx:
            await tx.scalars(count)
            reading += 1
            if reading == MAX_LARGE_READS:
                are_full.set()
            await done.wait()

    async with asyncio.TaskGroup() as tasks:
        for _ in range(40):
            tasks.create_task(read_much())
        async with asyncio.timeout(5):
            await are_full.wait()
            async with database.reading() as tx:
                await tx.scalars(count)
        assert reading == MAX_LARGE_READS
        done.set()
    assert reading == 40


async def test_a_database_in_memory_serves_many_at_once():
    database = Database("sqlite://")
    await database.migrate()
    insert = text("INSERT INTO owners (id, created_at) VALUES (:id, '2026-01-01')")
    count = text("SELECT count(*) FROM owners")

    async def write(number: int) -> None:
        async with database.writing(is_brief=number % 2 == 0) as tx:
            await tx.scalars(count)
            await tx.execute(insert, {"id": str(number)})

    async def read(number: int) -> None:
        async with database.reading(is_brief=number % 2 == 0) as tx:
            await tx.scalars(count)

    await asyncio.gather(*map(write, range(20)), *map(read, range(20)))

    async with database.reading() as tx:
        assert (await tx.scalars(count)).one() == 20
    await database.close()


async def test_a_check_notices_that_the_file_was_taken_away(impatient):
    database, file = impatient
    await database.check()

    file.unlink()

    with pytest.raises(StoreUnavailableError, match="is gone"):
        await database.check()


async def test_a_statement_that_fails_says_that_the_store_failed(database):
    with pytest.raises(StoreUnavailableError, match="no such table"):
        async with database.reading() as tx:
            await tx.execute(text("SELECT * FROM nowhere"))


def test_a_database_without_a_driver_is_refused_by_name():
    with pytest.raises(StoreUnavailableError, match="nosuch"):
        Database("nosuch://host/database")


async def test_a_check_reads_what_is_there_and_says_when_it_can_not(tmp_path):
    database = Database(f"sqlite:///{tmp_path / 'splice.db'}")
    await database.migrate()
    await database.check()
    await database.close()
    for path in tmp_path.glob("splice.db*"):
        path.unlink()
    (tmp_path / "splice.db").mkdir()

    with pytest.raises(StoreUnavailableError):
        await database.check()

    await database.close()
