"""Several streams as one."""

import asyncio
from contextlib import aclosing

import pytest

from app.openai.choices import merged


class Streams:
    """Streams whose ends are seen."""

    def __init__(self, *, fails: int | None = None, size: int = 3) -> None:
        self.closed: list[int] = []
        self._fails = fails
        self._size = size

    async def start(self, number: int):
        try:
            for step in range(self._size):
                await asyncio.sleep(0)
                if number == self._fails and step == 1:
                    raise LookupError(str(number))
                yield f"{number}.{step}"
        finally:
            self.closed.append(number)


@pytest.mark.parametrize("num", [1, 2, 5])
async def test_each_event_has_its_streams_number_and_its_place_in_it(num):
    streams = Streams()

    told = [item async for item in merged(num, streams.start)]

    for number in range(num):
        assert [text for n, text in told if n == number] == [f"{number}.{s}" for s in range(3)]
    assert sorted(streams.closed) == list(range(num))


@pytest.mark.parametrize("num", [1, 4])
async def test_what_one_raises_ends_them_all(num):
    streams = Streams(fails=0, size=1000)

    with pytest.raises(LookupError):
        _ = [item async for item in merged(num, streams.start)]

    assert sorted(streams.closed) == list(range(num))


@pytest.mark.parametrize("num", [1, 4])
async def test_leaving_early_closes_them_all(num):
    streams = Streams(size=1000)

    async with aclosing(merged(num, streams.start)) as events:
        await anext(events)

    assert set(streams.closed) <= set(range(num))
    assert 0 in streams.closed
