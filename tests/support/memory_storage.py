"""A tier's medium in memory, with faults, and a runner whose jobs end when a test says so."""

from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from model.messages import TierName
from model.prefix_index import BlockHash
from model.tiers.base import (
    Hold,
    Record,
    RecordLostError,
    TierFullError,
    TierUnavailableError,
)
from model.tiers.transfers import DeviceBlocks, Job, carry_out


class MemoryStorage:
    """What outlives an engine: give it to the next one. `is_full` and `is_broken` are its faults;
    a test damages records by changing `payloads`."""

    def __init__(self, name: TierName = TierName.DISK, quota_records: int = 1000) -> None:
        self.name = name
        self.quota_bytes = quota_records
        self.payloads: dict[BlockHash, bytes] = {}
        self.records: dict[BlockHash, Record] = {}
        self.holds: dict[tuple[str, str], Hold] = {}
        self.damaged: set[BlockHash] = set()
        self.is_full = False
        self.is_broken = False
        self.is_closed = False

    @property
    def used_bytes(self) -> int:
        return len(self.records)

    def record_bytes(self) -> int:
        return 1

    def open(self) -> list[Record]:
        return list(self.records.values())

    def write(self, record: Record, payload: memoryview) -> None:
        self._require_working()
        if self.is_full or (
            record.key not in self.records and len(self.records) >= self.quota_bytes
        ):
            raise TierFullError("full")
        if record.key not in self.records:
            self.records[record.key] = record
            self.payloads[record.key] = bytes(payload)

    def read(self, record: Record, into: memoryview) -> None:
        self._require_working()
        if record.key in self.damaged or self.records.get(record.key) != record:
            self.remove([record.key])
            raise RecordLostError(f"{record} is damaged")
        into[:] = self.payloads[record.key]

    def remove(self, keys: Sequence[BlockHash]) -> None:
        for key in keys:
            self.records.pop(key, None)
            self.payloads.pop(key, None)
            self.damaged.discard(key)

    def erase(self, keys: Sequence[BlockHash]) -> None:
        self._require_working()
        self.remove(keys)

    def put(self, hold: Hold) -> None:
        self.holds[hold.conversation_id, hold.turn_id] = hold

    def drop_turn(self, conversation_id: str, turn_id: str) -> None:
        self.holds.pop((conversation_id, turn_id), None)

    def drop(self, conversation_id: str) -> None:
        self.holds = {k: h for k, h in self.holds.items() if k[0] != conversation_id}

    def verify(self) -> list[Record]:
        lost = [self.records[key] for key in self.damaged if key in self.records]
        self.remove([record.key for record in lost])
        return lost

    def close(self) -> None:
        self.is_closed = True

    def _require_working(self) -> None:
        if self.is_broken:
            raise TierUnavailableError("the medium is broken")


class ManualRunner:
    """Carries a job out when a test says so, the most urgent first, on the test's own thread."""

    def __init__(self, storage: MemoryStorage, blocks: DeviceBlocks) -> None:
        self.storage = storage
        self._blocks = blocks
        self._queue: deque[Job] = deque()
        self._done: list[Job] = []

    @property
    def num_queued(self) -> int:
        return len(self._queue)

    def start(self, job: Job) -> None:
        self._queue.append(job)

    def run(self, num_jobs: int = 10_000) -> None:
        """Carry out so many of what is queued."""
        for _ in range(min(num_jobs, len(self._queue))):
            job = min(self._queue, key=lambda job: job.urgency)
            self._queue.remove(job)
            carry_out(job, self.storage, self._blocks, lambda: 0.0)
            self._done.append(job)

    def take_done(self) -> list[Job]:
        done, self._done = self._done, []
        return done

    def close(self, timeout_s: float) -> bool:
        self.run()
        self.storage.close()
        return True


class NumberedBlocks:
    """Blocks of one byte each: what is in them is told by whoever set it."""

    block_bytes = 1

    def __init__(self, num_blocks: int) -> None:
        self.contents = bytearray(num_blocks)

    def in_place(self, block_id: int) -> memoryview:
        return memoryview(self.contents)[block_id : block_id + 1]

    @contextmanager
    def reading(self, block_id: int, num_tokens: int) -> Iterator[memoryview]:
        yield memoryview(self.contents)[block_id : block_id + 1]

    @contextmanager
    def writing(self, block_id: int) -> Iterator[memoryview]:
        yield memoryview(self.contents)[block_id : block_id + 1]
