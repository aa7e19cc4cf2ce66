"""An event loop in a thread of its own, on which a synchronous client does its work."""

import asyncio
import concurrent.futures
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
        # What is taken on before the end is ended with it, and what comes later isn't taken on.
        self._door = threading.Lock()
        self._is_closed = False

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """The coroutine's result, waited for. Raises RuntimeError once the loop is closed, also
        where it is closed meanwhile."""
        with self._door:
            if self._is_closed:
                coroutine.close()
                raise RuntimeError("the client is closed")
            future = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        try:
            return future.result()
        except concurrent.futures.CancelledError as exc:
            raise RuntimeError("the client is closed") from exc
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

    def close(self, last: Coroutine[Any, Any, None]) -> None:
        """Run one more, then end the thread, and with it whatever others wait for; twice does no
        harm."""
        with self._door:
            if self._is_closed:
                last.close()
                return
            self._is_closed = True
        try:
            asyncio.run_coroutine_threadsafe(self._end(last), self._loop).result()
        finally:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()

    async def _end(self, last: Coroutine[Any, Any, None]) -> None:
        running = asyncio.all_tasks() - {asyncio.current_task()}
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        await last
