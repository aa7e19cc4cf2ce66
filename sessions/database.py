"""The database: one async engine, its transactions, and the schema's state.

A transaction (`tx`) is opened by `reading()` or `writing()` and lives for one store method; only
here is anything committed. On SQLite a writer takes the write lock at once (`BEGIN IMMEDIATE`), so
that it can't fail half-way for having read first; and this server's writers queue for it
(`write_queue`). A database in memory has one connection, for which readers queue, too.

Raises StoreUnavailableError for what the world does to a database, ForeignDatabaseError for one
that is not this program's.
"""

import asyncio
import threading  # noqa: TID251 (only to wait for the driver's threads)
import weakref
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager, nullcontext
from pathlib import Path
from typing import Any
from urllib.parse import quote

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, event, inspect, text
from sqlalchemy.engine import URL, make_url
from sqlalchemy.engine.interfaces import DBAPIConnection
from sqlalchemy.exc import DBAPIError, IntegrityError, NoSuchModuleError, SQLAlchemyError
from sqlalchemy.exc import TimeoutError as NoConnectionError
from sqlalchemy.ext.asyncio import AsyncSession, async_sessionmaker, create_async_engine
from sqlalchemy.pool import ConnectionPoolEntry

import migrations
from sessions import sqlite_driver
from sessions.errors import ForeignDatabaseError, StoreUnavailableError
from sessions.search_index import SearchKind, forget_deleted, prepare
from sessions.session_events import CHANGED
from sessions.signals import ChangeSignals
from sessions.write_queue import WriteQueue, is_locked_out

VERSION_TABLE = "splice_version"
# Any number, as long as no other program on the same PostgreSQL takes it: "spli" in ASCII.
MIGRATION_LOCK = 0x73706C69

MAX_SQLITE_CONNECTIONS = 15
MAX_LARGE_READS = 4
BUSY_TIMEOUT_MS = 5000
_CHECKPOINT_MS = 200
_THREAD_EXIT_S = 2.0


def _busy_timeout(milliseconds: int) -> str:
    return f"PRAGMA busy_timeout={milliseconds}"


SQLITE_PRAGMAS = (
    _busy_timeout(BUSY_TIMEOUT_MS),
    "PRAGMA journal_mode=WAL",
    "PRAGMA synchronous=FULL",
    "PRAGMA foreign_keys=ON",
    "PRAGMA temp_store=MEMORY",
    # What is deleted is written over: a purge means what it says.
    "PRAGMA secure_delete=ON",
)


