"""Several replies to one prompt, generated at once and told as they come.

The first computes the prompt; the others wait in the engine for its blocks and share them.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import TypeVar

from app.peer import beside

T = TypeVar("T")

_MAX_WAITING = 64


async def merged(
    num_choices: int, start: Callable[[int], AsyncGenerator[T, None]]
) -> AsyncGenerator[tuple[int, T], None]:
    """The events of `start(0)` to `start(num_choices - 1)`, each with its number, as they come.

    What one of them raises ends them all.
    """
    if num_choices == 1:
        async with aclosing(start(0)) as events:
            async for event in events:
                yield 0, event
        return
    # Bounded: generations are not read faster than their reader takes them.
    waiting: asyncio.Queue[tuple[int, T] | None] = asyncio.Queue(_MAX_WAITING)

    async def read(number: int) -> None:
        async with aclosing(start(number)) as events:
            async for event in events:
                await waiting.put((number, event))

    async def read_all() -> None:
        try:
            async with asyncio.TaskGroup() as tasks:
                for number in range(num_choices):
                    tasks.create_task(read(number))
        except BaseExceptionGroup as group:
            # The first failure is why the others were ended.
            raise group.exceptions[0] from None
        await waiting.put(None)

    async with beside(read_all()):
        while (item := await waiting.get()) is not None:
            yield item
