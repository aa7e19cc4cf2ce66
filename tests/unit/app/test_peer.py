"""Work beside a body ends with it, and the other way round."""

import asyncio

import pytest

from app.errors import PeerGoneError
from app.peer import beside, closing


async def test_the_work_ends_with_the_body():
    ended = asyncio.Event()
    began = asyncio.Event()

    async def work():
        began.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    async with beside(work()):
        await began.wait()
    assert ended.is_set()


async def test_the_body_ends_with_the_work_and_raises_what_it_raised():
    async def work():
        raise PeerGoneError

    with pytest.raises(PeerGoneError):
        async with beside(work()):
            await asyncio.Event().wait()


async def test_what_the_body_raises_comes_out_as_it_is():
    error = KeyError("x")

    with pytest.raises(KeyError) as caught:
        async with beside(asyncio.Event().wait()):
            raise error
    assert caught.value is error


async def test_a_cancelled_body_stays_cancelled():
    began = asyncio.Event()

    async def body():
        async with beside(asyncio.Event().wait()):
            began.set()
            await asyncio.Event().wait()

    async with asyncio.TaskGroup() as tasks:
        task = tasks.create_task(body())
        await began.wait()
        task.cancel()
    assert task.cancelled()


async def test_an_iterator_left_early_is_closed_at_once():
    was_closed = []

    async def numbers():
        try:
            for number in range(9):
                yield number
        finally:
            was_closed.append(True)

    async with closing(numbers()) as events:
        async for _ in events:
            break
    assert was_closed
