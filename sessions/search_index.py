"""The index behind the search: FTS5 on SQLite, a GIN index on PostgreSQL, or none.

It is made from `search_entries` and can be made again at any time, so it is no part of the schema's
history: `prepare` looks what this database has and what this program can do, whenever it starts.

Invariant: on SQLite the triggers are there exactly as long as the index is whole. A program that
was built without FTS5 takes them away, and the next one that has it makes the index anew.
"""

from enum import StrEnum

from sqlalchemy import Connection, text

TABLE = "search_index"
DICTIONARY = "simple"  # of PostgreSQL's: words as they are, of any language

_FTS5 = (
    f"CREATE VIRTUAL TABLE IF NOT EXISTS {TABLE} USING fts5(text, content='search_entries',"
    " content_rowid='id', tokenize='unicode61 remove_diacritics 2', prefix='2 3')"
)
# Entries are inserted and deleted, never changed.
_TRIGGERS = {
    "search_entries_added": (
        "CREATE TRIGGER search_entries_added AFTER INSERT ON search_entries BEGIN"
        f" INSERT INTO {TABLE}(rowid, text) VALUES (new.id, new.text); END"
    ),
    "search_entries_deleted": (
        "CREATE TRIGGER search_entries_deleted AFTER DELETE ON search_entries BEGIN"
        f" INSERT INTO {TABLE}({TABLE}, rowid, text) VALUES ('delete', old.id, old.text); END"
    ),
}
# Words that were deleted are written over. Older versions of SQLite leave them until two parts of
# the index are merged; there `forget_deleted` merges all of it, which takes a while if it is large.
_OVERWRITE = f"INSERT INTO {TABLE}({TABLE}, rank) VALUES ('secure-delete', 1)"
_OVERWRITES_FROM = (3, 42, 0)
# A tsvector has at most a megabyte, and a text that makes a longer one could not be stored.
MAX_TSVECTOR_CHARS = 100_000
_GIN = (
    f"CREATE INDEX IF NOT EXISTS {TABLE} ON search_entries"
    f" USING gin (to_tsvector('{DICTIONARY}', left(text, {MAX_TSVECTOR_CHARS})))"
)


class SearchKind(StrEnum):
    """How words are found."""

    FTS5 = "fts5"
    TSVECTOR = "tsvector"
    SCAN = "scan"


def prepare(connection: Connection, *, is_indexed: bool) -> SearchKind:
    """Make the index if it is missing or behind; how to search this database."""
    if connection.dialect.name == "postgresql":
        if is_indexed:
            connection.exec_driver_sql(_GIN)
        return SearchKind.TSVECTOR
    found = connection.execute(text("SELECT name FROM sqlite_master WHERE type = 'trigger'"))
    present = set(found.scalars()) & set(_TRIGGERS)
    if not is_indexed or not _has_fts5(connection):
        for name in present:
            connection.exec_driver_sql(f"DROP TRIGGER {name}")
        return SearchKind.SCAN
    if present != set(_TRIGGERS):
        for name in present:
            connection.exec_driver_sql(f"DROP TRIGGER {name}")
        connection.exec_driver_sql(_FTS5)
        connection.exec_driver_sql(f"INSERT INTO {TABLE}({TABLE}) VALUES ('rebuild')")
        for statement in _TRIGGERS.values():
            connection.exec_driver_sql(statement)
    if _version(connection) >= _OVERWRITES_FROM:
        connection.exec_driver_sql(_OVERWRITE)
    return SearchKind.FTS5


def forget_deleted(connection: Connection) -> None:
    """Leave no word of a deleted text in the index on SQLite."""
    if _version(connection) < _OVERWRITES_FROM:
        connection.exec_driver_sql(f"INSERT INTO {TABLE}({TABLE}) VALUES ('optimize')")


def _version(connection: Connection) -> tuple[int, ...]:
    version = connection.execute(text("SELECT sqlite_version()")).scalar_one()
    return tuple(map(int, version.split(".")))


def _has_fts5(connection: Connection) -> bool:
    query = text("SELECT 1 FROM pragma_module_list WHERE name = 'fts5'")
    return connection.execute(query).first() is not None
