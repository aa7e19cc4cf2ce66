"""`splice doctor`: each thing that can be in the way, provoked; and that nothing is changed."""

import asyncio
import os
import socket
import sqlite3
from pathlib import Path
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

from app.cli import app
from app.data_dir import open_data_dir
from app.doctor import data_check
from app.doctor.front_check import check_page, check_port
from app.settings import load_settings
from tests.support.examined import doctor, has, whole_folder
from tests.support.front_end import serving
from tests.support.postgres import DATABASES, SQLITE


def upgraded():
    assert CliRunner().invoke(app, ["db", "upgrade"]).exit_code == 0
    return Path("data/splice.db")


# ---- all of it


def test_a_machine_without_anything_is_fit_and_stays_as_it_is():
    code, found = doctor()

    assert code == 0
    assert has(found, "model", "warn", "splice models fetch")
    assert has(found, "database", "ok", "the first start makes it")
    assert has(found, "disk", "ok", "(the first start makes it)")
    assert list(Path().iterdir()) == []


def test_a_good_set_up_has_nothing_in_the_way_and_stays_as_it_is(tiny):
    upgraded()
    before = whole_folder()

    code, found = doctor("--model", str(tiny))

    assert (code, [f for f in found if f[1] == "fail"]) == (0, [])
    assert {area for area, _, _ in found} == {
        *("settings", "page", "port", "disk", "tiers", "database", "model", "device")
    }
    assert whole_folder() == before


def test_for_people_it_is_a_list_with_what_to_do(tiny):
    args = ["doctor", "--port", "0", "--model", str(tiny), "--host", "0.0.0.0"]
    result = CliRunner().invoke(app, args)

    assert result.exit_code == 1
    assert "✗  settings" in result.stdout
    assert "→ `splice keys create --owner NAME`" in result.stdout
    assert result.stdout.rstrip().endswith("1 in the way")


# ---- settings


@pytest.mark.parametrize(
    ("args", "environ", "words"),
    [
        ((), {"SPLICE_PROT": "1"}, "SPLICE_PORT?"),
        (("--num-blocks", "9", "--cache-bytes", "1GiB"), {}, "leave one out"),
        (("--config", "nowhere.toml"), {}, "nowhere.toml"),
        (("--host", "0.0.0.0"), {}, "there is no API key"),
        (("--tls-cert", "no.pem", "--tls-key", "no.pem"), {}, "can't be used"),
        (("--public-instructions", "no.txt"), {}, "no.txt"),
        (("--database-url", "mysql://me:secret@h/n"), {}, "only SQLite and PostgreSQL are"),
        (("--tls-cert", "no.pem", "--tls-key", "no.pem"), {}, "no.pem"),
        (("--cache-bytes", "1024TiB", "--device", "cpu"), {}, "memory in all"),
        ((), {"OTEL_TRACES_EXPORTER": "zipkin"}, "no exporter 'zipkin'"),
    ],
)
def test_settings_that_cannot_be_used_are_failures(args, environ, words):
    code, found = doctor(*args, **environ)

    assert code == 1
    assert has(found, "settings", "fail", words)
    assert "secret" not in str(found)


def test_an_open_server_is_fit_once_there_is_a_key_and_worth_a_look_where_it_was_allowed():
    upgraded()
    _, allowed = doctor("--host", "0.0.0.0", "--allow-remote")
    CliRunner().invoke(app, ["keys", "create", "--owner", "ann"])
    code, closed = doctor("--host", "0.0.0.0")

    assert has(allowed, "settings", "warn", "may read and delete everything")
    assert code == 0
    assert has(closed, "database", "ok", "there are API keys")


# ---- page and port


def test_a_page_that_is_not_built_is_worth_a_look(tmp_path):
    assert check_page(tmp_path)[0].level == "warn"
    (tmp_path / "index.html").touch()
    assert check_page(tmp_path)[0].level == "ok"


def test_a_port_that_another_program_has_is_a_failure():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        taken.settimeout(0)
        code, found = doctor("--port", str(taken.getsockname()[1]))

    assert code == 1
    assert has(found, "port", "fail", "another program")


async def test_a_port_that_splice_has_is_a_failure_with_its_state():
    async with serving() as front:
        settings = load_settings({"port": str(front.port)}, environ={})
        (found,) = await asyncio.to_thread(check_port, settings)

    assert (found.level, "is ready" in found.text) == ("fail", True)


def test_an_address_that_is_not_this_machines_is_a_failure():
    code, found = doctor("--port", "8765", "--host", "198.51.100.1", "--allow-remote")

    assert code == 1
    assert has(found, "port", "fail", "can't listen on 198.51.100.1")


