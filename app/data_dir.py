"""The data folder: one server at a time, and the name by which it knows what it left behind.

Two servers in one folder would take each other's running turns for abandoned ones and each
other's cache files for their own, so the second is refused.
"""

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout


class DataDirError(Exception):
    """The folder can't be used; the message says why and what to do."""


@contextmanager
def open_data_dir(folder: Path) -> Iterator[str]:
    """Make the folder if it is missing and hold it; gives the runner id, the same at every start.

    Raises DataDirError when it can't be written or another server holds it.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = FileLock(folder / ".lock")
        lock.acquire(timeout=0)
    except Timeout as exc:
        raise DataDirError(
            f"another server uses the data folder {folder}: end it, or choose another folder "
            "with --data-dir"
        ) from exc
    except OSError as exc:
        raise DataDirError(f"the data folder {folder} can't be written: {exc.strerror}") from exc
    try:
        yield _runner_id(folder / "runner-id")
    finally:
        lock.release()


def _runner_id(path: Path) -> str:
    try:
        if path.exists() and (known := path.read_text(encoding="ascii").strip()):
            return known
        fresh = secrets.token_hex(8)
        part = path.with_name(f"{path.name}.part-{os.getpid()}")
        part.write_text(fresh + "\n", encoding="ascii")
        part.replace(path)
    except (OSError, UnicodeDecodeError) as exc:
        raise DataDirError(f"{path} can't be read or written: {exc}") from exc
    return fresh
