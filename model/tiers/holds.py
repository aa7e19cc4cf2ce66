"""Which conversations hold which chains of records: a list that outlives the process.

One line a change, with a checksum before it; the later wins. The list lies in the identity's folder
and is written while the folder's lock is held by whoever opened the storage in it.

Invariants:
    a line counts whole or not at all
    a dropped conversation's name is in no file once `drop` has returned
"""

import json
import os
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import NewType

from model.prefix_index import BlockHash
from model.tiers.base import Hold, Identity, TierFullError
from model.tiers.folder import identity_folder, medium_errors, sync_folder
from model.tiers.records import checksum

HOLDS_NAME = "holds"
_NEW_NAME = "holds.new"
# A file is written anew when it has this many lines more than twice what counts.
_SLACK_LINES = 256

_Key = NewType("_Key", tuple[str, str])


class HoldLog:
    """The holds on one identity's records.

    Calls that write raise TierFullError or TierUnavailableError; what is held in memory is right
    even then, and the next call that writes mends the file. Opened after the storage, whose lock
    keeps the folder.
    """

    def __init__(self, folder: Path, identity: Identity) -> None:
        self._folder = identity_folder(folder, identity)
        self._holds: dict[_Key, Hold] = {}
        # Conversations that the file names, be it in lines that count no more.
        self._named: set[str] = set()
        self._num_lines = 0
        self._must_rewrite = False
        self._file: int | None = None

    def open(self) -> list[Hold]:
        """What an earlier process left; lines that aren't whole are skipped."""
        with medium_errors(self._folder):
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            with suppress(FileNotFoundError):
                for line in (self._folder / HOLDS_NAME).read_bytes().split(b"\n"):
                    self._take(_parse(line))
        # A full disk doesn't keep anybody from reading.
        with suppress(TierFullError):
            self._rewrite()
        return self.holds()

    def _take(self, line: Hold | _Key | None) -> None:
        if isinstance(line, Hold):
            self._holds[_key(line)] = line
            self._named.add(line.conversation_id)
        elif line is not None:
            self._holds.pop(line, None)
            self._named.add(line[0])

    def holds(self) -> list[Hold]:
        """All that count now."""
        return list(self._holds.values())

    def put(self, hold: Hold) -> None:
        """Note a hold; an earlier one of the same turn counts no more."""
        self._take(hold)
        self._note(_line(asdict(hold) | {"tail": hold.tail.hex()}))

    def drop_turn(self, conversation_id: str, turn_id: str) -> None:
        """Forget one turn's hold, if there is one; the file may still name it."""
        key = _Key((conversation_id, turn_id))
        if key in self._holds:
            self._take(key)
            self._note(_line({"dropped": key}))

    def drop(self, conversation_id: str) -> None:
        """Forget all of a conversation's holds, and its name in the file."""
        for key in [key for key in self._holds if key[0] == conversation_id]:
            del self._holds[key]
        if conversation_id in self._named or self._must_rewrite:
            self._rewrite()

    def close(self) -> None:
        """Put the list on the disk."""
        if self._file is None:
            return
        file, self._file = self._file, None
        with medium_errors(self._folder):
            try:
                os.fdatasync(file)
            finally:
                os.close(file)

    def _note(self, line: bytes) -> None:
        if self._must_rewrite or self._num_lines > 2 * len(self._holds) + _SLACK_LINES:
            self._rewrite()
            return
        assert self._file is not None, "the list isn't open"
        # Until the line is there whole: what stands behind a part of one would be lost with it.
        self._must_rewrite = True
        with medium_errors(self._folder):
            _write_all(self._file, line)
        self._must_rewrite = False
        self._num_lines += 1

    def _rewrite(self) -> None:
        """Write what counts into a new file that takes the old one's place."""
        self._must_rewrite = True
        lines = [_line(asdict(h) | {"tail": h.tail.hex()}) for h in self._holds.values()]
        with medium_errors(self._folder):
            self._replace(b"".join(lines))
        self._must_rewrite = False
        self._num_lines = len(lines)
        self._named = {conversation_id for conversation_id, _ in self._holds}

    def _replace(self, data: bytes) -> None:
        new, flags = self._folder / _NEW_NAME, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND
        file = os.open(new, flags | os.O_CLOEXEC, 0o600)
        try:
            _write_all(file, data)
            os.fdatasync(file)
            new.replace(self._folder / HOLDS_NAME)
        except OSError:
            os.close(file)
            new.unlink(missing_ok=True)
            raise
        if self._file is not None:
            os.close(self._file)
        self._file = file
        sync_folder(self._folder)


def conversations_in(folder: Path, identity: Identity) -> frozenset[str]:
    """Whoever the identity's list names, also in lines that count no more; it is only read. Raises
    TierUnavailableError."""
    path = identity_folder(folder, identity) / HOLDS_NAME
    with medium_errors(path):
        try:
            lines = path.read_bytes().split(b"\n")
        except FileNotFoundError:
            return frozenset()
    found = [line for line in map(_parse, lines) if line is not None]
    return frozenset(line.conversation_id if isinstance(line, Hold) else line[0] for line in found)


def _write_all(file: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(file, rest) :]


def _key(hold: Hold) -> _Key:
    return _Key((hold.conversation_id, hold.turn_id))


def _line(fields: dict[str, object]) -> bytes:
    text = json.dumps(fields).encode()
    return checksum(text).hex().encode() + b" " + text + b"\n"


def _parse(line: bytes) -> Hold | _Key | None:
    """A hold, or the name of one that was dropped."""
    digest, _, text = line.partition(b" ")
    if checksum(text).hex().encode() != digest:
        return None
    try:
        fields = json.loads(text)
        if "dropped" in fields:
            conversation_id, turn_id = fields["dropped"]
            return _Key((conversation_id, turn_id))
        return Hold(**fields | {"tail": BlockHash(bytes.fromhex(fields["tail"]))})
    except (ValueError, TypeError, KeyError):
        return None
