"""A scripted server in a thread of its own, for clients that block."""

import asyncio
import threading

from tests.support.scripted_api import Answer, ScriptedApi


class ServerThread:
    """Serves a script while its block is open."""

    def __init__(self, *answers: Answer) -> None:
        self.api = ScriptedApi(*answers)
        self._is_ready = threading.Event()
        self._thread = threading.Thread(target=asyncio.run, args=(self._run(),))

    def __enter__(self) -> ScriptedApi:
        self._thread.start()
        assert self._is_ready.wait(5)
        return self.api

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._is_over.set)
        self._thread.join()

    async def _run(self) -> None:
        self._loop, self._is_over = asyncio.get_running_loop(), asyncio.Event()
        async with self.api.serving():
            self._is_ready.set()
            await self._is_over.wait()
