"""The disk tier's folder: can it be written, is there room for its quota, does a server have it?"""

import fcntl
import os
import shutil
from pathlib import Path

from app.doctor.finding import Finding, Findings, size
from app.kv_files import cipher
from app.settings import Settings, SettingsError

_LOCK_NAME = "lock"


def check_tiers(settings: Settings) -> list[Finding]:
    """What the settings of the tiers come to on this machine."""
    tiers = Findings("tiers")
    if not settings.disk_cache_bytes:
        tiers.warn(
            "there is no disk tier: what memory gives up, and a restart, is computed again",
            "--disk-cache-bytes",
        )
        return tiers.all
    folder = settings.effective_kv_dir
    place = next(path for path in (folder, *folder.parents) if path.exists())
    if not place.is_dir() or not os.access(place, os.W_OK | os.X_OK):
        tiers.fail(f"{place} can't be written", "change its owner or mode, or choose --kv-dir")
        return tiers.all
    _look_at_room(tiers, settings, folder, place)
    if holder := _locked_below(folder):
        tiers.ok(f"a server uses {holder}")
    with tiers.failing(SettingsError):
        if cipher() is not None:
            tiers.ok("what is stored is encrypted: SPLICE_KV_KEY is set")
    return tiers.all


def _look_at_room(tiers: Findings, settings: Settings, folder: Path, place: Path) -> None:
    used = sum(f.stat().st_size for f in folder.rglob("*") if f.is_file())
    free = shutil.disk_usage(place).free
    quota = int(settings.disk_cache_bytes)
    text = f"{folder}: {size(used)} used of at most {size(quota)}, {size(free)} free on its disk"
    if quota - used > free:
        tiers.warn(text, "lower --disk-cache-bytes, or free some: a full disk turns the tier off")
    else:
        tiers.ok(text)


def _locked_below(folder: Path) -> Path | None:
    """The folder of a model that somebody has now."""
    for lock in sorted(folder.glob(f"*/{_LOCK_NAME}")):
        try:
            fd = os.open(lock, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            continue
        try:
            fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return lock.parent
        finally:
            os.close(fd)
    return None
