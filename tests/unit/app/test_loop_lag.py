"""What holds the event loop is seen in its lag, and what does not is not."""

import asyncio
import time

from aiohttp import web

from app.keys import METRICS
from app.loop_lag import PERIOD_S, watch_loop
from app.metrics import AppMetrics


class Lags(AppMetrics):
    """Keeps what is counted, and tells of it."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: asyncio.Queue[float] = asyncio.Queue()

    def loop_lag(self, late_s: float) -> None:
        super().loop_lag(late_s)
        self.seen.put_nowait(late_s)


async def test_a_callback_that_holds_the_loop_makes_it_late():
    app, lags = web.Application(), Lags()
    app[METRICS] = lags
    watching = watch_loop(app)
    await anext(watching)
    await lags.seen.get()

    time.sleep(PERIOD_S + 0.2)  # noqa: ASYNC251 - this is what is measured

    assert await lags.seen.get() >= 0.2
    assert await anext(watching, None) is None
    text = lags.render(num_active=0, is_ready=True, engine=None).decode()
    assert "splice_loop_lag_seconds_count 2.0" in text
