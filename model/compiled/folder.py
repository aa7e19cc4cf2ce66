"""A compiled step on disk: a folder with torch's package, constants and their digests.

A folder appears under its name whole or not at all, and what is read is what was written: a file
that differs, lacks or is too much makes it none.
"""

import hashlib
import json
import shutil
from pathlib import Path

PACKAGE = "package"
CONSTANTS = "constants.safetensors"
_SEAL = "seal.json"


class DamagedStepError(Exception):
    """What lies there is not what was compiled."""


def seal(folder: Path) -> None:
    """Write down what is in there."""
    (folder / _SEAL).write_text(json.dumps(_digests(folder)), encoding="utf-8")


def publish(built: Path, folder: Path) -> None:
    """Let a sealed folder appear under its name."""
    discard(folder)
    built.replace(folder)


def discard(folder: Path) -> None:
    """Remove what lies there, if anything does."""
    if folder.exists():
        shutil.rmtree(folder)


def check(folder: Path) -> None:
    """Raise DamagedStepError when its files are not those that were sealed."""
    try:
        sealed = json.loads((folder / _SEAL).read_text(encoding="utf-8"))
        found = _digests(folder)
    except (OSError, ValueError) as exc:
        raise DamagedStepError(f"it can't be read: {exc}") from exc
    if sealed != found:
        names = sorted(set(sealed) ^ set(found)) or [n for n in found if found[n] != sealed[n]]
        raise DamagedStepError(f"{names[0]} is damaged")


def _digests(folder: Path) -> dict[str, str]:
    files = sorted(p for p in folder.rglob("*") if p.is_file() and p.name != _SEAL)
    return {
        file.relative_to(folder).as_posix(): hashlib.sha256(file.read_bytes()).hexdigest()
        for file in files
    }
