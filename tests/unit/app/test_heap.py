"""What a peak leaves behind in the heap goes back to the system while the server runs."""

import asyncio
import ctypes

import psutil
import pytest
from aiohttp import web

from app import heap
from app.heap import trim_heap

PIECE, NUM_PIECES = 8_000, 20_000


def _resident() -> int:
    return psutil.Process().memory_info().rss


@pytest.fixture
def app(monkeypatch):
    monkeypatch.setattr(heap, "PERIOD_S", 0.01)
    return web.Application()


async def test_the_holes_between_what_lives_on_go_back_to_the_system(app):
    assert hasattr(ctypes.CDLL(None), "malloc_trim"), "this test is about glibc"
    before = [bytes(PIECE) for _ in range(NUM_PIECES)]
    lives_on = before[::100]
    before.clear()
    peak = _resident()

    trimming = trim_heap(app)
    await anext(trimming)
    async with asyncio.timeout(20):
        while peak - _resident() < PIECE * NUM_PIECES // 2:  # noqa: ASYNC110 - nobody is told
            await asyncio.sleep(0.01)

    assert await anext(trimming, None) is None
    assert len(lives_on) == NUM_PIECES // 100


async def test_without_such_a_function_nothing_is_done(app, monkeypatch):
    monkeypatch.setattr(heap, "_malloc_trim", lambda: None)
    trimming = trim_heap(app)

    await anext(trimming)

    assert len(asyncio.all_tasks()) == 1
    assert await anext(trimming, None) is None
