"""A turn's events, read as they come."""

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from typing import Self

from splice.errors import ConnectionLostError
from splice.events import Event, TextDelta, TurnEvent
from splice.types import Turn

Stopper = Callable[[Turn | None], Awaitable[Turn | None]]
"""Stops a turn; of one whose first event was not read it has another way to know it."""


class AsyncStream:
    """A turn's events as they come, each once: an async iterator, to be read by one reader.

    A lost connection is made again and the stream goes on where it was. Nothing is sent before the
    first event is asked for.
    """

    def __init__(
        self, events: AsyncGenerator[Event, None], stopper: Stopper, starting_after: int = -1
    ) -> None:
        self._events = events
        self._stopper = stopper
        self.turn: Turn | None = None
        self.last_sequence_number = starting_after

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Event:
        event = await anext(self._events)
        self.last_sequence_number = event.sequence_number
        if isinstance(event, TurnEvent):
            self.turn = event.turn
        return event

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    @property
    async def text_stream(self) -> AsyncIterator[str]:
        """Only the reply's text, piece by piece."""
        async for event in self:
            if isinstance(event, TextDelta):
                yield event.delta

    async def final(self) -> Turn:
        """Read to the end; the turn as it ended."""
        async for _ in self:
            pass
        if self.turn is None or self.turn.is_running:
            raise ConnectionLostError("the stream was closed before the turn ended")
        return self.turn

    async def stop(self) -> Turn | None:
        """Stop the turn at the server: as it ended, with what there is of its reply, and None where
        it had not begun. Whoever reads still gets the last event."""
        return await self._stopper(self.turn)

    async def close(self) -> None:
        """Read no more; the turn goes on."""
        await self._events.aclose()
