"""The CPU tier: records in slots of memory that was set aside before and outlives the process.

    header | checksum | 0 …, to 256 bytes | payload | 0 …, to 256 bytes

The memory is an anonymous file of the parent process, which the engine's process inherits; what it
held when that process crashed is found again from the headers.

Invariants:
    reads, also those of another tier's thread that copies from here, see a slot before or after a
        change, never during one
    a slot's state is written last, and taken back first: half a record is none
    bytes are given out only if the whole header and the checksum are right
"""

import mmap
import os
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from model.messages import TierName
from model.prefix_index import BlockHash
from model.tiers.base import (
    Identity,
    Record,
    RecordLostError,
    TierFullError,
    TierUnavailableError,
)
from model.tiers.folder import medium_errors
from model.tiers.records import (
    CHECKSUM_BYTES,
    DEAD,
    ERASED,
    HEADER_BYTES,
    RecordFormat,
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

    `memory` is a descriptor, which stays the caller's, or a writable buffer. See
    `tiers.base.Storage` for what is asked of it.
    """

    name = TierName.CPU

    def __init__(self, identity: Identity, quota_bytes: int, memory: int | memoryview) -> None:
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
        self._free: list[int] = []
        self._lock = threading.Lock()

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
        """Map the memory and read all headers. What can't be told whose it is is wiped."""
        self._bytes = self._mapped()
        num_slots = min(self.quota_bytes, len(self._bytes)) // self._slot_bytes
        self._keys = [None] * num_slots
        self._slots, self._records, self._free = {}, {}, []
        for slot in reversed(range(num_slots)):
            header = self._format.parse(self._header(slot))
            self._keys[slot] = header.record.key if header else None
            if header and header.is_live and header.record.key not in self._slots:
                self._slots[header.record.key] = slot
                self._records[header.record.key] = header.record
            else:
                self._free.append(slot)
                if header is None and self._header(slot)[:1] not in (_NEVER_WRITTEN, ERASED):
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

    def write(self, record: Record, payload: memoryview) -> None:
        """Copy a block's bytes into a free slot."""
        assert payload.nbytes == self._block_bytes
        with self._lock:
            self._write(record, payload.cast("B"))

    def _write(self, record: Record, payload: memoryview) -> None:
        if record.key in self._slots:
            return
        if not self._free:
            raise TierFullError("the CPU tier's memory is used up")
        slot = self._free.pop()
        header, at = self._format.header(record), slot * self._slot_bytes
        self._bytes[at : at + 1] = DEAD
        self._keys[slot] = record.key
        # The key before the bytes, so that half of them can be erased by it after a crash.
        self._bytes[at + 1 : at + HEADER_BYTES] = header[1:]
        self._payload(slot)[:] = payload
        self._checksum(slot)[:] = record_checksum(header, self._payload(slot))
        self._bytes[at : at + 1] = header[:1]
        self._slots[record.key] = slot
        self._records[record.key] = record

    def read(self, record: Record, into: memoryview) -> None:
        """Copy a block's bytes out and verify the copy, which is in the CPU's cache then. Any
        thread may read."""
        into = into.cast("B")
        with self._lock:
            slot = self._slots.get(record.key)
            if slot is not None:
                into[:] = self._payload(slot)
            self._verify(record, slot, into)

    def payload_view(self, record: Record) -> memoryview:
        """A block's bytes where they are, verified; read-only, and right until the record is
        removed or erased, so for the thread that does so. Raises RecordLostError."""
        with self._lock:
            slot = self._slots.get(record.key)
            payload = self._payload(slot) if slot is not None else memoryview(b"")
            self._verify(record, slot, payload)
            return payload.toreadonly()

    def _verify(self, record: Record, slot: int | None, payload: memoryview) -> None:
        if slot is None:
            raise RecordLostError("there is no such record")
        header = self._header(slot)
        is_right = self._format.nonce_of(header, record) is not None
        if not is_right or record_checksum(header, payload) != self._checksum(slot):
            self._wipe(slot)
            self._release(record.key)
            raise RecordLostError("a record in the CPU tier's memory isn't what was written")

    def remove(self, keys: Sequence[BlockHash]) -> None:
        """Give the records' slots up; their bytes stay until a slot is written again."""
        with self._lock:
            for key in self._slots.keys() & set(keys):
                at = self._slots[key] * self._slot_bytes
                self._bytes[at : at + 1] = DEAD
                self._release(key)

    def erase(self, keys: Sequence[BlockHash]) -> None:
        """Overwrite every copy with zeros, slots that were given up before too."""
        doomed = set(keys)
        with self._lock:
            for slot, key in enumerate(self._keys):
                if key in doomed:
                    self._wipe(slot)
            for key in self._slots.keys() & doomed:
                self._release(key)

    def verify(self) -> list[Record]:
        """Read every record."""
        damaged = []
        for record in list(self._records.values()):
            try:
                self.payload_view(record)
            except RecordLostError:
                damaged.append(record)
        return damaged

    def close(self) -> None:
        """Let go of the memory; its owner keeps it, and the next process finds what is in it."""
        with self._lock:
            self._keys, self._slots, self._records, self._free = [], {}, {}, []
            self._bytes.release()
            self._bytes = memoryview(b"")
        if self._map is not None:
            # A view that somebody still has keeps the memory mapped until it goes.
            with suppress(BufferError):
                self._map.close()
            self._map = None

    def _release(self, key: BlockHash) -> None:
        self._free.append(self._slots.pop(key))
        del self._records[key]

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
