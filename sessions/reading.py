"""A turn's events for whoever reads them: live from its feed, or made again from the store."""

import asyncio
from collections.abc import AsyncIterator

from sessions.replay import replay
from sessions.running import RunningTurns
from sessions.store import Store
from sessions.types import OwnerId, TurnEnded, TurnEvent, TurnId


class Reader:
    """Reads turns; holds no state of its own."""

    def __init__(self, store: Store, running: RunningTurns, *, poll_s: float) -> None:
        self._store = store
        self._running = running
        self._poll_s = poll_s

    async def read(
        self, owner: OwnerId, turn_id: TurnId, after: int
    ) -> AsyncIterator[tuple[int, TurnEvent]]:
        """(sequence number, event) behind `after`; always ends with `TurnEnded`."""
        # Looked up before the store is asked: its feed stays whole even if it ends meanwhile.
        runner = self._running.get(turn_id)
        turn = await self._store.turn(owner, turn_id)
        if runner is not None:
            async for numbered in runner.feed.read(after):
                yield numbered
            return
        while True:
            for number, event in enumerate(replay(turn)):
                is_end = isinstance(event, TurnEnded)
                if number > after or is_end:
                    yield number, event
                if is_end:
                    return
                after = max(after, number)
            # It runs on another server, whose checkpoints are all that can be seen from here.
            await asyncio.sleep(self._poll_s)
            turn = await self._store.turn(owner, turn_id)
