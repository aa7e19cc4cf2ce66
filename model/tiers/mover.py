"""Carries a tier's jobs out, on the tier's thread: between its medium and the device, in batches.

Invariants:
    nothing a medium does, and no bug in it, gets beyond a job's `error`
    an item counts as through when it is where it should be, whole and verified
"""

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Protocol

from model.tiers.base import Record, Storage, TierError
from model.tiers.jobs import Chore, Errand, Item, Job, Transfer, Urgency

logger = logging.getLogger(__name__)

_PIECE_S = 0.02
"""How long a chore keeps others waiting, if its steps are shorter than that."""


Part = tuple[int, int]
"""A block's id, and how many of its slots are to be carried: what lies behind them may be another
conversation's, and is zero in the copy."""


class Carrier(Protocol):
    """Takes blocks' bytes from the device to this process's memory and back, for one thread.

    What `fetch` and `rooms` give is right until the next call of either.
    """

    block_bytes: int
    max_blocks: int

    def fetch(self, parts: Sequence[Part]) -> Sequence[memoryview]:
        """The bytes of up to `max_blocks` blocks."""
        ...

    def rooms(self, block_ids: Sequence[int]) -> Sequence[memoryview]:
        """Where to write up to `max_blocks` blocks' bytes, to `put` them then."""
        ...

    def put(self, block_ids: Sequence[int]) -> None:
        """Bring what the first rooms have to the device: as many as are named here."""
        ...

    def reach(self, memory: memoryview) -> bool:
        """Whether blocks can be carried straight to and from this memory from now on; if they
        can't though there is a device, the log says why."""
        ...

    def let_go(self) -> None:
        """Reach it no more: it is about to be unmapped."""
        ...

    def fetch_into(self, parts: Sequence[Part], rooms: Sequence[memoryview]) -> None:
        """As `fetch`, to places in the memory that is reached; however many."""
        ...

    def put_from(self, block_ids: Sequence[int], payloads: Sequence[memoryview]) -> None:
        """As `put`, from places in the memory that is reached; however many."""
        ...


class DeviceBlocks(Protocol):
    """What transfers need of `kv_cache.KVCache`."""

    def carrier(self) -> Carrier:
        """A new one, for one thread."""
        ...


class OpenStorage(Storage, Protocol):
    """A storage whose records lie in memory that others can be let at (`tiers.cpu`)."""

    @property
    def memory(self) -> memoryview:
        """All of it; empty while the storage isn't open."""
        ...

    def payload_view(self, record: Record) -> memoryview:
        """A block's bytes where they are, verified. Raises RecordLostError."""
        ...

    def write_with(
        self, records: Sequence[Record], fill: Callable[[Mapping[int, memoryview]], None]
    ) -> Iterator[None]:
        """Have `fill` put blocks' bytes where they will be, by their places in `records`, and yield
        for each that is stored then. Raises TierFullError behind the last that had room."""
        ...


class Mover:
    """Carries one tier's jobs out, each when it is told to."""

    def __init__(
        self, storage: Storage, carrier: Carrier, direct: OpenStorage | None = None
    ) -> None:
        """`direct` is the storage once more, if the device may be let at its memory."""
        self._storage = storage
        self._carrier = carrier
        self._direct = direct if direct and carrier.reach(direct.memory) else None

    def carry_out(self, job: Job, clock: Callable[[], float]) -> bool:
        """Do a job, or a chore's next piece; whether it is over. What goes wrong with the medium is
        noted in it."""
        started = clock()
        try:
            if isinstance(job, Chore):
                return self._go_on(job, clock, started + _PIECE_S)
            if isinstance(job, Errand):
                job.result = job.action(self._storage)
            else:
                self._move_all(job)
        except TierError as exc:
            job.error = exc
        except Exception as exc:  # a tier's own bug is a miss too, and leaves its traceback
            logger.exception("a transfer failed")
            job.error = TierError(f"{type(exc).__name__}: {exc}")
        finally:
            if isinstance(job, Transfer):
                job.seconds = clock() - started
        return True

    def close(self) -> None:
        """Leave the medium in order for the next process."""
        self._carrier.let_go()
        self._storage.close()

    def _go_on(self, chore: Chore, clock: Callable[[], float], until_s: float) -> bool:
        if chore.steps is None:
            steps = chore.action(self._storage)
            assert isinstance(steps, Iterator), "a chore's action gives its steps"
            chore.steps, chore.result = steps, []
        assert isinstance(chore.result, list)
        for found in chore.steps:
            if found is not None:
                chore.result.append(found)
            if clock() >= until_s:
                return False
        return True

    def _move_all(self, transfer: Transfer) -> None:
        if transfer.source is not None:
            move = self._copy_down
        elif transfer.urgency is Urgency.RESTORE:
            move = self._restore if self._direct is None else self._restore_directly
        else:
            move = self._spill if self._direct is None else self._spill_directly
        while items := transfer.begin(self._carrier.max_blocks):
            move(transfer, items)

    def _restore(self, transfer: Transfer, items: Sequence[Item]) -> None:
        records, block_ids = [i.record for i in items], [i.block_id for i in items]
        num_read = 0
        try:
            for _ in self._storage.read_all(records, self._carrier.rooms(block_ids)):
                num_read += 1
        finally:
            # What was read before an error is right.
            self._carrier.put(block_ids[:num_read])
            transfer.finish(num_read)

    def _restore_directly(self, transfer: Transfer, items: Sequence[Item]) -> None:
        assert self._direct is not None
        payloads: list[memoryview] = []
        try:
            for item in items:
                payloads.append(self._direct.payload_view(item.record))
        finally:
            block_ids = [item.block_id for item in items[: len(payloads)]]
            self._carrier.put_from(block_ids, payloads)
            transfer.finish(len(payloads))

    def _spill(self, transfer: Transfer, items: Sequence[Item]) -> None:
        payloads = self._carrier.fetch(_parts(items))
        for item, payload in zip(items, payloads, strict=True):
            self._storage.write(item.record, payload)
            transfer.finish(1)

    def _spill_directly(self, transfer: Transfer, items: Sequence[Item]) -> None:
        assert self._direct is not None

        def fill(rooms: Mapping[int, memoryview]) -> None:
            self._carrier.fetch_into(_parts([items[i] for i in rooms]), list(rooms.values()))

        for _ in self._direct.write_with([item.record for item in items], fill):
            transfer.finish(1)

    def _copy_down(self, transfer: Transfer, items: Sequence[Item]) -> None:
        assert transfer.source is not None
        payload = memoryview(bytearray(self._carrier.block_bytes))
        for item in items:
            transfer.source.read(item.record, payload)
            self._storage.write(item.record, payload)
            transfer.finish(1)


def _parts(items: Sequence[Item]) -> list[Part]:
    return [(item.block_id, item.record.num_tokens) for item in items]
