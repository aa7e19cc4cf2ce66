"""Where the database is, in words, and whether one can be there, before anything opens it.

SQLite says of whatever it can't open that it is "unable to open database file"; here the file is
named, and what to do.
"""

import os
from pathlib import Path

from app.database_url import file_of, without_password
from app.refusals import RefusalError
from app.settings import Settings

_SQLITE = b"SQLite format 3\0"
_REMEDY = "name another with --data-dir or --database-url"


def place_of(settings: Settings) -> str:
    """The file, absolute, or the URL without its password."""
    url = settings.effective_database_url
    return str(file_of(url) or without_password(url))


def is_there(settings: Settings) -> bool:
    """Whether there may be one: SQLite's file exists, or only another server knows."""
    path = file_of(settings.effective_database_url)
    return path is None or path.exists()


def check_there(settings: Settings) -> None:
    """Raise RefusalError where SQLite would make a new one, or couldn't use what is there."""
    if not is_there(settings):
        raise RefusalError(
            f"there is no database at {place_of(settings)}: name the server's with --data-dir or "
            "--database-url"
        )
    check_place(settings)


def check_place(settings: Settings) -> None:
    """Raise RefusalError where SQLite can't have its file.

    Nothing is said of a data folder that a start would make first: `open_data_dir` does.
    """
    path = file_of(settings.effective_database_url)
    if path is None or (settings.database_url is None and not path.exists()):
        return
    if not path.parent.is_dir():
        raise RefusalError(
            f"the database {path} can't be opened: there is no folder {path.parent}; make it, or "
            f"{_REMEDY}"
        )
    if not os.access(path.parent, os.W_OK | os.X_OK):  # SQLite keeps its log beside the file
        raise RefusalError(
            f"the database {path} can't be opened: the folder {path.parent} can't be written; "
            f"change its owner or mode, or {_REMEDY}"
        )
    if path.exists():
        _check_file(path)


def _check_file(path: Path) -> None:
    try:
        with path.open("r+b") as file:
            start = file.read(len(_SQLITE))
    except OSError as exc:
        raise RefusalError(
            f"the database {path} can't be opened: {exc.strerror}; change its owner or mode, or "
            f"{_REMEDY}"
        ) from exc
    if start and start != _SQLITE:
        raise RefusalError(f"{path} is not a database: move it away, or {_REMEDY}")
