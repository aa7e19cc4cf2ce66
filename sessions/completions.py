"""The ephemeral path: one generation from a whole list of messages, and no rows.

Nothing is parked; what a later call has in common is reused through the prefix index.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import aclosing, suppress
from typing import cast

from model.config import SamplingParams
from model.engine import Engine
from model.errors import EngineUnavailableError
from model.messages import (
    FinishReason,
    GenerationEvent,
    GenerationFinished,
    GenerationRequest,
)
from sessions.errors import DrainingError
from sessions.places import Places
from sessions.public_prefix import PublicPrefixes
from sessions.rendering import Renderer
from sessions.types import InputMessage, OwnerId
from sessions.validation import MAX_INPUT_CHARS, check_messages


async def _nobody_minds() -> None:
    pass


class Completions:
    """Renders and generates; remembers nothing."""

    def __init__(
        self,
        *,
        engine: Engine,
        max_input_chars: int = MAX_INPUT_CHARS,
        public_instructions: frozenset[str] = frozenset(),
        places: Places | None = None,
        on_begin: Callable[[], Awaitable[None]] = _nobody_minds,
    ) -> None:
        """`on_begin` is called before each generation."""
        self._on_begin = on_begin
        self._engine = engine
        self._public_instructions = public_instructions
        self._public: PublicPrefixes | None = None
        self._places = places or Places()
        self._max_input_chars = max_input_chars
        self._renderer: Renderer | None = None
        self._is_cut = False
        self._request_ids: set[str] = set()  # of what is generated now
        self._idle = asyncio.Event()
        self._idle.set()

    def use_renderer(self, renderer: Renderer) -> None:
        """Render with this from now on; until then `stream` raises EngineUnavailableError."""
        self._renderer = renderer
        self._public = PublicPrefixes(renderer, self._public_instructions)

    async def stream(
        self,
        owner: OwnerId,
        messages: tuple[InputMessage, ...],
        params: SamplingParams,
        *,
        request_id: str,
    ) -> AsyncIterator[GenerationEvent]:
        """Generate; leaving the iterator early (aclose) cancels.

        Raises InvalidInputError for messages that can't be rendered, TooManyTurnsError, and what
        the engine raises.
        """
        if self._renderer is None or self._public is None:
            raise EngineUnavailableError("the engine is starting")
        check_messages(messages, max_chars=self._max_input_chars)
        self._places.take(owner)
        self._request_ids.add(request_id)
        self._idle.clear()
        try:
            token_ids = await asyncio.to_thread(self._renderer.whole, messages)
            request = GenerationRequest(
                request_id=request_id,
                token_ids=token_ids,
                params=params,
                owner=owner,
                num_public_tokens=await asyncio.to_thread(self._public.count, messages, None),
            )
            await self._on_begin()
            generated = self._engine.generate(request)
            async with aclosing(cast("AsyncGenerator[GenerationEvent, None]", generated)) as events:
                async for event in events:
                    if self._is_cut and _was_cancelled(event):
                        # Half an answer would look like a whole one.
                        raise DrainingError("the server is stopping")
                    yield event
        finally:
            self._places.leave(owner)
            self._request_ids.discard(request_id)
            if not self._request_ids:
                self._idle.set()

    async def drain(self, timeout_s: float) -> None:
        """Give what is generated some time to end, then end it."""
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._idle.wait()
        await self.cut()

    async def cut(self) -> None:
        """End what is generated now, with DrainingError."""
        self._is_cut = True
        for request_id in tuple(self._request_ids):
            await self._engine.cancel(request_id)


def _was_cancelled(event: GenerationEvent) -> bool:
    return isinstance(event, GenerationFinished) and event.reason is FinishReason.CANCELLED
