"""The sha256 of large files, computed once and remembered.

A remembered digest holds as long as the file's size, time of change and inode are the same. The
book is a cache: when it can't be read or written, digests are computed again.
"""

import hashlib
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import IO

_BOOK = "digests.json"
_CHUNK_BYTES = 1 << 20
_WORTH_A_WORD_BYTES = 1 << 30


def file_sha256(path: Path, book_dir: Path, on_progress: Callable[[str], None]) -> str:
    """The file's sha256 as hex; reads the file only when it isn't in the book of `book_dir`."""
    book = _read(book_dir / _BOOK)
    key, stamp = str(path.resolve()), _stamp(path)
    known = book.get(key)
    if known and known[:-1] == stamp:
        return known[-1]
    size = path.stat().st_size
    if size >= _WORTH_A_WORD_BYTES:
        on_progress(f"computing the digest of {path.name} ({size / 1e9:.1f} GB, once)")
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    # Read again, so that what another process noted meanwhile is kept.
    book = {k: v for k, v in _read(book_dir / _BOOK).items() if Path(k).exists()}
    _write(book_dir / _BOOK, {**book, key: [*stamp, digest]})
    return digest


def copy_and_digest(source: IO[bytes], target: Path) -> str:
    """Copy a stream into a new file, through to the disk; the sha256 of what was copied."""
    digest = hashlib.sha256()
    with target.open("wb") as out:
        while chunk := source.read(_CHUNK_BYTES):
            digest.update(chunk)
            out.write(chunk)
        out.flush()
        os.fsync(out.fileno())
    return digest.hexdigest()


def _stamp(path: Path) -> list[str]:
    stat = path.stat()
    return [str(stat.st_size), str(stat.st_mtime_ns), str(stat.st_ino)]


def _read(book: Path) -> dict[str, list[str]]:
    try:
        entries = json.loads(book.read_text(encoding="utf-8"))
        return {str(k): [str(part) for part in v] for k, v in entries.items()}
    except (OSError, ValueError, AttributeError, TypeError):
        return {}


def _write(book: Path, entries: dict[str, list[str]]) -> None:
    part = book.with_name(f"{book.name}.{os.getpid()}")
    try:
        part.write_text(json.dumps(entries, indent=1), encoding="utf-8")
        part.replace(book)
    except OSError:
        part.unlink(missing_ok=True)
