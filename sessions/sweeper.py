"""Deletion for good: what was deleted longer ago than can be undone goes from store and engine,
and from the engine's tiers whatever the store doesn't know.

Any number of servers may sweep one database; a session is locked while it is purged.
"""

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime, timedelta

from model.engine import Engine
from model.errors import ModelError
from sessions.background import Background
from sessions.errors import StoreUnavailableError
from sessions.store import Store
from sessions.types import SessionId

logger = logging.getLogger(__name__)

SWEEP_S = 60.0


class Sweeper(Background):
    """An async context manager: while it is open, it sweeps now and then."""

    def __init__(
        self,
        *,
        store: Store,
        engine: Engine,
        clock: Callable[[], datetime],
        delete_grace_s: float,
        sweep_s: float = SWEEP_S,
    ) -> None:
        self._store = store
        self._engine = engine
        self._clock = clock
        self._grace = timedelta(seconds=delete_grace_s)
        self._sweep_s = sweep_s
        self._is_woken = asyncio.Event()
        # One at a time, so that what is found gone is released, and counted, once.
        self._reconciling = asyncio.Lock()
        # Those that a fork needs something of are due for as long as it lives.
        self._swept: frozenset[SessionId] = frozenset()

    async def sweep(self) -> int:
        """Purge what is due; how many sessions are gone now."""
        before = self._clock() - self._grace
        due = await self._store.due(before)
        num_gone = 0
        for session_id in due:
            num_gone += await self._store.purge(session_id, before)
            if await self._store.is_continued_elsewhere(session_id):
                continue  # its tables are what a fork goes on with
            with suppress(ModelError):  # `reconcile` does it once it is back
                await self._engine.release(session_id)
        if not self._swept.issuperset(due):
            await self._store.forget_deleted()
        self._swept = frozenset(due)
        return num_gone

    async def reconcile(self) -> int:
        """Have the engine forget, in every tier, the conversations that no living session has any
        more, nor goes on with; how many. What was deleted while it was away, or with it, is made
        good so. Raises ModelError, StoreUnavailableError."""
        async with self._reconciling:
            stored = await self._engine.stored_conversations()
            num_gone = 0
            for name in sorted(stored - await self._store.living(stored)):
                if not await self._store.is_continued_elsewhere(SessionId(name)):
                    await self._engine.release(name)
                    num_gone += 1
            return num_gone

    def wake(self) -> None:
        """Sweep now: the engine has come up, or has come back."""
        self._is_woken.set()

    async def _run(self) -> None:
        while True:
            try:
                num_gone = await self.sweep()
                if num_gone:
                    logger.info("%d deleted sessions are purged", num_gone)
                with suppress(ModelError):  # another time
                    num_stray = await self.reconcile()
                    if num_stray:
                        logger.info(
                            "conversations that are over and were erased from the tiers: %d",
                            num_stray,
                        )
            except StoreUnavailableError as exc:
                logger.warning("nothing is purged: %s", exc)
            with suppress(TimeoutError):
                async with asyncio.timeout(self._sweep_s):
                    await self._is_woken.wait()
            self._is_woken.clear()
