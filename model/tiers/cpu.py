"""The CPU tier: records in slots of memory that was set aside before and outlives the process.

    header | checksum | 0 …, to 256 bytes | payload | 0 …, to 256 bytes

The memory is an anonymous file of the parent process, which the engine's process inherits; what it
held when that process crashed is found again from the headers.

Invariants:
    reads, also those of another tier's thread that copies from here, see a slot before or after a
        change, never during one
    a slot that was given up has no block's bytes any more
    a slot's state is written last, and taken back first: half a record is none
    bytes are given out only if the whole header and the checksum are right
"""

import mmap
import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

from model.messages import TierName
from model.prefix_index import BlockHash
from model.tiers.base import (
    Identity,
    Record,
    RecordLostError,
    TierFullError,
    TierUnavailableError,
)
from model.tiers.copies import Copier, PlainCopier
from model.tiers.folder import medium_errors
from model.tiers.records import (
    CHECKSUM_BYTES,
    DEAD,
    ERASED,
    HEADER_BYTES,
    RecordFormat,
    checksum,
    checksum_with,
    record_checksum,
)

_ALIGNMENT = 256
_NEVER_WRITTEN = b"\0"


def slot_bytes(identity: Identity) -> int:
    """What one record takes up."""
    return _aligned(HEADER_BYTES + CHECKSUM_BYTES) + _aligned(identity.block_bytes)


def create_memory(num_bytes: int) -> int:
    """Anonymous memory, as a descriptor that children may inherit.

    All of it is taken up at once, at some gigabytes a second: whoever runs out of it later is
    killed by a signal. Raises TierFullError or TierUnavailableError.
    """
    with medium_errors(Path("memory of the CPU tier")):
        fd = os.memfd_create("splice-cpu-tier", os.MFD_CLOEXEC)
        try:
            if num_bytes:
                os.posix_fallocate(fd, 0, num_bytes)
        except OSError:
            os.close(fd)
            raise
    return fd


