"""The data folder and the database: writable, roomy, on a disk that keeps its word, and ours."""

import asyncio
import os
import shutil
from pathlib import Path

import psutil

from app.data_dir import holder_of
from app.database_place import check_place, is_there, place_of
from app.doctor.finding import Finding, Findings, size
from app.refusals import RefusalError
from app.settings import Settings
from sessions.database import Database
from sessions.errors import SessionsError
from sessions.key_store import KeyStore

# The default model, unpacked, and some conversations.
_LEAST_FREE_BYTES = 256 * 1024**2
_GOOD_FREE_BYTES = 2 * 1024**3
_CONNECT_S = 10
_SHARED = {"nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "fuse.sshfs", "afs", "ceph", "glusterfs"}
_FORGETFUL = {"tmpfs", "ramfs"}


def check_disk(settings: Settings) -> list[Finding]:
    """The data folder's place."""
    disk = Findings("disk")
    folder = settings.data_dir.absolute()
    place = next(path for path in (folder, *folder.parents) if path.exists())
    if not place.is_dir():
        disk.fail(f"{place} is a file, and the data folder {folder} can't be made", "--data-dir")
        return disk.all
    if not os.access(place, os.W_OK | os.X_OK):
        disk.fail(f"{place} can't be written", "change its owner or mode, or choose --data-dir")
        return disk.all
    is_made = "" if place == folder else " (the first start makes it)"
    kind = _filesystem(place)
    free = shutil.disk_usage(place).free
    if holder := holder_of(folder):
        disk.fail(f"{holder} uses {folder}", "use that one, end it, or choose another --data-dir")
    text = f"{folder}{is_made} on {kind or 'an unknown filesystem'}, {size(free)} free"
    if free < _LEAST_FREE_BYTES:
        disk.fail(text, f"free some: at least {size(_LEAST_FREE_BYTES)} are needed")
    elif free < _GOOD_FREE_BYTES:
        disk.warn(text, "free some: models and conversations grow")
    else:
        disk.ok(text)
    _look_at_filesystem(disk, settings, kind)
    return disk.all


def check_database(settings: Settings) -> list[Finding]:
    """Whether there is one, and whose, and of which version."""
    database = Findings("database")
    if settings.database_url is None and not is_there(settings):
        database.ok("there is none yet; the first start makes it")
        return database.all
    with database.failing(SessionsError, RefusalError):
        check_place(settings)
        if not is_there(settings):
            database.ok(f"there is none at {place_of(settings)} yet; the first start makes it")
            return database.all
        missing, has_keys = asyncio.run(_ask(settings.effective_database_url))
        if missing:
            database.warn(
                f"{place_of(settings)}: it lacks {', '.join(missing)}",
                "`splice db upgrade` brings it up to date, and so does the next start",
            )
        else:
            keys = "there are API keys" if has_keys else "no API keys yet"
            database.ok(f"{place_of(settings)}: reachable, at this version's schema; {keys}")
        return database.all
    return database.all


def knows_keys(settings: Settings) -> bool:
    """Whether the database has an API key; no, where it can't be asked."""
    if not is_there(settings):
        return False
    try:
        return asyncio.run(_ask(settings.effective_database_url))[1]
    except SessionsError:
        return False  # which has a finding of its own


async def _ask(url: str) -> tuple[tuple[str, ...], bool]:
    """The revisions it lacks, and whether it has keys. Raises SessionsError."""
    database = Database(url, is_read_only=True)
    try:
        async with asyncio.timeout(_CONNECT_S):
            missing = await database.pending()
            return missing, not missing and await KeyStore(database).has_any()
    except TimeoutError:
        raise SessionsError(f"it does not answer within {_CONNECT_S} s") from None
    finally:
        await database.close()


def _look_at_filesystem(disk: Findings, settings: Settings, kind: str) -> None:
    if kind in _FORGETFUL:
        disk.warn(f"{kind} forgets everything when the machine restarts", "choose --data-dir")
    if kind in _SHARED and settings.database_url is None:
        disk.fail(
            f"SQLite can lose data on {kind}, whose locks it can't trust",
            "choose a --data-dir on a local disk, or PostgreSQL with --database-url",
        )


def _filesystem(place: Path) -> str:
    """The kind of filesystem a path is on; empty where that isn't known."""
    real = place.resolve()
    kinds = {Path(part.mountpoint): part.fstype for part in psutil.disk_partitions(all=True)}
    return next((kinds[path] for path in (real, *real.parents) if path in kinds), "")
