"""What all websockets have in common: opened within the limits, read, written, ended.

One connection is one task group: the handler reads, one writer sends (`app/outbox.py`), and what
frames ask for runs in tasks beside them, all of which end with the socket. Whatever is wrong with a
frame is answered, and the socket stays.
"""

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any

from aiohttp import WSMessage, WSMsgType, web

from app.connections import (
    CONNECTIONS,
    INTERNAL_ERROR,
    KEY_REVOKED,
    NORMAL,
    POLICY,
    TRY_AGAIN_LATER,
)
from app.errors import PeerGoneError, RequestError, WireError, boundary, describe
from app.keys import CONFIG, KEY, KEY_RING, MANAGER, METRICS, OWNER, READINESS, REQUEST_ID
from app.outbox import Outbox, SlowReaderError
from app.parsing import read_json
from app.rate import FrameLimit
from sessions.errors import DrainingError, InvalidInputError, StoreUnavailableError
from sessions.types import OwnerId

logger = logging.getLogger(__name__)

# Frames gather here below the socket before a send begins to wait for the peer.
WRITER_LIMIT_BYTES = 64 * 1024


class Socket(ABC):
    """One socket: its reader, its writer and the tasks that answer its frames."""

    def __init__(self, ws: web.WebSocketResponse, request: web.Request) -> None:
        config = request.app[CONFIG]
        self._ws = ws
        self._manager = request.app[MANAGER]
        self._metrics = request.app[METRICS]
        self._app = request.app
        self._key_check_s = config.key_check_s
        self._frames = FrameLimit(config.max_frames_per_s, asyncio.get_running_loop().time)
        self._owner = request[OWNER]
        self._key = request.get(KEY)
        self._request_id = request[REQUEST_ID]
        self._outbox = Outbox(
            ws, request, size=config.outbox_size, send_timeout_s=config.send_timeout_s
        )
        self._tasks = asyncio.TaskGroup()

    @abstractmethod
    async def _handle(self, value: object) -> None:
        """Do what a frame asks, or begin to; what it raises is the frame's answer."""

    @abstractmethod
    def _answered(self, error: WireError, value: object) -> dict[str, Any]:
        """The frame that tells an error of the frame `value`."""

    @abstractmethod
    def _work(self) -> Iterable[asyncio.Task[None]]:
        """The tasks that end with the socket."""

    async def _begin(self) -> None:  # noqa: B027 - most have nothing to begin
        """What runs from the beginning."""

    @property
    def owner(self) -> OwnerId:
        """Whose it is."""
        return self._owner

    async def run(self) -> None:
        """Serve the socket until either side ends it."""
        with boundary(self._request_id) as caught:
            await self._serve()
        await self._outbox.hang_up(NORMAL if caught.error is None else INTERNAL_ERROR)

    async def _serve(self) -> None:
        try:
            async with self._tasks:
                writer = self._tasks.create_task(self._outbox.run())
                watch = self._tasks.create_task(self._watch_key())
                await self._begin()
                async for message in self._ws:
                    await self._receive(message)
                for task in (watch, *self._work()):
                    task.cancel()
                if not self._outbox.is_closing:
                    writer.cancel()
        except* SlowReaderError:
            self._metrics.slow_reader("websocket")
            logger.info("a slow reader was dropped", extra={"request_id": self._request_id})
        except* PeerGoneError:
            logger.debug("the peer is gone", extra={"request_id": self._request_id})

    def close(self, code: int) -> None:
        """Send what is queued, then close; doesn't wait for it."""
        self._outbox.close(code)

    def hurry(self) -> None:
        """Give up on a peer that takes its time."""
        self._outbox.hurry()

    async def refuse(self, error: RequestError, code: int) -> None:
        """Say why it is closed, and close it."""
        self._metrics.frame("error")
        await self._outbox.put(self._answered(describe(error), None))
        self.close(code)

    async def _receive(self, message: WSMessage) -> None:
        """Take one message; whatever is wrong with it is answered, and the socket stays."""
        if message.type is WSMsgType.ERROR or self._outbox.is_closing:
            return  # the transport has closed the socket with the code that fits, or we have
        if not self._frames.takes():
            await self.refuse(
                RequestError("too_many_frames", "more frames than may be sent a second"), POLICY
            )
            return
        value: object = None
        with boundary(self._request_id) as caught:
            if message.type is not WSMsgType.TEXT:
                raise InvalidInputError("frames must be text")
            if not await self._is_allowed():
                self.close(KEY_REVOKED)
                return
            value = read_json(message.data)
            await self._handle(value)
        if caught.error is not None:
            self._metrics.frame("error")
            await self._outbox.put(self._answered(caught.error, value))

    async def _is_allowed(self) -> bool:
        """Whether what opened the socket is still good: its key, or that none was needed.

        Each frame asks, pings too.
        """
        ring = self._app[KEY_RING]
        if self._key is None:
            return not await ring.is_closed()
        return await ring.holds(self._key)

    async def _watch_key(self) -> None:
        """Close the socket soon after its key is revoked, though nothing is sent."""
        while True:
            await asyncio.sleep(self._key_check_s)
            with suppress(StoreUnavailableError):  # each frame is refused meanwhile
                if not await self._is_allowed():
                    self.close(KEY_REVOKED)
                    return


async def serve_socket(
    request: web.Request,
    make: Callable[[web.WebSocketResponse, web.Request], Socket],
    refusal: Exception,
) -> web.StreamResponse:
    """Open a socket and serve it to its end; `refusal` is raised where no upgrade was asked for.

    Host, origin and key were checked before (`app/middleware.py`).
    """
    if request.app[READINESS].is_draining:
        raise DrainingError("the server is stopping")
    config = request.app[CONFIG]
    ws = web.WebSocketResponse(
        heartbeat=config.heartbeat_s,
        timeout=config.send_timeout_s,
        max_msg_size=config.max_body_bytes,
        writer_limit=WRITER_LIMIT_BYTES,
        autoclose=False,
        # Deltas are small, and a compressor's window costs more memory than a connection.
        compress=False,
    )
    if not ws.can_prepare(request):
        raise refusal
    connection, connections = make(ws, request), request.app[CONNECTIONS]
    if len(connections) >= config.max_sockets:
        message = f"{config.max_sockets} websockets are open, as many as may be"
        raise RequestError("too_many_sockets", message, retry_after_s=5)
    with connections.holding(connection):
        await ws.prepare(request)
        limit = config.owner_max_sockets
        if limit is not None and connections.num_of(connection.owner) > limit:
            message = f"{limit} websockets of this owner are open, as many as may be"
            error = RequestError("too_many_owner_sockets", message)
            await connection.refuse(error, TRY_AGAIN_LATER)
        with request.app[METRICS].connection():
            await connection.run()
    return ws
