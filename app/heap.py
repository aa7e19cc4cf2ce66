"""Gives memory that has become free back to the system.

glibc's heap shrinks only at its end. Behind a peak (events that wait for peers that don't read, a
large import) its free pages stay with the process, and as what lives on is scattered among them,
the process grows for a long time although it holds no more than before.
"""

import asyncio
import ctypes
from collections.abc import AsyncIterator, Callable
from typing import Final

from aiohttp import web

from app.peer import beside

PERIOD_S: Final = 10.0


async def trim_heap(app: web.Application) -> AsyncIterator[None]:
    """Give back what is free every `PERIOD_S`, while the application runs."""
    trim = _malloc_trim()
    if trim is None:
        yield
        return
    async with beside(_trim_regularly(trim)):
        yield


def _malloc_trim() -> Callable[[ctypes.c_size_t], int] | None:
    """The heap's own function, which other C libraries than glibc don't have."""
    return getattr(ctypes.CDLL(None), "malloc_trim", None)


async def _trim_regularly(trim: Callable[[ctypes.c_size_t], int]) -> None:
    while True:
        await asyncio.sleep(PERIOD_S)
        # Two to ten milliseconds for a hundred megabytes, in which whoever allocates waits, the
        # event loop too: often, so that each time it is little.
        await asyncio.to_thread(trim, ctypes.c_size_t(0))
