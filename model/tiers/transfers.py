"""One tier's thread: blocks on their way between the device and a medium.

The engine's thread queues jobs and never waits; the thread carries them out one after the other,
restores before spills, and hands them back through `take_done`. Nothing a medium does can make a
step fail or wait: an error is a part of the job's outcome, and a job that takes too long is
abandoned, after which the thread touches no block of it but those it is busy with.

Invariants:
    a queued job is handed back exactly once, whatever happens to it
"""

import logging
import queue
import threading
from collections.abc import Callable
from itertools import count

from model.tiers.base import Storage, TierError
from model.tiers.jobs import Job, Urgency
from model.tiers.mover import DeviceBlocks, Mover, OpenStorage

logger = logging.getLogger(__name__)


class Transfers:
    """One tier's thread and its queue, which whoever fills it bounds (`spills`, `restores`)."""

    def __init__(
        self,
        storage: Storage,
        blocks: DeviceBlocks,
        clock: Callable[[], float],
        wake: Callable[[], None],
        direct: OpenStorage | None = None,
    ) -> None:
        """`direct` as for a `Mover`; the storage is open."""
        self.storage = storage
        self._mover = Mover(storage, blocks.carrier(), direct)
        self._clock = clock
        self._wake = wake
        self._order = count()
        self._jobs: queue.PriorityQueue[tuple[int, int, Job | None]] = queue.PriorityQueue()
        self._done: queue.SimpleQueue[Job] = queue.SimpleQueue()
        self._is_closing = threading.Event()
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
        """Carry out what is queued, but for what is left of chores, and close the medium; whether
        that was done in time."""
        self._is_closing.set()
        self._jobs.put((max(Urgency) + 1, next(self._order), None))
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _run(self) -> None:
        while (job := self._jobs.get()[2]) is not None:
            is_over = self._mover.carry_out(job, self._clock)
            if not is_over and not self._is_closing.is_set():
                self.start(job)  # behind what waits, before what is less urgent
                continue
            self._done.put(job)
            self._wake()
        try:
            self._mover.close()
        except TierError:
            logger.exception("the %s tier can't be closed", self.storage.name)