def test_a_free_port_is_free_and_stays_so():
    with socket.create_server(("127.0.0.1", 0)) as found_free:
        port = found_free.getsockname()[1]
    settings = load_settings({"port": str(port)}, environ={})

    assert [check_port(settings)[0].level for _ in range(2)] == ["ok", "ok"]


# ---- disk


def test_a_data_folder_that_another_server_has_is_a_failure():
    with open_data_dir(Path("data")):
        before = whole_folder()
        code, found = doctor()

        assert whole_folder() == before
    assert code == 1
    assert has(found, "disk", "fail", f"another server (process {os.getpid()}) uses")


def test_a_data_folder_that_is_a_file_is_a_failure():
    Path("data").write_text("")

    code, found = doctor()

    assert code == 1
    assert has(found, "disk", "fail", "is a file")


def test_a_folder_that_cannot_be_written_is_a_failure(monkeypatch):
    monkeypatch.setattr(data_check.os, "access", lambda path, mode: False)

    _, found = doctor()

    assert has(found, "disk", "fail", "can't be written")


@pytest.mark.parametrize(("free", "level"), [(1 << 20, "fail"), (1 << 30, "warn")])
def test_a_disk_that_is_nearly_full_is_told(monkeypatch, free, level):
    usage = SimpleNamespace(total=1 << 40, used=0, free=free)
    monkeypatch.setattr(data_check.shutil, "disk_usage", lambda path: usage)

    _, found = doctor()

    assert has(found, "disk", level, "free some")


@pytest.mark.parametrize(("kind", "level"), [("nfs4", "fail"), ("tmpfs", "warn")])
def test_a_filesystem_that_does_not_keep_its_word_is_told(monkeypatch, kind, level):
    part = SimpleNamespace(mountpoint="/", fstype=kind)
    here = SimpleNamespace(mountpoint=str(Path.cwd().resolve()), fstype=kind)
    monkeypatch.setattr(data_check.psutil, "disk_partitions", lambda all: [part, here])

    _, found = doctor()

    assert has(found, "disk", level, kind)


# ---- database


def test_a_database_that_is_behind_is_worth_a_look_and_stays_behind():
    Path("data").mkdir()
    with sqlite3.connect("data/splice.db"):
        pass
    code, found = doctor()

    assert code == 0
    assert has(found, "database", "warn", "splice db upgrade")
    assert Path("data/splice.db").stat().st_size == 0


@pytest.fixture(params=DATABASES)
def url(request, tmp_path):
    if request.param == SQLITE:
        (tmp_path / "own.db").touch()
        return f"sqlite:///{tmp_path / 'own.db'}"
    return request.getfixturevalue("postgres_server").new_url()


def test_a_database_elsewhere_is_looked_at_as_it_is(url):
    _, empty = doctor("--database-url", url)
    _, still_empty = doctor("--database-url", url)
    assert CliRunner().invoke(app, ["db", "upgrade", "--database-url", url]).exit_code == 0
    _, current = doctor("--database-url", url)

    assert has(empty, "database", "warn", "it lacks 0001")
    # Free memory is another one from one moment to the next.
    assert [f for f in still_empty if f[0] == "database"] == [
        f for f in empty if f[0] == "database"
    ]
    assert has(current, "database", "ok", "this version's schema")


def test_a_database_of_a_newer_version_is_a_failure():
    database = sqlite3.connect(upgraded())
    with database:
        database.execute("UPDATE splice_version SET version_num = '9999_future'")
    database.close()

    code, found = doctor()

    assert code == 1
    assert has(found, "database", "fail", "9999_future")


def test_a_database_of_another_program_is_a_failure():
    Path("data").mkdir()
    database = sqlite3.connect("data/splice.db")
    with database:
        database.execute("CREATE TABLE notes (id)")
    database.close()

    code, found = doctor()

    assert code == 1
    assert has(found, "database", "fail", "not this program's")


def test_a_file_that_is_no_database_is_a_failure():
    Path("data").mkdir()
    Path("data/splice.db").write_bytes(b"something else entirely" * 200)

    assert has(doctor()[1], "database", "fail", "data/splice.db is not a database")


@pytest.mark.parametrize(
    "url",
    ["postgresql://me:secret@127.0.0.1:9/none", "sqlite:////nowhere/at/all.db"],
)
def test_a_database_that_cannot_be_reached_is_a_failure(url):
    code, found = doctor("--database-url", url)

    assert code == 1
    assert any(f[:2] == ("database", "fail") for f in found)
    assert "secret" not in str(found)


def test_a_database_that_a_server_has_open_can_be_looked_at():
    database = sqlite3.connect(upgraded())
    with database:
        database.execute("CREATE TABLE more (id)")  # is in the write-ahead log now
        before = sorted(path.name for path in Path("data").iterdir())

        _, found = doctor()

        assert has(found, "database", "ok", "this version's schema")
        assert sorted(path.name for path in Path("data").iterdir()) == before
    database.close()
