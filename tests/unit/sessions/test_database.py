"""The database: how its transactions behave."""

import asyncio

import pytest
from sqlalchemy import text

from sessions.database import Database
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
