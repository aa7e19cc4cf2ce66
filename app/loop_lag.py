"""How late the event loop comes to what is due: what every client waits for, beside all else.

Something is due every `PERIOD_S`; whatever holds the loop meanwhile (a long callback, a busy
machine) makes it late by so much.
"""

import asyncio
from collections.abc import AsyncIterator
from typing import Final

from aiohttp import web

from app.keys import METRICS
from app.peer import beside

PERIOD_S: Final = 0.05


async def watch_loop(app: web.Application) -> AsyncIterator[None]:
    """Count the loop's lateness in the metrics, while the application runs."""
    async with beside(_watch(app)):
        yield


async def _watch(app: web.Application) -> None:
    clock = asyncio.get_running_loop().time
    while True:
        due = clock() + PERIOD_S
        await asyncio.sleep(PERIOD_S)
        app[METRICS].loop_lag(max(0.0, clock() - due))
