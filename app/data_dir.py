"""The data folder: one server at a time, and the name by which it knows what it left behind.

Whoever has the folder writes into `holder` who it is and, once it listens, its address, so that the
second one can say whom it met. Only the lock decides; the file may be left over from a kill.

Two servers in one folder would take each other's running turns for abandoned ones and each
other's cache files for their own, so the second is refused.
"""

import fcntl
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import FileLock, Timeout

_LOCK = ".lock"
_HOLDER = "holder"

# Who asks for the holder (`splice doctor`) has the lock for an instant; no start is refused for it.
_PATIENCE_S = 0.5


class DataDirError(Exception):
    """The folder can't be used; the message says why and what to do."""


@contextmanager
def open_data_dir(folder: Path) -> Iterator[str]:
    """Make the folder if it is missing and hold it; gives the runner id, the same at every start.

    Raises DataDirError when it can't be written or another server holds it.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = FileLock(folder / _LOCK)
        lock.acquire(timeout=_PATIENCE_S)
    except Timeout as exc:
        raise DataDirError(
            f"another server{_named(folder)} uses the data folder {folder.absolute()}: end it, or "
            "choose another folder with --data-dir"
        ) from exc
    except OSError as exc:
        raise DataDirError(f"the data folder {folder} can't be written: {exc.strerror}") from exc
    try:
        announce(folder)
        yield _runner_id(folder / "runner-id")
    finally:
        with suppress(OSError):
            (folder / _HOLDER).unlink(missing_ok=True)
        lock.release()


def announce(folder: Path, url: str = "") -> None:
    """Leave word of who has the folder, and of its address; to be called by who has it."""
    with suppress(OSError):  # what it is for is worth no failed start
        (folder / _HOLDER).write_text(f"{os.getpid()}\n{url}\n", encoding="utf-8")


def holder_of(folder: Path) -> str | None:
    """Who has the folder now, in words; None if nobody has. Makes and keeps nothing."""
    try:
        fd = os.open(folder / _LOCK, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return f"another server{_named(folder)}"
    finally:
        os.close(fd)
    return None


def _named(folder: Path) -> str:
    try:
        pid, url, *_ = [*(folder / _HOLDER).read_text(encoding="utf-8").splitlines(), "", ""]
    except (OSError, UnicodeDecodeError):
        return ""
    if not pid.isdecimal():
        return ""
    return f" (process {pid}, {url})" if url else f" (process {pid})"


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
