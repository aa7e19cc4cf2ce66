"""`/v1/responses` over a websocket: responses in lanes, on one connection (`app/openai/lanes.py`).

A response belongs to the connection unless it is in the background: when the socket is lost,
generation stops, and what there is of a stored one is kept.
"""

import asyncio
from collections.abc import Iterable
from contextlib import suppress
from typing import Annotated, Any, Final, Literal

from aiohttp import hdrs, web
from pydantic import Field

from app.connections import GOING_AWAY
from app.errors import RequestError, WireError, describe
from app.keys import CONFIG
from app.openai.lanes import Asked, Lanes, in_lane
from app.openai.response_request import Lenient, ResponseBody, parse_response
from app.parsing import validate
from app.protocol import TurnRef
from app.rate import RATE_LIMIT
from app.sockets import Socket, serve_socket
from sessions.errors import InvalidInputError, NotFoundError
from sessions.types import TurnId

Json = dict[str, Any]

_TYPES: Final = ("response.create", "response.cancel", "response.steer")


class LaneFields(Lenient):
    """Which lane a frame is for; absent: the default one."""

    stream_id: Annotated[str, Field(max_length=1024)] | None = None


class CreateResponseFrame(ResponseBody, LaneFields):
    """Make a response."""

    type: Literal["response.create"]


class SteerFrame(LaneFields):
    """Add to a response that runs; always answered as not supported."""

    type: Literal["response.steer"]
    previous_response_id: object = None
    input: object = None


class CancelResponseFrame(Lenient):
    """Stop a response, keep what a stored one has."""

    type: Literal["response.cancel"]
    response_id: TurnRef


ResponseFrame = CreateResponseFrame | CancelResponseFrame | SteerFrame


class ResponseSocket(Socket):
    """One socket of an agent's."""

    def __init__(self, ws: web.WebSocketResponse, request: web.Request) -> None:
        super().__init__(ws, request)
        self._lanes = Lanes(request.app, self._owner, self._outbox.put, request_id=self._request_id)
        self._max_age_s = request.app[CONFIG].response_socket_s
        self._is_too_old = False
        # A task a lane, and one that watches the socket's age.
        self._running: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        """Serve the socket until either side ends it."""
        try:
            await super().run()
        finally:
            await self._lanes.forget()

    async def _begin(self) -> None:
        self._hold(self._tasks.create_task(self._grow_old()))

    def _work(self) -> Iterable[asyncio.Task[None]]:
        return tuple(self._running)

    def _answered(self, error: WireError, value: object) -> Json:
        return in_lane(error, value)

    async def _handle(self, value: object) -> None:
        if not isinstance(value, dict):
            raise InvalidInputError("a frame must be a JSON object")
        kind = value.get("type")
        if kind not in _TYPES:
            known = ", ".join(_TYPES)
            raise InvalidInputError(f"type must be one of {known}", param="type")
        self._metrics.frame(kind)
        self._app[RATE_LIMIT].count(self._owner)
        if kind == "response.create":
            self._create(value)
        elif kind == "response.cancel":
            await self._cancel(validate(CancelResponseFrame, value))
        else:
            await self._outbox.put(_not_steered(value))

    def _create(self, value: Json) -> None:
        if self._is_too_old:
            raise _too_old()
        lane = validate(LaneFields, value).stream_id
        task = self._lanes.ask(Asked(body=parse_response(value), lane=lane), self._tasks)
        if task is not None:
            self._hold(task)

    async def _cancel(self, frame: CancelResponseFrame) -> None:
        """The response's last event, in its lane, is the answer."""
        turn_id = TurnId(frame.response_id)
        if not await self._manager.ephemeral.cancel(self._owner, turn_id):
            turn = await self._manager.turn(self._owner, turn_id)
            if turn.status.is_active:
                self._hold(self._tasks.create_task(self._stop(turn_id)))

    async def _stop(self, turn_id: TurnId) -> None:
        with suppress(NotFoundError):  # deleted meanwhile
            await self._manager.cancel(self._owner, turn_id)

    def _hold(self, task: asyncio.Task[None]) -> None:
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    async def _grow_old(self) -> None:
        """Take nothing new after the longest time that a socket may be open; then close it."""
        await asyncio.sleep(self._max_age_s)
        self._is_too_old = True
        await self._lanes.idle()
        await self.refuse(_too_old(), GOING_AWAY)


def _too_old() -> RequestError:
    message = "this connection is as old as one may be; open another"
    return RequestError("websocket_connection_limit_reached", message)


def _not_steered(value: Json) -> Json:
    error = describe(
        RequestError("steering_not_supported", "a running response takes no more input")
    )
    told = {name: v for name, v in error.error().items() if name != "param"}
    steer = {"input": value.get("input"), "previous_response_id": value.get("previous_response_id")}
    lane = value.get("stream_id")
    return {
        "type": "response.steer.failed",
        "sequence_number": 0,
        "steer": steer,
        "error": told,
        **({"stream_id": lane} if isinstance(lane, str) else {}),
    }


async def response_socket(request: web.Request) -> web.StreamResponse:
    """Open a websocket for responses: `response.create` frames, answered by their events."""
    return await serve_socket(
        request, ResponseSocket, web.HTTPMethodNotAllowed(hdrs.METH_GET, [hdrs.METH_POST])
    )