class Database:
    """One database by its URL; a bare `sqlite:` URL is given the async driver.

    Without `is_indexed` the search scans what there is, as it does where FTS5 is missing. What
    `is_read_only` changes nothing, no file beside SQLite's included, and makes no database.
    """

    def __init__(self, url: str, *, is_indexed: bool = True, is_read_only: bool = False) -> None:
        self._is_indexed = is_indexed
        self.signals = ChangeSignals()
        self.search_kind = SearchKind.SCAN
        parsed = make_url(url)
        if parsed.drivername == "sqlite":
            parsed = parsed.set(drivername="sqlite+aiosqlite")
        elif parsed.drivername in ("postgresql", "postgres"):
            parsed = parsed.set(drivername="postgresql+psycopg")
        if is_read_only and parsed.get_backend_name() == "sqlite":
            parsed = _read_only(parsed)
        try:
            # Errors name the statement and never its values, which are what people wrote.
            self._engine = create_async_engine(parsed, hide_parameters=True, **_options_of(parsed))
        except (NoSuchModuleError, ImportError) as exc:
            raise StoreUnavailableError(f"no driver for {parsed.drivername}: {exc}") from exc
        if is_read_only:
            self._engine = self._engine.execution_options(read_only=True)
        self._threads: weakref.WeakSet[threading.Thread] = weakref.WeakSet()
        self.is_shared = parsed.get_backend_name() != "sqlite"
        """Whether other servers may write to it, too."""
        self._queue = None if self.is_shared else WriteQueue()
        self._large_reads = asyncio.Semaphore(MAX_LARGE_READS)
        if not self.is_shared:
            event.listen(self._engine.sync_engine, "connect", self._remember_thread)
            prepare_connection = _leave_alone if is_read_only else _prepare_sqlite_connection
            event.listen(self._engine.sync_engine, "connect", prepare_connection)
            event.listen(self._engine.sync_engine, "begin", _begin_sqlite)
        self._writers = self._brief_and_not(read_only=is_read_only)
        self._readers = self._brief_and_not(read_only=True)

    def _brief_and_not(self, *, read_only: bool) -> Mapping[bool, async_sessionmaker[AsyncSession]]:
        """What opens transactions, by whether they are brief. All have the same pool: the options
        only tell `_begin_sqlite`."""
        return {
            is_brief: async_sessionmaker(
                self._engine.execution_options(read_only=read_only, is_brief=is_brief),
                expire_on_commit=False,
            )
            for is_brief in (False, True)
        }

    def _turn(self, *, is_writing: bool) -> AbstractAsyncContextManager[None]:
        """What to wait for before a transaction."""
        must_wait = is_writing or _is_in_memory(self._engine.url)
        return self._queue.turn() if self._queue is not None and must_wait else nullcontext()

    async def migrate(self) -> None:
        """Bring the schema to head, and the search's index; a database already there is left as
        it is.

        Raises ForeignDatabaseError when there are tables that this program did not make, or when
        they were made by a newer version of it.
        """
        with _translated():
            async with self._engine.begin() as connection:
                await connection.run_sync(_upgrade)
                self.search_kind = await connection.run_sync(prepare, is_indexed=self._is_indexed)

    async def pending(self) -> tuple[str, ...]:
        """The revisions that `migrate` would apply, oldest first; changes nothing.

        Raises ForeignDatabaseError as `migrate` does.
        """
        with _translated():
            async with self._engine.connect() as connection:
                return await connection.run_sync(_pending)

    async def check(self) -> None:
        """Read something; raises StoreUnavailableError when it can't be read, or the file was
        taken away, which who has it open does not notice."""
        if self._queue is not None and not await asyncio.to_thread(_is_there, self._engine.url):
            raise StoreUnavailableError(f"the database's file is gone: {self._engine.url.database}")
        async with self.reading() as tx:
            await tx.execute(text(f"SELECT version_num FROM {VERSION_TABLE}"))

    async def close(self) -> None:
        """Let all connections go, and wait until their threads have."""
        await self._engine.dispose()
        # A connection given up in a cancelled call ends later than `dispose`; its thread reports
        # to the event loop, which may be closed by then.
        await asyncio.to_thread(_join, list(self._threads))

    def _remember_thread(self, connection: DBAPIConnection, _entry: ConnectionPoolEntry) -> None:
        # aiosqlite has a thread for each connection, and no public name for it.
        driver = getattr(connection, "driver_connection", None)
        thread = getattr(driver, "_thread", None)
        if isinstance(thread, threading.Thread):
            self._threads.add(thread)

    async def forget_deleted(self) -> None:
        """Leave nothing of what was deleted in the search's index and the write-ahead log.

        On SQLite; PostgreSQL's vacuum and log are its operator's. While somebody reads the log goes
        later: emptying it keeps writers away for as long as it waits.
        """
        if self._queue is None:
            return
        with _translated():
            if self.search_kind is SearchKind.FTS5:
                async with self._queue.turn(), self._engine.begin() as connection:
                    await connection.run_sync(forget_deleted)
            async with self._queue.turn(), self._engine.connect() as connection:
                await connection.execution_options(is_bare=True)
                await connection.exec_driver_sql(_busy_timeout(_CHECKPOINT_MS))
                try:
                    await connection.exec_driver_sql("PRAGMA wal_checkpoint(TRUNCATE)")
                finally:
                    if not connection.invalidated:  # as it is when the call was cancelled
                        await connection.exec_driver_sql(_busy_timeout(BUSY_TIMEOUT_MS))

    @asynccontextmanager
    async def reading(
        self, *, is_brief: bool = False, is_large: bool = False
    ) -> AsyncIterator[AsyncSession]:
        """A transaction that only reads; it never waits for a writer on SQLite.

        One that `is_brief` asks for a few rows by their keys: on SQLite it may hold the event loop
        for a millisecond rather than wait for a thread at each step. One that `is_large` reads
        whatever a conversation has, and waits for others such: they don't get all connections.
        """
        with _translated():
            async with (
                self._large_reads if is_large else nullcontext(),
                self._turn(is_writing=False),
                self._readers[is_brief]() as tx,
                tx.begin(),
            ):
                yield tx

    @asynccontextmanager
    async def writing(self, *, is_brief: bool = False) -> AsyncIterator[AsyncSession]:
        """A transaction, durable when the block is left without an exception; `is_brief` as in
        `reading`, the waits for the lock and the disk excepted.

        An IntegrityError is let through: only the caller knows what a broken constraint means.
        """
        with _translated():
            async with self._turn(is_writing=True), self._writers[is_brief]() as tx, tx.begin():
                yield tx
        self.signals.fire(tx.info.get(CHANGED, ()))