class CpuStorage:
    """Blocks in the slots that fit into `quota_bytes` of the memory behind `memory`.

    `memory` is a descriptor, which stays the caller's, or a writable buffer; `make_copier` gives
    what copies from it while it is open. See `tiers.base.Storage` for what is asked of it.
    """

    name = TierName.CPU

    def __init__(
        self,
        identity: Identity,
        quota_bytes: int,
        memory: int | memoryview,
        make_copier: Callable[[], Copier] = PlainCopier,
    ) -> None:
        self.quota_bytes = quota_bytes
        self._memory = memory
        self._block_bytes = identity.block_bytes
        self._slot_bytes = slot_bytes(identity)
        self._payload_at = self._slot_bytes - _aligned(identity.block_bytes)
        self._format = RecordFormat(identity, identity.block_bytes)
        self._bytes = memoryview(b"")
        self._map: mmap.mmap | None = None
        # The key of the bytes in each slot, given up or not.
        self._keys: list[BlockHash | None] = []
        self._slots: dict[BlockHash, int] = {}
        self._records: dict[BlockHash, Record] = {}
        # What their headers must be: quicker to compare with than to make again.
        self._headers: dict[BlockHash, bytes] = {}
        self._free: list[int] = []
        self._zeros = bytes(identity.block_bytes)
        self._lock = threading.Lock()
        self._make_copier = make_copier
        self._copier: Copier | None = None

    @property
    def used_bytes(self) -> int:
        """What the live records' slots take up."""
        return len(self._slots) * self._slot_bytes

    @property
    def live_bytes(self) -> int:
        """The same: a slot that was given up is free at once."""
        return self.used_bytes

    def record_bytes(self) -> int:
        """What one record takes up."""
        return self._slot_bytes

    def open(self) -> list[Record]:
        """Map the memory and read all headers. What isn't a whole record is wiped."""
        self._bytes = self._mapped()
        num_slots = min(self.quota_bytes, len(self._bytes)) // self._slot_bytes
        self._keys = [None] * num_slots
        self._slots, self._records, self._headers, self._free = {}, {}, {}, []
        self._copier = self._make_copier()
        for slot in reversed(range(num_slots)):
            header = self._format.parse(self._header(slot))
            self._keys[slot] = header.record.key if header else None
            if header and header.is_live and header.record.key not in self._slots:
                self._admit(header.record, slot, bytes(self._header(slot)))
            else:
                self._free.append(slot)
                if self._header(slot)[:1] not in (_NEVER_WRITTEN, ERASED):
                    self._wipe(slot)
        return list(self._records.values())

    def _mapped(self) -> memoryview:
        if not isinstance(self._memory, int):
            return self._memory.cast("B")
        try:
            size = os.fstat(self._memory).st_size
            self._map = mmap.mmap(self._memory, size) if size else None
        except (OSError, ValueError) as exc:
            raise TierUnavailableError(f"the CPU tier's memory can't be mapped: {exc}") from exc
        return memoryview(self._map or b"")

    @property
    def memory(self) -> memoryview:
        """All that is mapped; empty while it isn't open."""
        return self._bytes

    def write(self, record: Record, payload: memoryview) -> None:
        """Copy a block's bytes into a free slot."""
        assert payload.nbytes == self._block_bytes

        def fill(rooms: Mapping[int, memoryview]) -> None:
            for room in rooms.values():
                room[:] = payload.cast("B")

        for _ in self.write_with([record], fill):
            pass

    def write_with(
        self, records: Sequence[Record], fill: Callable[[Mapping[int, memoryview]], None]
    ) -> Iterator[None]:
        """Take free slots for the records that aren't there yet, as far as there are some, have
        `fill` put bytes into them by their places in `records`, and yield for each record that is
        stored then. Raises TierFullError behind the last that had room."""
        taken = self._take_slots(records)
        try:
            fill({place: self._payload(slot) for place, slot in taken.items()})
            for place, record in enumerate(records):
                if place in taken:
                    self._seal(record, taken[place])
                    del taken[place]
                elif record.key not in self._slots:
                    raise TierFullError("the CPU tier's memory is used up")
                yield
        finally:
            for slot in taken.values():
                self._wipe(slot)
                self._free.append(slot)

    def _take_slots(self, records: Sequence[Record]) -> dict[int, int]:
        """Free slots by the records' places; nobody else looks at them until they are sealed."""
        taken: dict[int, int] = {}
        for place, record in enumerate(records):
            is_known = record.key in self._slots or record in records[:place]
            if is_known or not self._free:
                continue
            slot = taken[place] = self._free.pop()
            at = slot * self._slot_bytes
            self._bytes[at : at + 1] = DEAD
            self._keys[slot] = record.key
            # The key before the bytes, so that half of them can be erased by it after a crash.
            self._bytes[at + 1 : at + HEADER_BYTES] = self._format.header(record)[1:]
        return taken

    def _seal(self, record: Record, slot: int) -> None:
        """What is in the slot is the record from here on."""
        header, at = self._format.header(record), slot * self._slot_bytes
        self._checksum(slot)[:] = record_checksum(header, self._payload(slot))
        with self._lock:
            self._bytes[at : at + 1] = header[:1]
            self._admit(record, slot, header)

    def _admit(self, record: Record, slot: int, header: bytes) -> None:
        self._slots[record.key] = slot
        self._records[record.key] = record
        self._headers[record.key] = header

    def read(self, record: Record, into: memoryview) -> None:
        """Copy a block's bytes out and verify the copy. Any thread may read."""
        with self._lock:  # from the look to the loss: who writes meanwhile waits
            (is_right,) = self._copy_out([record], [into])
            if not is_right:
                self._lose(record)

    def read_all(self, records: Sequence[Record], into: Sequence[memoryview]) -> Iterator[None]:
        """All of them at once, and then yield for each."""
        with self._lock:
            are_right = self._copy_out(records, into)
        for record, is_right in zip(records, are_right, strict=True):
            if not is_right:
                with self._lock:
                    self._lose(record)
            yield

    def _copy_out(self, records: Sequence[Record], into: Sequence[memoryview]) -> list[bool]:
        """Whether there is such a record, of each, and the copy of it is right."""
        slots = [self._slots.get(record.key) for record in records]
        sources = [self._payload(slot) for slot in slots if slot is not None]
        targets = [target for slot, target in zip(slots, into, strict=True) if slot is not None]
        if self._copier is None:
            return [False] * len(records)
        checksums = iter(self._copier.copy(sources, targets))
        return [
            slot is not None and self._is_right(record, slot, next(checksums))
            for record, slot in zip(records, slots, strict=True)
        ]

    def payload_view(self, record: Record) -> memoryview:
        """A block's bytes where they are, verified; not to be written, and right until the record
        is removed or erased, so for the thread that does so. Raises RecordLostError."""
        with self._lock:
            slot = self._slots.get(record.key)
            if slot is None or not self._is_right(record, slot, checksum(self._payload(slot))):
                self._lose(record)
            assert slot is not None
            return self._payload(slot)

    def _is_right(self, record: Record, slot: int, payload_checksum: bytes) -> bool:
        at = slot * self._slot_bytes
        head = self._bytes[at : at + HEADER_BYTES + CHECKSUM_BYTES]
        header = self._headers[record.key]
        known = self._records[record.key]
        is_same = known is record or known == record  # the first in nearly all cases
        return is_same and head == header + checksum_with(header, payload_checksum)

    def _lose(self, record: Record) -> NoReturn:
        """Give a record up that isn't right. Raises RecordLostError."""
        slot = self._slots.get(record.key)
        if slot is None:
            raise RecordLostError("there is no such record")
        self._wipe(slot)
        self._release(record.key)
        raise RecordLostError("a record in the CPU tier's memory isn't what was written")

    def remove(self, keys: Sequence[BlockHash]) -> None:
        """Give the records' slots up, and fill them with zeros."""
        with self._lock:
            for key in self._slots.keys() & set(keys):
                slot = self._slots[key]
                # Still found by its key if this is all that is done of it.
                self._payload(slot)[:] = self._zeros
                self._bytes[slot * self._slot_bytes :][:1] = DEAD
                self._release(key)

    def erase(self, keys: Sequence[BlockHash]) -> None:
        """Overwrite slots that were given up before, too."""
        doomed = set(keys)
        with self._lock:
            for slot, key in enumerate(self._keys):
                if key in doomed:
                    self._wipe(slot)
            for key in self._slots.keys() & doomed:
                self._release(key)

    def verify(self) -> Iterator[Record | None]:
        """Read every record."""
        for record in list(self._records.values()):
            if record.key in self._records:
                try:
                    self.payload_view(record)
                except RecordLostError:
                    yield record
                else:
                    yield None

    def close(self) -> None:
        """Let go of the memory; its owner keeps it, and the next process finds what is in it."""
        with self._lock:
            if self._copier is not None:
                self._copier.close()
                self._copier = None
            self._keys, self._slots, self._records, self._free = [], {}, {}, []
            self._headers = {}
            self._bytes.release()
            self._bytes = memoryview(b"")
        if self._map is not None:
            # A view that somebody still has keeps the memory mapped until it goes.
            with suppress(BufferError):
                self._map.close()
            self._map = None

    def _release(self, key: BlockHash) -> None:
        self._free.append(self._slots.pop(key))
        del self._records[key], self._headers[key]

    def _wipe(self, slot: int) -> None:
        at = slot * self._slot_bytes
        self._bytes[at : at + self._slot_bytes] = ERASED + bytes(self._slot_bytes - len(ERASED))
        self._keys[slot] = None

    def _header(self, slot: int) -> memoryview:
        at = slot * self._slot_bytes
        return self._bytes[at : at + HEADER_BYTES]

    def _checksum(self, slot: int) -> memoryview:
        at = slot * self._slot_bytes + HEADER_BYTES
        return self._bytes[at : at + CHECKSUM_BYTES]

    def _payload(self, slot: int) -> memoryview:
        at = slot * self._slot_bytes + self._payload_at
        return self._bytes[at : at + self._block_bytes]


def _aligned(num_bytes: int) -> int:
    return -(-num_bytes // _ALIGNMENT) * _ALIGNMENT
