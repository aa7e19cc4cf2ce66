"""SQLite by aiosqlite, with fewer trips to a connection's thread.

aiosqlite makes a cursor, executes, fetches and closes in a trip each, and a trip takes longer than
nearly every statement here, much longer while a model computes on all cores. SQLAlchemy reads a
result to its end at once, so one trip can do it all, and begin the transaction. Of a brief one only
what may wait for somebody goes there: the statement that takes the lock, and a commit to disk.
"""

import sqlite3
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, Self

import aiosqlite

LARGE = 16_384
"""Characters or bytes of a parameter that take about a millisecond to be stored and indexed."""
_MANY = 200  # parameters, or rows of them


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
    # How many statements make a trip before the others run where they are asked for. None: all do.
    # While one is under way it is None, too, for whoever awaits it may be cancelled, and what comes
    # next must then wait for the thread.
    _trips: int | None = None
    _is_reading = False
    _is_over = False  # nothing was begun since a commit

    def begin(self, *, is_reading: bool, is_brief: bool) -> None:
        """Let the next statement begin a transaction, and take the write lock if it is to write;
        of a brief one that statement and the commit of what it wrote are its only trips."""
        self._opening = "BEGIN DEFERRED" if is_reading else "BEGIN IMMEDIATE"
        self._trips, self._is_reading = 1 if is_brief else None, is_reading

    def cursor(self) -> "_Cursor":  # type: ignore[override]
        """One that is there at once."""
        return _Cursor(self)

    async def run(self, function: Callable[..., None], *arguments: object) -> None:
        """A statement, on a trip or here."""
        opening, self._opening = self._opening, None
        trips, self._trips, self._is_over = self._trips, None, False
        if trips == 0 and not _is_large(arguments):
            function(*arguments)
        else:
            await self._execute(self._run, opening, function, *arguments)  # type: ignore[no-untyped-call]
        self._trips = max(0, trips - 1) if trips is not None else None

    def _run(self, opening: str | None, function: Callable[..., None], *arguments: object) -> None:
        if opening is not None:
            self._conn.execute(opening)
        function(*arguments)

    async def commit(self) -> None:
        """End the transaction; what was only read needs no trip for that."""
        if self._trips is not None and self._is_reading:
            self._conn.commit()
        else:
            await super().commit()
        self._opening, self._trips, self._is_over = None, None, True

    async def rollback(self) -> None:
        """Undo what was begun; a pool asks for it whenever a connection comes back."""
        self._opening, self._trips = None, None
        if not self._is_over:
            await super().rollback()


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

    async def close(self) -> None:
        """A cursor without rows holds nothing."""


def _is_large(value: object) -> bool:
    """Whether a parameter is, or any within many rows' parameters."""
    if isinstance(value, str | bytes):
        return len(value) > LARGE
    return isinstance(value, Sequence) and (len(value) > _MANY or any(map(_is_large, value)))