def _options_of(url: URL) -> dict[str, Any]:
    """How connections are made, and how many there may be, where that is ours to say.

    Each of SQLite's has a thread, and the event loop stands still until a new one has begun: so
    none is closed for being one too many and begun again at the next request.
    """
    if url.get_backend_name() != "sqlite":
        return {}
    options: dict[str, Any] = {"connect_args": {"async_creator_fn": sqlite_driver.connect}}
    if not _is_in_memory(url):
        options.update(pool_size=MAX_SQLITE_CONNECTIONS, max_overflow=0)
    return options


def _is_in_memory(url: URL) -> bool:
    return url.database in (None, "", ":memory:")


def _is_there(url: URL) -> bool:
    return _is_in_memory(url) or Path(url.database or "").exists()


def _join(threads: list[threading.Thread]) -> None:
    for thread in threads:
        thread.join(_THREAD_EXIT_S)


@contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except IntegrityError:
        raise
    except DBAPIError as exc:
        if "file is not a database" in str(exc.orig):
            raise ForeignDatabaseError("the file is not a database") from exc
        if is_locked_out(exc):
            raise StoreUnavailableError("another program keeps the database locked") from exc
        # What PostgreSQL says behind the first line is for its operator, who has its log.
        reason = (str(exc.orig).splitlines() or [type(exc.orig).__name__])[0]
        raise StoreUnavailableError(f"the database failed: {reason}") from exc
    except NoConnectionError as exc:
        raise StoreUnavailableError("all of the database's connections are in use") from exc
    except (SQLAlchemyError, OSError) as exc:
        raise StoreUnavailableError(f"the database can't be used: {exc}") from exc


def _prepare_sqlite_connection(connection: DBAPIConnection, _entry: ConnectionPoolEntry) -> None:
    # The driver would begin transactions lazily and deferred; `_begin_sqlite` does it instead.
    connection.isolation_level = None
    cursor = connection.cursor()
    for pragma in SQLITE_PRAGMAS:
        cursor.execute(pragma)
    cursor.close()


def _leave_alone(connection: DBAPIConnection, _entry: ConnectionPoolEntry) -> None:
    connection.isolation_level = None


def _read_only(url: URL) -> URL:
    """The same file, opened so that it can't be written. One that no server has open is opened as
    immutable, or else reading it would leave the files of a write-ahead log beside it."""
    path = Path(url.database or "").absolute()
    is_in_use = path.with_name(path.name + "-wal").exists()
    query = {"mode": "ro", "uri": "true", **({} if is_in_use else {"immutable": "1"})}
    return url.set(database=f"file:{quote(str(path))}", query=query)


def _begin_sqlite(connection: Connection) -> None:
    options = connection.get_execution_options()
    driver = connection.connection.driver_connection
    assert isinstance(driver, sqlite_driver.Connection), "as `_options_of` has it"
    if options.get("is_bare", False):
        driver.begin_nothing()  # what is asked then can't be asked within a transaction
        return
    driver.begin(
        is_reading=options.get("read_only", False), is_brief=options.get("is_brief", False)
    )


def alembic_config(connection: Connection) -> Config:
    """Alembic's configuration for the migrations that come with the program."""
    config = Config()
    folder = Path(migrations.__file__).parent
    config.set_main_option("script_location", str(folder).replace("%", "%%"))
    config.attributes["connection"] = connection
    return config


def _upgrade(connection: Connection) -> None:
    if connection.dialect.name == "postgresql":
        connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({MIGRATION_LOCK})")
    config = alembic_config(connection)
    _refuse_foreign(connection, ScriptDirectory.from_config(config))
    command.upgrade(config, "head")


def _pending(connection: Connection) -> tuple[str, ...]:
    scripts = ScriptDirectory.from_config(alembic_config(connection))
    _refuse_foreign(connection, scripts)
    context = MigrationContext.configure(connection, opts={"version_table": VERSION_TABLE})
    ahead = scripts.iterate_revisions("heads", context.get_current_heads() or "base")
    return tuple(script.revision for script in ahead)[::-1]


def _refuse_foreign(connection: Connection, scripts: ScriptDirectory) -> None:
    tables = set(inspect(connection).get_table_names())
    if not tables:
        return
    if VERSION_TABLE not in tables:
        raise ForeignDatabaseError(
            f"the database has {len(tables)} tables that are not this program's "
            f"({', '.join(sorted(tables)[:3])}, …); give it one of its own"
        )
    context = MigrationContext.configure(connection, opts={"version_table": VERSION_TABLE})
    known = {script.revision for script in scripts.walk_revisions()}
    unknown = set(context.get_current_heads()) - known
    if unknown:
        raise ForeignDatabaseError(
            f"the database is at revision {', '.join(sorted(unknown))}, which this version does "
            "not know; it was written by a newer one"
        )
