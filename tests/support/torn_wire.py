"""Stands between a client and a server, and tears connections."""

import asyncio
import contextlib
from collections.abc import AsyncIterator


class TornWire:
    """Passes everything on, but tears a connection once so many bytes of answers have come through.

    `cuts` are those numbers, one for each connection to come; behind the last nothing is torn.
    """

    def __init__(self, port: int) -> None:
        self._port = port
        self._joined: set[asyncio.Task[None]] = set()
        self.cuts: list[int] = []
        self.num_torn = 0
        self.url = ""

    @contextlib.asynccontextmanager
    async def open(self) -> AsyncIterator["TornWire"]:
        server = await asyncio.start_server(self._join, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        try:
            yield self
        finally:
            server.close()
            for task in self._joined:
                task.cancel()
            await asyncio.gather(*self._joined, return_exceptions=True)

    async def _join(self, near: asyncio.StreamReader, client: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._joined.add(task)
        left = self.cuts.pop(0) if self.cuts else None
        far, server = await asyncio.open_connection("127.0.0.1", self._port)
        try:
            async with asyncio.TaskGroup() as tasks:
                asking = tasks.create_task(_pass_on(near, server))
                await self._answer(far, client, left)
                asking.cancel()
        finally:
            for writer in (client, server):
                writer.transport.abort()
                with contextlib.suppress(ConnectionError):
                    await writer.wait_closed()

    async def _answer(
        self, far: asyncio.StreamReader, client: asyncio.StreamWriter, left: int | None
    ) -> None:
        """Pass answers on until their end, or until so many bytes of them are left."""
        with contextlib.suppress(ConnectionError):  # the client was quicker to leave
            while data := await far.read(65536):
                if left is not None and len(data) >= left:
                    client.write(data[:left])
                    await client.drain()
                    self.num_torn += 1
                    return
                left = None if left is None else left - len(data)
                client.write(data)
                await client.drain()


async def _pass_on(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    with contextlib.suppress(ConnectionError):
        while data := await source.read(65536):
            target.write(data)
            await target.drain()
    target.transport.abort()
