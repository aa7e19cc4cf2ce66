"""The lanes of one websocket: what is asked in one runs in order, lanes run beside each other.

A lane's newest completed response can be followed though it is not stored; whoever goes on with it
and fails has it forgotten, a fork into another lane that fails does not.

Invariants:
    at most `MAX_ACTIVE` responses run on a socket, and `MAX_WAITING` more wait
    a lane, once named, is there until the socket ends; at most `MAX_LANES` have names
"""

import asyncio
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Final

from aiohttp import web

from app.errors import RequestError, WireError, boundary
from app.keys import MANAGER, METRICS
from app.openai.response_request import ResponseBody
from app.openai.response_turns import Place, ResponseTurns, attached
from app.openai.words import in_openai_words
from app.peer import closing
from app.representation import event_object
from sessions.types import OwnerId, TurnEnded, TurnId, TurnStatus

Json = dict[str, Any]

MAX_ACTIVE: Final = 16
MAX_LANES: Final = 32
MAX_WAITING: Final = 256
_NAME: Final = re.compile(r"[A-Za-z0-9_.-]{1,256}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A response that is asked for in a lane."""

    body: ResponseBody
    lane: str | None


@dataclass(slots=True)
class _Lane:
    """One lane: what waits in it, and its newest response if that is not stored."""

    name: str | None
    waiting: asyncio.Queue[Asked] = field(default_factory=asyncio.Queue)  # MAX_WAITING in all
    newest: TurnId | None = None

    @property
    def place(self) -> Json:
        """What its frames carry; the default lane has no name."""
        return {} if self.name is None else {"stream_id": self.name}


class Lanes:
    """Those of one socket; its tasks are the socket's."""

    def __init__(
        self,
        app: web.Application,
        owner: OwnerId,
        put: Callable[[Json], Awaitable[None]],
        *,
        request_id: str,
    ) -> None:
        self._manager = app[MANAGER]
        self._metrics = app[METRICS]
        self._owner = owner
        self._put = put
        self._request_id = request_id
        self._turns = ResponseTurns(app, owner, is_kept_here=self._is_newest)
        self._lanes: dict[str | None, _Lane] = {}
        self._active = asyncio.Semaphore(MAX_ACTIVE)
        self._num_unanswered = 0
        self._idle = asyncio.Event()
        self._idle.set()

    async def idle(self) -> None:
        """Return when nothing runs and nothing waits."""
        await self._idle.wait()

    def ask(self, asked: Asked, tasks: asyncio.TaskGroup) -> asyncio.Task[None] | None:
        """Have a response made when its turn comes; a new lane's task, which ends when cancelled.

        Raises `invalid_stream_id`, `websocket_stream_limit_reached` and `too_many_streams`.
        """
        lane, is_new = self._lane(asked.lane)
        if self._num_unanswered >= MAX_ACTIVE + MAX_WAITING:
            message = f"at most {MAX_WAITING} responses can wait on one socket"
            raise RequestError("too_many_streams", message)
        self._num_unanswered += 1
        self._idle.clear()
        lane.waiting.put_nowait(asked)
        return tasks.create_task(self._serve(lane)) if is_new else None

    async def forget(self) -> None:
        """Forget the responses that only this socket could go on with."""
        for lane in self._lanes.values():
            await self._replace(lane, None)

    def _lane(self, name: str | None) -> tuple[_Lane, bool]:
        if name is not None and not _NAME.fullmatch(name):
            message = "a stream_id has 1 to 256 letters, digits and any of _ . -"
            raise RequestError("invalid_stream_id", message, param="stream_id")
        known = self._lanes.get(name)
        if known is not None:
            return known, False
        if name is not None and len(self._lanes.keys() - {None}) >= MAX_LANES:
            message = f"a socket has at most {MAX_LANES} named lanes, and none goes"
            raise RequestError("websocket_stream_limit_reached", message, param="stream_id")
        lane = self._lanes[name] = _Lane(name)
        return lane, True

    def _is_newest(self, turn_id: TurnId) -> bool:
        return any(lane.newest == turn_id for lane in self._lanes.values())

    async def _serve(self, lane: _Lane) -> None:
        """Make a lane's responses, one after the other."""
        while True:
            asked = await lane.waiting.get()
            try:
                async with self._active:
                    await self._answer(lane, asked.body)
            finally:
                self._num_unanswered -= 1
                if not self._num_unanswered:
                    self._idle.set()

    async def _answer(self, lane: _Lane, body: ResponseBody) -> None:
        """Make one response; never raises, for that would end its neighbours."""
        has_failed = False
        with boundary(self._request_id) as caught, self._metrics.stream("websocket"):
            has_failed = await self._make(lane, body)
        if caught.error is not None:
            self._metrics.frame("error")
            await self._put({**in_openai_words(caught.error).frame(), **lane.place})
        if caught.error is not None or has_failed:
            await self._evict(lane, body)

    async def _make(self, lane: _Lane, body: ResponseBody) -> bool:
        """Send a response's events; whether it failed."""
        place = await self._turns.place_of(body)
        async with self._manager.ephemeral.held(place.parent):
            return await self._made(lane, body, place)

    async def _made(self, lane: _Lane, body: ResponseBody, place: Place) -> bool:
        if not body.is_stored:
            reading = await self._turns.stream(body, place, keeps=True)
        else:
            turn = await self._turns.submit(body, place)
            manager, owner = self._manager, self._owner
            read = manager.read if body.is_background else None
            reading = read(owner, turn.id) if read else attached(manager, owner, turn.id)
        async with closing(reading) as events:
            async for number, event in events:
                if isinstance(event, TurnEnded) and event.turn.status is TurnStatus.COMPLETED:
                    await self._replace(lane, None if body.is_stored else event.turn.id)
                await self._put({**event_object(number, event), **lane.place})
                if isinstance(event, TurnEnded):
                    return event.turn.status is TurnStatus.FAILED
        raise AssertionError("a response ended without its last event")

    async def _evict(self, lane: _Lane, body: ResponseBody) -> None:
        if lane.newest is not None and lane.newest == body.previous_response_id:
            await self._replace(lane, None)

    async def _replace(self, lane: _Lane, newest: TurnId | None) -> None:
        before, lane.newest = lane.newest, newest
        if before is not None:
            await self._manager.ephemeral.forget(before)


def in_lane(error: WireError, value: object) -> Json:
    """An error frame, in the lane of the frame that it answers."""
    lane = value.get("stream_id") if isinstance(value, dict) else None
    is_named = isinstance(lane, str) and _NAME.fullmatch(lane) is not None
    frame = in_openai_words(error).frame()
    return {**frame, **({"stream_id": lane} if is_named else {})}
