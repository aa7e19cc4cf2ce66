"""The websocket: any number of conversations on one socket.

One connection is one task group: the handler reads, one writer sends (`app/outbox.py`), and each
frame that takes time has a task of its own, at most `max_streams` readers and as many cancels, so
that whoever reads all it may can still stop one. All of them end with the socket; no turn does, for
turns belong to the session manager. A response has at most one reader a socket: asking again moves
its cursor.
"""

import asyncio
import logging
from contextlib import suppress

from aiohttp import WSMessage, WSMsgType, web

from app.connections import (
    CONNECTIONS,
    INTERNAL_ERROR,
    KEY_REVOKED,
    NORMAL,
    POLICY,
    TRY_AGAIN_LATER,
)
from app.errors import PeerGoneError, RequestError, boundary, describe
from app.keys import CONFIG, KEY, KEY_RING, MANAGER, METRICS, OWNER, READINESS, REQUEST_ID
from app.outbox import Outbox, SlowReaderError
from app.parsing import read_json
from app.peer import closing
from app.protocol import (
    CancelFrame,
    ContinueFrame,
    CreateFrame,
    Frame,
    PingFrame,
    RegenerateFrame,
    ResumeFrame,
    StreamFrame,
    SubscribeFrame,
    UnsubscribeFrame,
    event_id_of,
    more_tokens,
    parse_frame,
    session_params,
)
from app.rate import RATE_LIMIT, FrameLimit
from app.representation import event_object
from app.sampling import default_params
from app.subscriptions import Subscriptions
from sessions.errors import DrainingError, InvalidInputError, StoreUnavailableError
from sessions.types import OwnerId, SessionId, Turn, TurnId

logger = logging.getLogger(__name__)

# Frames gather here below the socket before a send begins to wait for the peer.
WRITER_LIMIT_BYTES = 64 * 1024


class Connection:
    """One socket: its reader, its writer and the tasks that answer its frames."""

    def __init__(self, ws: web.WebSocketResponse, request: web.Request) -> None:
        config = request.app[CONFIG]
        self._ws = ws
        self._manager = request.app[MANAGER]
        self._metrics = request.app[METRICS]
        self._app = request.app
        self._max_streams = config.max_streams
        self._key_check_s = config.key_check_s
        self._frames = FrameLimit(config.max_frames_per_s, asyncio.get_running_loop().time)
        self._owner = request[OWNER]
        self._key = request.get(KEY)
        self._request_id = request[REQUEST_ID]
        self._outbox = Outbox(
            ws, request, size=config.outbox_size, send_timeout_s=config.send_timeout_s
        )
        self._tasks = asyncio.TaskGroup()
        # Bounded by `max_streams` each.
        self._readers: set[asyncio.Task[None]] = set()
        self._cancels: set[asyncio.Task[None]] = set()
        self._reader_by_turn: dict[TurnId, asyncio.Task[None]] = {}
        self._subscriptions = Subscriptions(request, self._outbox, self._tasks)

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
                async for message in self._ws:
                    await self._receive(message)
                for task in (watch, *self._readers, *self._cancels):
                    task.cancel()
                self._subscriptions.end_all()
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
        await self._outbox.put(describe(error).frame(event_id=None))
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
            frame = parse_frame(value)
            self._metrics.frame(frame.type)
            await self._dispatch(frame)
        if caught.error is not None:
            self._metrics.frame("error")
            await self._outbox.put(caught.error.frame(event_id=event_id_of(value)))

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

    async def _dispatch(self, frame: Frame) -> None:
        if isinstance(frame, PingFrame):
            await self._outbox.put({"type": "pong", "nonce": frame.nonce})
            return
        self._app[RATE_LIMIT].count(self._owner)
        if isinstance(frame, SubscribeFrame):
            self._subscriptions.begin(frame)
            return
        if isinstance(frame, UnsubscribeFrame):
            self._subscriptions.end(frame.conversation)
            return
        peers = self._cancels if isinstance(frame, CancelFrame) else self._readers
        if len(peers) >= self._max_streams:
            message = f"at most {self._max_streams} replies are read on one socket at a time"
            raise RequestError("too_many_streams", message)
        # Ends when the frame is answered, at the latest with the connection's task group.
        task = self._tasks.create_task(self._answer(frame))
        peers.add(task)
        task.add_done_callback(peers.discard)

    async def _answer(self, frame: StreamFrame | CancelFrame) -> None:
        """Do what a frame asks; never raises, for that would end its neighbours."""
        with boundary(self._request_id) as caught:
            if isinstance(frame, CancelFrame):
                await self._manager.cancel(self._owner, TurnId(frame.response_id))
            else:
                turn, after = await self._open(frame)
                with self._metrics.stream("websocket"):
                    await self._pump(turn, after)
        if caught.error is not None:
            await self._outbox.put(caught.error.frame(event_id=frame.event_id))

    async def _open(self, frame: StreamFrame) -> tuple[Turn, int]:
        """Find or make the turn that a frame is about, and the cursor to read it from."""
        match frame:
            case CreateFrame():
                session = await self._manager.get(self._owner, SessionId(frame.conversation))
                params = session_params(session, default_params(self._app))
                request = frame.to_request(params)
                return await self._manager.submit(self._owner, session.id, request), -1
            case RegenerateFrame():
                turn_id = TurnId(frame.response_id)
                turn = await self._manager.turn(self._owner, turn_id)
                params = frame.to_params_again(turn.params)
                turn = await self._manager.regenerate(
                    self._owner, turn_id, params=params, client_turn_id=frame.client_turn_id
                )
                return turn, -1
            case ContinueFrame():
                cut = await self._manager.turn(self._owner, TurnId(frame.response_id))
                session = await self._manager.get(self._owner, cut.session_id)
                turn = await self._manager.go_on(
                    self._owner,
                    cut.id,
                    max_more_tokens=more_tokens(session, frame, default_params(self._app)),
                    client_turn_id=frame.client_turn_id,
                )
                return turn, -1
            case ResumeFrame():
                turn = await self._manager.turn(self._owner, TurnId(frame.response_id))
                return turn, frame.starting_after

    async def _pump(self, turn: Turn, after: int) -> None:
        """Copy a turn's events into the outbox. Takes over from an earlier reader of the turn."""
        task = asyncio.current_task()
        assert task is not None, "a coroutine runs in a task"
        if (earlier := self._reader_by_turn.get(turn.id)) is not None:
            earlier.cancel()
        self._reader_by_turn[turn.id] = task
        place = {"conversation": turn.session_id, "response_id": turn.id}
        try:
            async with closing(self._manager.read(self._owner, turn.id, after=after)) as events:
                async for number, event in events:
                    await self._outbox.put({**event_object(number, event), **place})
        finally:
            if self._reader_by_turn.get(turn.id) is task:
                del self._reader_by_turn[turn.id]


async def websocket(request: web.Request) -> web.StreamResponse:
    """`GET /v1/ws`. Host, origin and key were checked before (`app/middleware.py`)."""
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
        raise RequestError("upgrade_required", "this address speaks websocket only")
    connection, connections = Connection(ws, request), request.app[CONNECTIONS]
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
