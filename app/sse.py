"""Server-sent events: one response that grows, kept alive, with a deadline on every write.

Nothing is sent before the first event or the first keep-alive, so that an error which comes
earlier still gets its own status. Afterwards it becomes the stream's last event.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable
from typing import Any

import orjson
from aiohttp import ClientConnectionResetError, web

from app.errors import PeerGoneError, WireError, boundary
from app.keys import CONFIG, METRICS, REQUEST_ID
from app.peer import POLL_S, abort, beside, is_gone

DONE = b"data: [DONE]\n\n"
KEEP_ALIVE = b": keep-alive\n\n"

_HEADERS = {
    "Content-Type": "text/event-stream; charset=utf-8",
    "Cache-Control": "no-store",
    # Proxies that gather a response before they pass it on would undo the streaming.
    "X-Accel-Buffering": "no",
}


def data_event(value: dict[str, Any]) -> bytes:
    """Write an event without a name."""
    return b"data: " + orjson.dumps(value) + b"\n\n"


def named_event(value: dict[str, Any]) -> bytes:
    """Write an event named by its `type`."""
    return b"event: " + str(value["type"]).encode() + b"\n" + data_event(value)


def named_error(error: WireError) -> bytes:
    """Write an error into a stream of named events."""
    return named_event(error.frame())


class SseStream:
    """The response, and the rules of writing to it."""

    def __init__(self, request: web.Request, *, keepalive_s: float, send_timeout_s: float) -> None:
        self._request = request
        self._keepalive_s = keepalive_s
        self._send_timeout_s = send_timeout_s
        self._turn_to_write = asyncio.Lock()
        self._last_write = asyncio.get_running_loop().time()
        self.response = web.StreamResponse(headers=_HEADERS)

    async def send(self, data: bytes) -> None:
        """Write within the deadline; raise PeerGoneError when nobody takes it."""
        try:
            async with asyncio.timeout(self._send_timeout_s), self._turn_to_write:
                if not self.response.prepared:
                    await self.response.prepare(self._request)
                await self.response.write(data)
        except TimeoutError:
            abort(self._request)
            self._request.app[METRICS].slow_reader("sse")
            raise PeerGoneError from None
        except ClientConnectionResetError:
            raise PeerGoneError from None
        self._last_write = asyncio.get_running_loop().time()

    async def watch(self) -> None:
        """Keep the connection alive in silences, and raise PeerGoneError when it is lost."""
        now = asyncio.get_running_loop().time
        pause_s = min(POLL_S, self._keepalive_s)
        while not is_gone(self._request):
            if now() - self._last_write >= self._keepalive_s:
                await self.send(KEEP_ALIVE)
            await asyncio.sleep(pause_s)
        raise PeerGoneError

    async def end(self) -> None:
        """Write the end mark and close the response."""
        await self.send(DONE)
        await self.response.write_eof()


async def serve_sse(
    request: web.Request,
    frames: AsyncGenerator[bytes, None],
    error_frame: Callable[[WireError], bytes] = named_error,
) -> web.StreamResponse:
    """Send frames until they end or the reader is gone; `frames` is closed in any case."""
    config = request.app[CONFIG]
    stream = SseStream(
        request, keepalive_s=config.sse_keepalive_s, send_timeout_s=config.send_timeout_s
    )
    try:
        with request.app[METRICS].stream("sse"), boundary(request[REQUEST_ID]) as caught:
            try:
                async with beside(stream.watch()):
                    async for frame in frames:
                        await stream.send(frame)
            finally:
                await frames.aclose()
        if caught.error is not None:
            if not stream.response.prepared:
                return caught.error.response()
            await stream.send(error_frame(caught.error))
        await stream.end()
    except (PeerGoneError, ClientConnectionResetError):
        if not stream.response.prepared:
            raise PeerGoneError from None
    return stream.response
