"""The websocket of the page: any number of conversations on one socket.

Each frame that takes time has a task of its own, at most `max_streams` readers and as many cancels,
so that whoever reads all it may can still stop one. All of them end with the socket; no turn does,
for turns belong to the session manager. A response has at most one reader a socket: asking again
moves its cursor.
"""

import asyncio
from collections.abc import Iterable
from typing import Any

from aiohttp import web

from app.errors import RequestError, WireError, boundary
from app.keys import CONFIG
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
from app.rate import RATE_LIMIT
from app.representation import event_object
from app.sampling import default_params
from app.sockets import Socket, serve_socket
from app.subscriptions import Subscriptions
from sessions.types import SessionId, Turn, TurnId


class Connection(Socket):
    """One socket of the page's, or of a program that speaks as the page does."""

    def __init__(self, ws: web.WebSocketResponse, request: web.Request) -> None:
        super().__init__(ws, request)
        self._max_streams = request.app[CONFIG].max_streams
        # Bounded by `max_streams` each.
        self._readers: set[asyncio.Task[None]] = set()
        self._cancels: set[asyncio.Task[None]] = set()
        self._reader_by_turn: dict[TurnId, asyncio.Task[None]] = {}
        self._subscriptions = Subscriptions(request, self._outbox, self._tasks)

    def _work(self) -> Iterable[asyncio.Task[None]]:
        self._subscriptions.end_all()
        return (*self._readers, *self._cancels)

    def _answered(self, error: WireError, value: object) -> dict[str, Any]:
        return error.frame(event_id=event_id_of(value))

    async def _handle(self, value: object) -> None:
        frame = parse_frame(value)
        self._metrics.frame(frame.type)
        await self._dispatch(frame)

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
    """`GET /v1/ws`: conversations, as the page speaks of them."""
    refusal = RequestError("upgrade_required", "this address speaks websocket only")
    return await serve_socket(request, Connection, refusal)
