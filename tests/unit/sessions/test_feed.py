"""The feed: any number of readers, each with a cursor of its own."""

import asyncio

from hypothesis import given
from hypothesis import strategies as st

from sessions.feed import TurnFeed
from sessions.types import ItemId, ReplyDelta, TurnEnded
from tests.support.turns import make_turn

END = TurnEnded(make_turn())


def piece(number: int) -> ReplyDelta:
    return ReplyDelta(ItemId("msg_1"), str(number))


async def read(feed: TurnFeed, after: int = -1) -> list:
    return [numbered async for numbered in feed.read(after)]


async def test_a_reader_gets_what_was_there_before_it_came():
    feed = TurnFeed()
    feed.append(piece(0), piece(1), END)

    assert await read(feed) == [(0, piece(0)), (1, piece(1)), (2, END)]


async def test_a_reader_that_caught_up_waits_for_more():
    feed = TurnFeed()
    feed.append(piece(0))
    reader = feed.read()

    assert await anext(reader) == (0, piece(0))
    next_one = asyncio.ensure_future(anext(reader))
    await asyncio.sleep(0)
    assert not next_one.done()
    feed.append(piece(1))

    assert await next_one == (1, piece(1))


async def test_a_cursor_skips_what_was_seen():
    feed = TurnFeed()
    feed.append(piece(0), piece(1), END)

    assert await read(feed, after=0) == [(1, piece(1)), (2, END)]


async def test_a_cursor_behind_the_end_still_gets_the_end():
    feed = TurnFeed()
    feed.append(piece(0), END)

    assert await read(feed, after=1) == [(1, END)]
    assert await read(feed, after=99) == [(1, END)]


@given(st.lists(st.integers(1, 4), max_size=8), st.lists(st.integers(-1, 20), max_size=5))
def test_every_reader_sees_every_event_behind_its_cursor_in_order(bursts, cursors):
    async def scenario() -> None:
        feed = TurnFeed()
        readers = [asyncio.ensure_future(read(feed, after)) for after in cursors]
        total = 0
        for size in bursts:
            feed.append(*(piece(total + n) for n in range(size)))
            total += size
            await asyncio.sleep(0)
        feed.append(END)

        everything = [*((n, piece(n)) for n in range(total)), (total, END)]
        for after, got in zip(cursors, await asyncio.gather(*readers), strict=True):
            assert got == (everything[after + 1 :] or everything[-1:])

    asyncio.run(scenario())
