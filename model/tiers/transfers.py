"""Blocks on their way between the device and a tier, one thread a tier.

The engine's thread queues jobs and never waits; a thread carries them out one after the other,
restores before spills, and hands them back through `take_done`. Nothing a medium does can make a
step fail or wait: an error is a part of the job's outcome, and a job that takes too long is
abandoned, after which its thread touches no block of it but the one it is busy with.

Invariants:
    a queued job is handed back exactly once, whatever happens to it
    a block that `abandon` has given back isn't touched any more
"""

import logging
import queue
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from enum import IntEnum
from itertools import count
from typing import Protocol

from model.messages import TierName
from model.tiers.base import Record, Storage, TierError

logger = logging.getLogger(__name__)


class DeviceBlocks(Protocol):
    """What transfers need of `kv_cache.KVCache`. Each call is about one block."""

    @property
    def block_bytes(self) -> int:
        """A block's size."""
        ...

    def in_place(self, block_id: int) -> memoryview | None:
        """A block's own bytes, if this process can address them."""
        ...

    def reading(self, block_id: int, num_tokens: int) -> AbstractContextManager[memoryview]:
        """A block's bytes to store; what lies behind its first `num_tokens` slots is zero."""
        ...

    def writing(self, block_id: int) -> AbstractContextManager[memoryview]:
        """Room for a block's bytes, which are on the device when the context ends."""
        ...


class Urgency(IntEnum):
    """Which jobs a thread takes first."""

    RESTORE = 0
    ERASE = 1
    SPILL = 2


@dataclass(frozen=True, slots=True)
class Item:
    """A record, and the device's block that it is read from or restored to."""

    record: Record
    block_id: int


@dataclass(slots=True, eq=False)
class Transfer:
    """Blocks to move. The first `num_done` items are through; `error` is what ended it before the
    last.

    With a `source` it spills from that tier and not from the device, and `block_id` says nothing.
    `seconds` is what the thread was busy with it.
    """

    tier: TierName
    urgency: Urgency
    items: tuple[Item, ...]
    source: Storage | None = None
    num_done: int = 0
    error: TierError | None = None
    seconds: float = 0.0
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _current: Item | None = None
    _is_abandoned: bool = False

    def begin_next(self) -> Item | None:
        """The thread's next item; None when there is none, or nobody wants it any more."""
        with self._lock:
            is_over = self._is_abandoned or self.num_done == len(self.items)
            self._current = None if is_over else self.items[self.num_done]
            return self._current

    def finish_current(self) -> None:
        """The current item is through."""
        with self._lock:
            self.num_done += 1
            self._current = None

    def abandon(self) -> tuple[int, frozenset[int]]:
        """Nobody waits any more: how many items are through, and the blocks that the thread may
        still touch until the job is handed back, which is the one it is busy with or none."""
        with self._lock:
            self._is_abandoned = True
            busy = (self._current.block_id,) if self._current else ()
            return self.num_done, frozenset(busy)


@dataclass(slots=True, eq=False)
class Errand:
    """Anything else that a medium is asked for. On the engine's thread `on_done` gets the action's
    result, or `on_failed` is told; `error` is how it failed."""

    tier: TierName
    urgency: Urgency
    action: Callable[[Storage], object]
    on_done: Callable[[object], None] | None = None
    on_failed: Callable[[], None] | None = None
    error: TierError | None = None
    result: object = None


Job = Transfer | Errand


class Transfers:
    """One tier's thread and its queue, which is bounded by whoever fills it (`tiers.ladder`)."""

    def __init__(
        self,
        storage: Storage,
        blocks: DeviceBlocks,
        clock: Callable[[], float],
        wake: Callable[[], None],
    ) -> None:
        self.storage = storage
        self._blocks = blocks
        self._clock = clock
        self._wake = wake
        self._order = count()
        self._jobs: queue.PriorityQueue[tuple[int, int, Job | None]] = queue.PriorityQueue()
        self._done: queue.SimpleQueue[Job] = queue.SimpleQueue()
        self._thread = threading.Thread(
            target=self._run, name=f"{storage.name} transfers", daemon=True
        )
        self._thread.start()

    def start(self, job: Job) -> None:
        """Queue a job."""
        self._jobs.put((job.urgency, next(self._order), job))

    def take_done(self) -> list[Job]:
        """The jobs that are over since the last call."""
        done: list[Job] = []
        while True:
            try:
                done.append(self._done.get_nowait())
            except queue.Empty:
                return done

    def close(self, timeout_s: float) -> bool:
        """Carry out what is queued and close the medium; whether that was done in time."""
        self._jobs.put((max(Urgency) + 1, next(self._order), None))
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _run(self) -> None:
        while (job := self._jobs.get()[2]) is not None:
            carry_out(job, self.storage, self._blocks, self._clock)
            self._done.put(job)
            self._wake()
        try:
            self.storage.close()
        except TierError:
            logger.exception("the %s tier can't be closed", self.storage.name)


def carry_out(job: Job, storage: Storage, blocks: DeviceBlocks, clock: Callable[[], float]) -> None:
    """Do a job on this thread; what goes wrong with the medium is noted in it."""
    started = clock()
    try:
        if isinstance(job, Errand):
            job.result = job.action(storage)
        else:
            _move_all(job, storage, blocks)
    except TierError as exc:
        job.error = exc
    except Exception as exc:  # a tier's own bug is a miss too, and leaves its traceback
        logger.exception("a transfer failed")
        job.error = TierError(f"{type(exc).__name__}: {exc}")
    finally:
        if isinstance(job, Transfer):
            job.seconds = clock() - started


def _move_all(transfer: Transfer, storage: Storage, blocks: DeviceBlocks) -> None:
    while (item := transfer.begin_next()) is not None:
        if transfer.urgency is Urgency.RESTORE:
            _restore(item, storage, blocks)
        elif transfer.source is not None:
            payload = memoryview(bytearray(blocks.block_bytes))
            transfer.source.read(item.record, payload)
            storage.write(item.record, payload)
        else:
            with blocks.reading(item.block_id, item.record.num_tokens) as view:
                storage.write(item.record, view)
        transfer.finish_current()


def _restore(item: Item, storage: Storage, blocks: DeviceBlocks) -> None:
    if (view := blocks.in_place(item.block_id)) is not None:
        storage.read(item.record, view)
        return
    with blocks.writing(item.block_id) as view:
        storage.read(item.record, view)
