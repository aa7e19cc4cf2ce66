"""A folder that one process at a time uses, one for each identity.

    <root>/<digest of the identity>/lock, *.kv, holds

The lock file has the identity written in it, and its time of change is the folder's last use.

Invariants:
    whoever changes or removes what is in a folder has its lock
    nobody but the server's user gets in: folders are 0700, files 0600
"""

import errno
import fcntl
import os
import shutil
from collections.abc import Generator, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from model.tiers.base import Identity, TierFullError, TierUnavailableError
from model.tiers.records import identity_digest, identity_text, parse_identity

LOCK_NAME = "lock"
# EFBIG: the file may not become larger, by the file system's or the process's limit.
FULL_ERRORS = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_PLACES_TO_TRY = 8


@contextmanager
def medium_errors(path: Path) -> Iterator[None]:
    """Turn what the system refuses into a TierError."""
    try:
        yield
    except OSError as exc:
        kind = TierFullError if exc.errno in FULL_ERRORS else TierUnavailableError
        raise kind(f"{path}: {exc.strerror or exc}") from exc


def identity_folder(root: Path, identity: Identity) -> Path:
    """Where the identity's files are."""
    return root / identity_digest(identity)[:32]


class LockedFolder:
    """An open folder with its lock held. Files are named below it, whatever becomes of its path."""

    def __init__(self, root: Path, identity: Identity) -> None:
        """Make the folder if need be. Raises TierUnavailableError, also if somebody uses it."""
        self.path = path = identity_folder(root, identity)
        with medium_errors(path):
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._lock = _take(path)
            try:
                self._folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
                os.fchmod(self._folder, 0o700)
                _note_identity(self._lock, identity)
            except OSError:
                os.close(self._lock)
                raise

    def open_file(self, name: str, flags: int) -> int:
        """A descriptor, the caller's to close."""
        return os.open(name, flags | os.O_CLOEXEC, 0o600, dir_fd=self._folder)

    @contextmanager
    def file(self, name: str, flags: int) -> Iterator[int]:
        """The file's descriptor for as long as it is needed."""
        fd = self.open_file(name, flags)
        try:
            yield fd
        finally:
            os.close(fd)

    def names(self) -> list[str]:
        """The files in it, sorted."""
        with os.scandir(self._folder) as entries:
            return sorted(entry.name for entry in entries)

    def unlink(self, name: str) -> None:
        """Remove a file, if it is there."""
        with suppress(FileNotFoundError):
            os.unlink(name, dir_fd=self._folder)

    def sync(self) -> None:
        """Put the names of its files on the disk."""
        os.fsync(self._folder)

    def close(self) -> None:
        """Note the time of use, and let go."""
        with suppress(OSError):
            os.utime(self._lock)
        os.close(self._folder)
        os.close(self._lock)


def sync_folder(path: Path) -> None:
    """Put the names of the folder's files on the disk."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _take(path: Path) -> int:
    """The folder's lock, on the file that is in it: a collector may be removing the folder."""
    for _ in range(_PLACES_TO_TRY):
        path.mkdir(mode=0o700, exist_ok=True)
        with suppress(FileNotFoundError):
            fd = os.open(path / LOCK_NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                _flock(fd, path)
                if os.path.samestat(os.fstat(fd), (path / LOCK_NAME).stat()):
                    os.utime(fd)
                    return fd
            except BaseException:
                os.close(fd)
                raise
            os.close(fd)
    raise TierUnavailableError(f"{path}: it is being removed")


def _flock(fd: int, path: Path) -> None:
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as exc:
        raise TierUnavailableError(f"{path}: another process uses this folder") from exc


def _note_identity(lock: int, identity: Identity) -> None:
    text = identity_text(identity)
    # A full disk: the folder can be used without, and the note is made another time.
    with suppress(OSError):
        if os.pread(lock, len(text) + 1, 0) != text:
            os.pwrite(lock, text, 0)
            os.ftruncate(lock, len(text))


def foreign_identities(root: Path, identity: Identity) -> list[Identity]:
    """Whose folders there are beside the identity's own, the least recently used first, so that
    their holds can be purged too. Raises TierUnavailableError."""
    found = []
    with medium_errors(root):
        for folder in _foreign(root, identity):
            with suppress(FileNotFoundError):
                noted = parse_identity((folder.path / LOCK_NAME).read_bytes())
                if noted is not None and identity_folder(root, noted) == folder.path:
                    found.append(noted)
    return found


@dataclass(frozen=True, slots=True)
class _Foreign:
    path: Path
    used_at: float
    num_bytes: int


def collect_foreign(
    root: Path, identity: Identity, *, quota_bytes: int, max_age_s: float, now: float
) -> Iterator[Path | None]:
    """Remove other identities' folders that nobody uses, a file a step; yielded is each that is
    gone, and None at the other steps.

    The least recently used goes first, as long as all folders together are over the quota; one that
    wasn't used for `max_age_s` goes in any case. `now` is wall-clock seconds. Raises
    TierUnavailableError.
    """
    with medium_errors(root):
        total = folder_bytes(root)
        for folder in _foreign(root, identity):
            is_old = now - folder.used_at > max_age_s
            if (is_old or total > quota_bytes) and (yield from _removing(folder.path)):
                total -= folder.num_bytes
                yield folder.path


def folder_bytes(path: Path) -> int:
    """The size of all files below the folder; 0 for one that isn't there."""
    sizes = 0
    for file in path.rglob("*"):
        with suppress(FileNotFoundError):
            sizes += file.stat().st_size if file.is_file() else 0
    return sizes


def _foreign(root: Path, identity: Identity) -> list[_Foreign]:
    own = identity_folder(root, identity)
    found = []
    for lock in root.glob(f"*/{LOCK_NAME}"):
        if lock.parent != own:
            with suppress(FileNotFoundError):
                used_at = lock.stat().st_mtime
                found.append(_Foreign(lock.parent, used_at, folder_bytes(lock.parent)))
    return sorted(found, key=lambda f: (f.used_at, f.path))


def remove_folder(path: Path) -> bool:
    """Remove a folder with all that is in it; whether it could be: not while its lock is held."""
    steps = _removing(path)
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return bool(end.value)


def _removing(path: Path) -> Generator[None, None, bool]:
    """As `remove_folder`, a file a step."""
    try:
        with suppress(FileNotFoundError):
            fd = os.open(path / LOCK_NAME, os.O_RDWR | os.O_CLOEXEC)
            try:
                _flock(fd, path)
                # The lock last: a folder without one would never be found again.
                for file in [file for file in path.iterdir() if file.name != LOCK_NAME]:
                    file.unlink()
                    yield
                shutil.rmtree(path)
            finally:
                os.close(fd)
            return True
    except TierUnavailableError:
        pass
    return False
