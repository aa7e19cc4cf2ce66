"""SQLite by aiosqlite, with fewer trips to a connection's thread.

aiosqlite makes a cursor, executes, fetches and closes in a trip each, and a trip takes longer than
nearly every statement here, much longer while a model computes on all cores. SQLAlchemy reads a
result to its end at once, so one trip can do it all, and begin the transaction. Of a brief one only
what may wait for somebody goes there: the statement that takes the lock, and a commit to disk.
"""

import asyncio
import sqlite3
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, Self

import aiosqlite

LARGE = 16_384
"""Characters and bytes of a statement's parameters that are stored and indexed in about a
millisecond. What a brief statement reads from a disk nobody bounds: it is a few pages, mostly in
memory."""


def connect(database: str, **options: object) -> aiosqlite.Connection:
    """A connection to be awaited, as `aiosqlite.connect` makes it."""
    # Two threads use it, its own and the event loop's, but never at the same time.
    options["check_same_thread"] = False
    connector: Callable[[], sqlite3.Connection] = partial(sqlite3.connect, database, **options)
    connection = Connection(connector, iter_chunk_size=1)
    connection._thread.daemon = True  # or a connection left open would keep the process
    return connection


class Connection(aiosqlite.Connection):
    """As aiosqlite's, but for its cursors, and transactions that begin with a first statement."""

    _opening: str | None = None  # what goes before the next statement
    _is_reading = False
    _is_brief = False
    # The transaction is brief, has its lock, and nobody is on a trip: who awaits one may be
    # cancelled, and what comes next must then go behind it.
    _is_here = False
    _is_over = False  # nothing was begun since it ended

    def begin(self, *, is_reading: bool, is_brief: bool) -> None:
        """Let the next statement begin a transaction, and take the write lock if it is to write;
        of a brief one that statement and the commit of what it wrote are its only trips."""
        self._opening = "BEGIN DEFERRED" if is_reading else "BEGIN IMMEDIATE"
        self._is_reading, self._is_brief, self._is_here = is_reading, is_brief, False

    def begin_nothing(self) -> None:
        """Let statements be durable one by one."""
        self._opening, self._is_brief, self._is_here = None, False, False

    def cursor(self) -> "_Cursor":  # type: ignore[override]
        """One that is there at once."""
        return _Cursor(self)

    async def run(self, function: Callable[..., None], sql: str, parameters: object) -> None:
        """A statement, here or on a trip."""
        is_here, self._is_here, self._is_over = self._is_here, False, False
        if is_here and _size_of(parameters) <= LARGE:
            function(sql, parameters)
            await asyncio.sleep(0)  # others have their turn as if it had been a trip
        else:
            opening, self._opening = self._opening, None
            await self._execute(self._run, opening, function, sql, parameters)  # type: ignore[no-untyped-call]
        self._is_here = self._is_brief

    def _run(
        self, opening: str | None, function: Callable[..., None], sql: str, parameters: object
    ) -> None:
        if opening is not None:
            try:
                self._conn.execute(opening)
            except sqlite3.Error:
                self._opening = opening  # or the next statement would be durable by itself
                raise
        function(sql, parameters)

    async def commit(self) -> None:
        """End the transaction; what was only read needs no trip for that."""
        if self._ends_here():
            self._conn.commit()
        else:
            await super().commit()
        self._is_over = True

    async def rollback(self) -> None:
        """Undo what was begun; a pool asks for it whenever a connection comes back."""
        if self._is_over:
            return
        if self._ends_here():
            self._conn.rollback()
        else:
            await super().rollback()
        self._is_over = True

    def _ends_here(self) -> bool:
        """Whether the end needs no trip, and that it is near."""
        has_begun, is_here = self._opening is None, self._is_here
        self._opening, self._is_here, self._is_brief = None, False, False
        return not has_begun or (is_here and self._is_reading)


class _Cursor(aiosqlite.Cursor):
    """Made when it executes, and empty when that returns."""

    _conn: Connection

    def __init__(self, connection: Connection) -> None:
        super().__init__(connection, None)  # type: ignore[arg-type]
        self._rows: list[sqlite3.Row] = []

    async def execute(self, sql: str, parameters: Iterable[Any] | None = None) -> Self:
        await self._conn.run(self._run, sql, parameters or ())
        return self

    def _run(self, sql: str, parameters: Any) -> None:  # noqa: ANN401 (what SQLAlchemy has bound)
        self._cursor = self._conn._conn.execute(sql, parameters)
        self._rows = self._cursor.fetchall()

    async def executemany(self, sql: str, parameters: Iterable[Iterable[Any]]) -> Self:
        await self._conn.run(self._run_many, sql, parameters)
        return self

    def _run_many(self, sql: str, parameters: Any) -> None:  # noqa: ANN401
        self._cursor = self._conn._conn.executemany(sql, parameters)

    async def fetchall(self) -> list[sqlite3.Row]:
        """The rows that are left, which is no trip."""
        rows, self._rows = self._rows, []
        return rows

    async def fetchmany(self, size: int | None = None) -> list[sqlite3.Row]:
        """Some of them, likewise."""
        count = size or self.arraysize
        rows, self._rows = self._rows[:count], self._rows[count:]
        return rows

    async def fetchone(self) -> sqlite3.Row | None:
        """The next of them."""
        return self._rows.pop(0) if self._rows else None

    async def close(self) -> None:
        """A cursor without rows holds nothing."""


def _size_of(value: object) -> int:
    """Of parameters, or many rows of them; a number counts as eight bytes."""
    if isinstance(value, str | bytes | memoryview):
        return len(value)
    return sum(map(_size_of, value)) if isinstance(value, Sequence) else 8
