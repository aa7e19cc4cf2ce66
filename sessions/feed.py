"""A running turn's events so far: append-only, read from any cursor by any number of readers.

A position in the feed is the event's sequence number. One writer, all on one event loop; a slow
reader only has an older cursor, and delays nobody.

Unbounded, yet bounded: a turn makes at most one event a token and a handful around them, and the
feed goes when its turn has ended and the last reader has left.
"""

import asyncio
from collections.abc import AsyncIterator

from sessions.types import TurnEnded, TurnEvent


class TurnFeed:
    """The events of one turn. `TurnEnded` closes it."""

    def __init__(self) -> None:
        self._events: list[TurnEvent] = []
        self._changed = asyncio.Event()

    @property
    def is_closed(self) -> bool:
        """Whether the terminal event is in."""
        return bool(self._events) and isinstance(self._events[-1], TurnEnded)

    def append(self, *events: TurnEvent) -> None:
        """Add events and wake every reader that has caught up."""
        for event in events:
            assert not self.is_closed, "append after the end"
            self._events.append(event)
        # Waiters hold the old event; those who look from now on wait for the next.
        self._changed.set()
        self._changed = asyncio.Event()

    async def read(self, after: int = -1) -> AsyncIterator[tuple[int, TurnEvent]]:
        """Yield (position, event) behind `after`, live, and return behind the terminal event.

        The terminal event comes even when `after` already lies behind it.
        """
        position = after + 1
        while True:
            changed = self._changed  # taken before looking, so that no append is missed
            while position < len(self._events):
                yield position, self._events[position]
                position += 1
            if self.is_closed:
                break
            await changed.wait()
        last = len(self._events) - 1
        if after >= last:
            yield last, self._events[last]
