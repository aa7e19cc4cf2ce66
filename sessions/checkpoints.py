"""A running turn's checkpoints: written beside its stream, one at a time.

A slow disk delays no token; it only makes checkpoints rarer.

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
        self._begun_at: datetime | None = None
        self._writing: asyncio.Task[None] | None = None

    def is_due(self, now: datetime) -> bool:
        """Whether there was none for so long; not while one is being written."""
        if self._writing is not None and not self._writing.done():
            return False
        return self._begun_at is None or (now - self._begun_at).total_seconds() >= self._every_s

    def begin(self, lease: Lease, checkpoint: Checkpoint, now: datetime) -> None:
        """Start to write one; the last must be over."""
        self.check()
        self._begun_at = now
        write = self._write(lease, checkpoint)
        # Ended by `settle` or `over`, which every way out of a turn passes.
        self._writing = asyncio.get_running_loop().create_task(write)

    def check(self) -> None:
        """Raise LeaseLostError, or whatever else the last one ended with."""
        if self._writing is not None and self._writing.done():
            self._writing.result()

    async def settle(self) -> None:
        """Wait for the one that is being written; raises as `check` does."""
        if self._writing is not None:
            await self._writing

    async def over(self) -> None:
        """Wait for the one that is being written, whatever comes of it."""
        if self._writing is not None:
            await asyncio.wait((self._writing,))

    async def _write(self, lease: Lease, checkpoint: Checkpoint) -> None:
        try:
            is_ours = await self._store.checkpoint(lease, checkpoint)
        except StoreUnavailableError as exc:
            # The next one, or the end, may still succeed.
            ids = self._turn.log_ids
            logger.warning("%s: no checkpoint: %s", self._turn.id, exc, extra=ids)
            return
        if not is_ours:
            raise LeaseLostError
