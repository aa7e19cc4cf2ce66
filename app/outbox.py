"""What a websocket still has to send: one bounded queue, one writer, a deadline on every send.

A full outbox makes its pumps wait and nobody else: their turns go on, and their feeds remember.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, NoReturn

import orjson
from aiohttp import ClientConnectionResetError, WSMsgType, web

from app.errors import PeerGoneError
from app.peer import abort

HURRIED_S = 0.5


class SlowReaderError(PeerGoneError):
    """The peer took nothing for a whole deadline; its connection was dropped."""


class Outbox:
    """`put` from any task; `run` in exactly one."""

    def __init__(
        self, ws: web.WebSocketResponse, request: web.Request, *, size: int, send_timeout_s: float
    ) -> None:
        self._ws = ws
        self._request = request
        self._send_timeout_s = send_timeout_s
        # Bounded by `size` frames; None wakes a writer that has nothing left to send.
        self._frames: asyncio.Queue[bytes | None] = asyncio.Queue(size)
        self._close_code = 1000
        self._deadline: asyncio.Timeout | None = None  # of the send that goes on
        self.is_closing = False

    async def put(self, value: dict[str, Any]) -> None:
        """Queue one frame; waits while the queue is full, and drops it behind a goodbye."""
        if not self.is_closing:
            await self._frames.put(orjson.dumps(value))

    def close(self, code: int) -> None:
        """Say goodbye with this code once everything queued is sent. Never waits."""
        self.is_closing, self._close_code = True, code
        if not self._frames.full():
            self._frames.put_nowait(None)

    def hurry(self) -> None:
        """Give the peer `HURRIED_S` for each send from now on, the present one too."""
        self._send_timeout_s = min(self._send_timeout_s, HURRIED_S)
        if self._deadline is not None and not self._deadline.expired():
            self._deadline.reschedule(asyncio.get_running_loop().time() + HURRIED_S)

    async def run(self) -> NoReturn:
        """Send until the socket is over, then raise PeerGoneError, whichever side ended it."""
        while not (self.is_closing and self._frames.empty()):
            frame = await self._frames.get()
            if frame is None:
                break
            await self._send(frame)
        await self.hang_up(self._close_code)
        raise PeerGoneError

    async def _send(self, frame: bytes) -> None:
        try:
            async with self._within_the_deadline():
                await self._ws.send_frame(frame, WSMsgType.TEXT)
        except TimeoutError:
            # No close frame can reach one who doesn't read, so the connection is dropped.
            abort(self._request)
            raise SlowReaderError from None
        except ClientConnectionResetError:
            raise PeerGoneError from None

    async def hang_up(self, code: int) -> None:
        """Say goodbye within the deadline, or drop the connection."""
        try:
            async with self._within_the_deadline():
                await self._ws.close(code=code)
        except TimeoutError:
            abort(self._request)

    @asynccontextmanager
    async def _within_the_deadline(self) -> AsyncIterator[None]:
        try:
            async with asyncio.timeout(self._send_timeout_s) as self._deadline:
                yield
        finally:
            self._deadline = None
