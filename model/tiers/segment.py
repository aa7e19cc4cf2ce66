"""One append-only file of equally long records behind a header that says whose they are.

A file is opened for each call: descriptors don't run out, and one that was deleted is noticed (a
run of reads is one call). The calls raise OSError; FileNotFoundError says that the segment is gone.

Invariants:
    `keys` has one entry a slot: the key of the bytes in it, dead or live; None if there is nothing
    a slot is written once, whole or not at all; after that it is given up, or wiped
    a slot that was given up has a header and no bytes behind it
"""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

from model.prefix_index import BlockHash
from model.tiers.base import Identity
from model.tiers.folder import LockedFolder
from model.tiers.holes import punch
from model.tiers.records import (
    DEAD,
    ERASED,
    HEADER_BYTES,
    Bytes,
    Header,
    RecordFormat,
    checksum,
    identity_text,
)

_MAGIC = b"SPLICEKV"
_SUFFIX = ".kv"


def segment_header(identity: Identity, cipher: str | None) -> bytes:
    """What each segment of the identity begins with; all of it has to be right."""
    text = identity_text(identity, cipher)
    head = _MAGIC + len(text).to_bytes(4, "little") + text
    return head + checksum(head)


def segment_number(name: str) -> int | None:
    """The number in a segment file's name."""
    stem = name.removesuffix(_SUFFIX)
    is_ours = stem.isdecimal() and name == _file_name(int(stem))
    return int(stem) if is_ours else None


def _file_name(number: int) -> str:
    return f"{number:08d}{_SUFFIX}"


class Segment:
    """One file, and which keys its slots hold."""

    def __init__(self, folder: LockedFolder, number: int, header: bytes, record_bytes: int) -> None:
        self.number = number
        self.keys: list[BlockHash | None] = []
        self.num_live = 0
        self._folder = folder
        self._name = _file_name(number)
        self._header = header
        self._record_bytes = record_bytes

    @property
    def size_bytes(self) -> int:
        """How long the file is."""
        return self.offset(len(self.keys))

    @property
    def num_dead(self) -> int:
        """Slots that nothing is read from any more."""
        return len(self.keys) - self.num_live

    def offset(self, slot: int) -> int:
        """Where the slot begins."""
        return len(self._header) + slot * self._record_bytes

    def create(self) -> None:
        """Make the file, over one that has no business there. After a failure there is none."""
        with self._folder.file(self._name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC) as fd:
            try:
                _write_all(fd, [self._header], 0)
            except OSError:
                self.delete()
                raise

    def load(self, record_format: RecordFormat) -> Iterator[tuple[int, Header]]:
        """Read all headers; cut off a torn end, and wipe what can't be told whose it is.

        Nothing comes of a file with another header: it isn't this identity's.
        """
        with self._folder.file(self._name, os.O_RDWR) as fd:
            if os.pread(fd, len(self._header), 0) != self._header:
                return
            size = os.fstat(fd).st_size
            num_slots = (size - len(self._header)) // self._record_bytes
            if size != self.offset(num_slots):
                os.ftruncate(fd, self.offset(num_slots))
            for slot in range(num_slots):
                raw = os.pread(fd, HEADER_BYTES, self.offset(slot))
                header = record_format.parse(raw)
                self.keys.append(header.record.key if header else None)
                if header is not None:
                    yield slot, header
                elif raw[:1] != ERASED or any(raw[1:]):
                    self._wipe(fd, slot)

    def append(self, record: Sequence[Bytes], key: BlockHash) -> int:
        """Write a record's bytes behind the last; the slot. After a failure nothing is there."""
        end = self.size_bytes
        with self._folder.file(self._name, os.O_WRONLY) as fd:
            try:
                _write_all(fd, record, end)
            except OSError:
                # Bytes that can't be cut off now are no whole slot, and cut off at the next start.
                with suppress(OSError):
                    os.ftruncate(fd, end)
                raise
        self.keys.append(key)
        self.num_live += 1
        return len(self.keys) - 1

    @contextmanager
    def opened(self) -> Iterator[int]:
        """The file's descriptor, to `read` from."""
        fd = self._folder.open_file(self._name, os.O_RDONLY)
        try:
            yield fd
        finally:
            os.close(fd)

    def read(self, fd: int, slot: int, into: Sequence[bytearray | memoryview]) -> bool:
        """Fill the buffers with a record's bytes, in one call; whether there were as many."""
        return os.preadv(fd, into, self.offset(slot)) == self._record_bytes

    def mark_dead(self, slots: Sequence[int]) -> None:
        """Note on the medium that the slots' records were given up; but for their headers nothing
        is in the file any more."""
        with self._folder.file(self._name, os.O_WRONLY) as fd:
            for slot in slots:
                # First the bytes: what is found whole later was not given up.
                self._punch(fd, slot)
                os.pwrite(fd, DEAD, self.offset(slot))

    def wipe(self, slots: Sequence[int]) -> None:
        """Overwrite the slots with zeros, through to the disk, and give their room back."""
        with self._folder.file(self._name, os.O_WRONLY) as fd:
            for slot in slots:
                self._wipe(fd, slot)
            os.fdatasync(fd)
            for slot in slots:
                self._punch(fd, slot)
        # Only now: what may be on the disk still has to be found by the next try.
        for slot in slots:
            self.keys[slot] = None

    def _punch(self, fd: int, slot: int) -> None:
        rest = self._record_bytes - HEADER_BYTES
        punch(fd, self.offset(slot) + HEADER_BYTES, rest)

    def _wipe(self, fd: int, slot: int) -> None:
        zeros = bytes(self._record_bytes - len(ERASED))
        _write_all(fd, [ERASED, zeros], self.offset(slot))

    def cut(self, num_slots: int) -> None:
        """Give up all slots behind the first `num_slots`, none of which is live."""
        with self._folder.file(self._name, os.O_WRONLY) as fd:
            os.ftruncate(fd, self.offset(num_slots))
        del self.keys[num_slots:]

    def sync(self) -> None:
        """Put what was written on the disk."""
        with self._folder.file(self._name, os.O_RDONLY) as fd:
            os.fdatasync(fd)

    def delete(self) -> None:
        """Remove the file, if it is there still."""
        self._folder.unlink(self._name)


def _write_all(fd: int, parts: Sequence[Bytes], offset: int) -> None:
    total = sum(len(part) for part in parts)
    written = os.pwritev(fd, parts, offset)
    if written < total:
        # The system took less, as when it runs out of room: another call gets the reason.
        rest = memoryview(b"".join(parts))
        while written < total:
            written += os.pwrite(fd, rest[written:], offset + written)
