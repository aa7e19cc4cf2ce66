"""What a tier's thread is asked to do: blocks to move, and errands.

The engine's thread makes jobs, the tier's thread carries them out, and both look at a transfer
meanwhile, which therefore has a lock.

Invariants:
    a block that `abandon` has given back isn't touched any more
"""

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import IntEnum
from typing import NamedTuple, Protocol

from model.messages import TierName
from model.tiers.base import Record, Storage, TierError


class Urgency(IntEnum):
    """Which jobs a thread takes first."""

    RESTORE = 0
    ERASE = 1
    SPILL = 2


class Item(NamedTuple):
    """A record, and the device's block that it is read from or restored to. A tuple, for it is made
    while a sequence waits, for every block of a long history."""

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
    _current: tuple[Item, ...] = ()
    _is_abandoned: bool = False

    def begin(self, max_items: int) -> tuple[Item, ...]:
        """The thread's next items, which it is busy with from now on; none when there are none, or
        nobody wants them any more."""
        with self._lock:
            following = self.items[self.num_done : self.num_done + max_items]
            self._current = () if self._is_abandoned else following
            return self._current

    def finish(self, num_items: int) -> None:
        """The first so many of the current items are through."""
        with self._lock:
            self.num_done += num_items
            self._current = self._current[num_items:]

    def abandon(self) -> tuple[int, frozenset[int]]:
        """Nobody waits any more: how many items are through, and the blocks that the thread may
        still touch until the job is handed back, which are those it is busy with or none."""
        with self._lock:
            self._is_abandoned = True
            return self.num_done, frozenset(item.block_id for item in self._current)


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


@dataclass(slots=True, eq=False)
class Chore(Errand):
    """An errand that takes long: its action gives an iterator that does a little at each step, and
    others' jobs go between. The result is what the steps gave, but for None."""

    steps: Iterator[object] | None = None


Job = Transfer | Errand


class JobRunner(Protocol):
    """What a tier needs of `transfers.Transfers`."""

    storage: Storage

    def start(self, job: Job) -> None:
        """Queue a job."""
        ...

    def take_done(self) -> list[Job]:
        """The jobs that are over since the last call."""
        ...

    def close(self, timeout_s: float) -> bool:
        """Carry out what is queued, then close the medium; whether it was done in time."""
        ...
