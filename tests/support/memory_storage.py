"""A tier's medium in memory, with faults, and a runner whose jobs end when a test says so."""

from collections import deque
from collections.abc import Callable, Iterator, Sequence

from model.messages import TierName
from model.prefix_index import BlockHash
from model.tiers.base import (
    Hold,
    Record,
    RecordLostError,
    TierFullError,
    TierUnavailableError,
)
from model.tiers.jobs import Job
from model.tiers.mover import DeviceBlocks, Mover, Part


class MemoryStorage:
    """What outlives an engine: give it to the next one. `is_full`, `is_broken` and `is_stuck` are
    its faults; a test damages records by changing `payloads`."""

    def __init__(self, name: TierName = TierName.DISK, quota_records: int = 1000) -> None:
        self.name = name
        self.quota_bytes = quota_records
        self.payloads: dict[BlockHash, bytes] = {}
        self.records: dict[BlockHash, Record] = {}
        self.holds: dict[tuple[str, str], Hold] = {}
        self.damaged: set[BlockHash] = set()
        self.is_full = False
        self.is_broken = False
        self.is_stuck = False
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
        if self.is_stuck:
            raise TierUnavailableError("the medium lets go of nothing")
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

    def read_all(self, records: Sequence[Record], into: Sequence[memoryview]) -> Iterator[None]:
        for record, buffer in zip(records, into, strict=True):
            self.read(record, buffer)
            yield

    def verify(self) -> Iterator[Record | None]:
        for record in list(self.records.values()):
            self._require_working()
            if record.key in self.damaged and record.key in self.records:
                self.remove([record.key])
                yield record
            else:
                yield None

    def close(self) -> None:
        self.is_closed = True

    def _require_working(self) -> None:
        if self.is_broken:
            raise TierUnavailableError("the medium is broken")


class ManualRunner:
    """Carries a job out when a test says so, the most urgent first, on the test's own thread."""

    def __init__(self, storage: MemoryStorage, blocks: DeviceBlocks) -> None:
        self.storage = storage
        self._mover = Mover(storage, blocks.carrier())
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
            while not self._mover.carry_out(job, lambda: 0.0):
                pass
            self._done.append(job)

    def take_done(self) -> list[Job]:
        done, self._done = self._done, []
        return done

    def close(self, timeout_s: float) -> bool:
        self.run()
        self._mover.close()
        return True


class PlainCarrier:
    """Carries what `read` gives of a block's slots, and gives `write` what is to be a block. It
    reaches no memory."""

    def __init__(
        self,
        block_bytes: int,
        read: Callable[[int, int], bytes],
        write: Callable[[int, bytes], None],
        max_blocks: int,
    ) -> None:
        self.block_bytes = block_bytes
        self.max_blocks = max_blocks
        self._read = read
        self._write = write
        self._rooms: list[memoryview] = []

    def fetch(self, parts: Sequence[Part]) -> Sequence[memoryview]:
        return [memoryview(self._read(*part)) for part in parts]

    def rooms(self, block_ids: Sequence[int]) -> Sequence[memoryview]:
        self._rooms = [memoryview(bytearray(self.block_bytes)) for _ in block_ids]
        return self._rooms

    def put(self, block_ids: Sequence[int]) -> None:
        for block_id, room in zip(block_ids, self._rooms, strict=False):
            self._write(block_id, bytes(room))

    def reach(self, memory: memoryview) -> bool:
        return False

    def let_go(self) -> None:
        pass

    def fetch_into(self, parts: Sequence[Part], rooms: Sequence[memoryview]) -> None:
        raise AssertionError("nothing is reached")

    def put_from(self, block_ids: Sequence[int], payloads: Sequence[memoryview]) -> None:
        raise AssertionError("nothing is reached")


class NumberedBlocks:
    """Blocks of one byte each: what is in them is told by whoever set it."""

    def __init__(self, num_blocks: int, max_blocks: int = 1) -> None:
        self.contents = bytearray(num_blocks)
        self._max_blocks = max_blocks

    def carrier(self) -> PlainCarrier:
        return PlainCarrier(1, self._read, self._write, self._max_blocks)

    def _read(self, block_id: int, num_tokens: int) -> bytes:
        return bytes(self.contents[block_id : block_id + 1])

    def _write(self, block_id: int, payload: bytes) -> None:
        self.contents[block_id : block_id + 1] = payload
