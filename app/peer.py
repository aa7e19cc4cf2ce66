"""The other end of a connection: whether it is still there, and work that ends with ours.

aiohttp doesn't cancel a handler whose client left, so a handler that must know asks for it here.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from aiohttp import web

from app.errors import PeerGoneError

T = TypeVar("T")

POLL_S = 0.25
"""How late a lost connection may be noticed; the transport offers no event to wait for."""


def is_gone(request: web.Request) -> bool:
    """Tell whether the connection of a request is lost."""
    return request.transport is None or request.transport.is_closing()


def abort(request: web.Request) -> None:
    """Drop the connection at once, with whatever it has not taken."""
    if request.transport is not None:
        request.transport.abort()


async def until_gone(request: web.Request) -> None:
    """Wait for the connection to be lost, then raise PeerGoneError."""
    while not is_gone(request):  # noqa: ASYNC110 - there is no event to wait for
        await asyncio.sleep(POLL_S)
    raise PeerGoneError


@asynccontextmanager
async def beside(work: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Run `work` beside the body. It ends with the body; when it raises, the body ends with it."""
    try:
        async with asyncio.TaskGroup() as tasks:
            task = tasks.create_task(work)
            yield
            task.cancel()
    except BaseExceptionGroup as group:
        # One body and one task: what ended either is the whole story.
        raise group.exceptions[0] from None


@asynccontextmanager
async def closing(events: AsyncIterator[T]) -> AsyncIterator[AsyncIterator[T]]:
    """Close an iterator at the end of the body, so that leaving early takes effect at once."""
    try:
        yield events
    finally:
        if isinstance(events, AsyncGenerator):
            await events.aclose()
