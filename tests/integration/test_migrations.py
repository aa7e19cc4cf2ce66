"""Migrations: up, down, up again, and nothing that the tables say and the head does not."""

import sqlite3

import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import create_engine, event, inspect, text
from sqlalchemy.exc import IntegrityError

from sessions.database import VERSION_TABLE, Database, alembic_config
from sessions.errors import ForeignDatabaseError, StoreUnavailableError
from sessions.tables import Row
from tests.support.postgres import DATABASES, SQLITE


@pytest.fixture
def sqlite(tmp_path):
    engine = create_engine(f"sqlite:///{tmp_path / 'plain.db'}")
    event.listen(engine, "connect", lambda raw, _: raw.execute("PRAGMA foreign_keys=ON"))
    with engine.connect() as connection:
        yield connection
    engine.dispose()


@pytest.fixture(params=DATABASES)
def connection(request):
    if request.param == SQLITE:
        yield request.getfixturevalue("sqlite")
        return
    url = request.getfixturevalue("postgres_server").new_url()
    engine = create_engine(url.replace("postgresql:", "postgresql+psycopg:"))
    with engine.connect() as connection:
        yield connection
    engine.dispose()


@pytest.fixture
def url(tmp_path):
    return f"sqlite:///{tmp_path / 'splice.db'}"


async def migrate(url: str) -> None:
    database = Database(url)
    try:
        await database.migrate()
    finally:
        await database.close()


def test_every_revision_goes_up_down_and_up_again(connection):
    config = alembic_config(connection)
    revisions = [s.revision for s in ScriptDirectory.from_config(config).walk_revisions()][::-1]

    for revision in revisions:
        command.upgrade(config, revision)
        command.downgrade(config, "-1")
        command.upgrade(config, revision)

    assert set(inspect(connection).get_table_names()) == {*Row.metadata.tables, VERSION_TABLE}
    command.downgrade(config, "base")
    assert inspect(connection).get_table_names() == [VERSION_TABLE]


def test_the_head_is_what_the_tables_say(connection):
    command.upgrade(alembic_config(connection), "head")
    context = MigrationContext.configure(
        connection, opts={"version_table": VERSION_TABLE, "compare_type": True}
    )

    assert compare_metadata(context, Row.metadata) == []


def test_there_is_one_head(connection):
    assert len(ScriptDirectory.from_config(alembic_config(connection)).get_heads()) == 1


def test_the_checks_are_those_that_the_tables_say(sqlite):  # PostgreSQL tells them in its own words
    command.upgrade(alembic_config(sqlite), "head")

    for table in Row.metadata.tables.values():
        made = {c["name"]: c["sqltext"] for c in inspect(sqlite).get_check_constraints(table.name)}
        said = {c.name: str(c.sqltext) for c in table.constraints if hasattr(c, "sqltext")}
        assert made == said


def test_a_branch_has_one_active_response(connection):
    command.upgrade(alembic_config(connection), "head")
    now = "2026-03-01 12:00:00"
    connection.execute(text(f"INSERT INTO owners (id, created_at) VALUES ('a', '{now}')"))
    connection.execute(
        text(
            "INSERT INTO sessions (id, owner_id, model, fingerprint, revision, labels, settings,"
            f" clock_at, created_at, updated_at) VALUES ('s', 'a', 'm', 'f', 1, '{{}}', '{{}}',"
            f" '{now}', '{now}', '{now}')"
        )
    )
    insert = text(
        "INSERT INTO responses (id, session_id, branch_id, status, model, request, labels,"
        " input_response_id, reply_node_id, delta_lengths, runner_id, lease_until, epoch,"
        f" created_at) VALUES (:id, 's', 'b', :status, 'm', '{{}}', '{{}}', :id, :id, '[]', 'r',"
        f" '{now}', 1, '{now}')"
    )
    connection.execute(insert, {"id": "1", "status": "completed"})
    connection.execute(insert, {"id": "2", "status": "running"})

    with pytest.raises(IntegrityError, match="branch_id"), connection.begin_nested():
        connection.execute(insert, {"id": "3", "status": "pending"})
    with pytest.raises(IntegrityError, match="ck_responses_status"), connection.begin_nested():
        connection.execute(insert, {"id": "4", "status": "asleep"})


async def test_migrating_twice_changes_nothing(url, tmp_path):
    await migrate(url)
    before = _schema(tmp_path / "splice.db")

    await migrate(url)

    assert _schema(tmp_path / "splice.db") == before


async def test_another_programs_database_is_refused_and_left_alone(url, tmp_path):
    with sqlite3.connect(tmp_path / "splice.db") as other:
        other.execute("CREATE TABLE recipes (id INTEGER)")
    other.close()

    with pytest.raises(ForeignDatabaseError, match="recipes"):
        await migrate(url)

    assert len(_schema(tmp_path / "splice.db")) == 1


async def test_a_newer_versions_database_is_refused(url, tmp_path):
    await migrate(url)
    with sqlite3.connect(tmp_path / "splice.db") as newer:
        newer.execute(f"UPDATE {VERSION_TABLE} SET version_num = '9999'")
    newer.close()

    with pytest.raises(ForeignDatabaseError, match=r"9999.*newer"):
        await migrate(url)


async def test_a_file_that_is_no_database_is_refused(url, tmp_path):
    (tmp_path / "splice.db").write_bytes(b"some letter to a friend" * 100)

    with pytest.raises(ForeignDatabaseError, match="not a database"):
        await migrate(url)


async def test_a_folder_that_is_not_there_is_a_store_that_is_not_there(tmp_path):
    with pytest.raises(StoreUnavailableError):
        await migrate(f"sqlite:///{tmp_path / 'nowhere' / 'splice.db'}")


def _schema(path) -> list:
    with sqlite3.connect(path) as plain:
        rows = plain.execute("SELECT name, sql FROM sqlite_master").fetchall()
    plain.close()
    return rows
