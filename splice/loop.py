"""An event loop in a thread of its own, on which a synchronous client does its work."""

import asyncio
import threading
from collections.abc import AsyncIterator, Coroutine, Iterator
from typing import Any, TypeVar

T = TypeVar("T")


class Loop:
    """Runs coroutines for any thread, until it is closed; the thread ends with the program."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(
            target=self._loop.run_forever, name="splice-client", daemon=True
        )
        self._thread.start()

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """The coroutine's result, waited for. Raises RuntimeError once the loop is closed."""
        if self._loop.is_closed():
            coroutine.close()
            raise RuntimeError("the client is closed")
        future = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        try:
            return future.result()
        except BaseException:
            # Ctrl-C in the caller's thread: what it waited for is of no use to anybody.
            future.cancel()
            raise

    def iterate(self, source: AsyncIterator[T]) -> Iterator[T]:
        """What an asynchronous iterator gives, each waited for."""

        async def following() -> T:
            return await anext(source)

        while True:
            try:
                item = self.run(following())
            except StopAsyncIteration:
                return
            yield item

    @property
    def is_closed(self) -> bool:
        """Whether nothing can be run any more."""
        return self._loop.is_closed()

    def close(self) -> None:
        """End the thread; what still runs on it is left where it is."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
