"""A running turn's checkpoints: written beside its stream, one at a time.

A slow disk delays no token: of those that come while one is being written the newest is written
behind it, and the others are not.

Invariant: nothing is written behind `settle` or `over`, so that a turn's end is the last word.
"""

import asyncio
import logging
from datetime import datetime

from sessions.errors import StoreUnavailableError
from sessions.store import Store
from sessions.turn_writes import Checkpoint, Lease
from sessions.types import Turn

logger = logging.getLogger(__name__)


class LeaseLostError(Exception):
    """The turn belongs to somebody else now."""


class Checkpoints:
    """One turn's. What a write found is raised by the next `check`, or by `settle`."""

    def __init__(self, store: Store, turn: Turn, *, every_s: float) -> None:
        self._store = store
        self._turn = turn
        self._every_s = every_s
        self._taken_at: datetime | None = None
        self._next: tuple[Lease, Checkpoint] | None = None
        self._writing: asyncio.Task[None] | None = None

    def is_due(self, now: datetime) -> bool:
        """Whether there was none for so long."""
        return self._taken_at is None or (now - self._taken_at).total_seconds() >= self._every_s

    def take(self, lease: Lease, checkpoint: Checkpoint, now: datetime) -> None:
        """Have one written, at once or behind the one that is being written; raises as `check`."""
        self.check()
        self._taken_at = now
        self._next = lease, checkpoint
        if self._writing is None or self._writing.done():
            # Ended by `settle` or `over`, which every way out of a turn passes.
            self._writing = asyncio.get_running_loop().create_task(self._write_all())

    def check(self) -> None:
        """Raise LeaseLostError, or whatever else the last one ended with."""
        if self._writing is not None and self._writing.done():
            self._writing.result()

    async def settle(self) -> None:
        """Wait until all is written; raises as `check` does."""
        if self._writing is not None:
            await self._writing

    async def over(self) -> None:
        """Wait until all is written, whatever comes of it."""
        if self._writing is not None:
            await asyncio.wait((self._writing,))

    async def _write_all(self) -> None:
        while self._next is not None:
            lease, checkpoint = self._next
            self._next = None
            await self._write(lease, checkpoint)

    async def _write(self, lease: Lease, checkpoint: Checkpoint) -> None:
        try:
            is_ours = await self._store.checkpoint(lease, checkpoint)
        except StoreUnavailableError as exc:
            # The next one, or the end, may still succeed.
            logger.warning("%s: no checkpoint: %s", self._turn.id, exc)
            return
        if not is_ours:
            raise LeaseLostError
