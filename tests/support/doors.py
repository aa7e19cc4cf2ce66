"""The two doors of the server, REST and the websocket, asked for the same things."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Protocol

from aiohttp import ClientWebSocketResponse

from tests.support.front_end import receive
from tests.support.whole_front import WholeFront

ENDS = {"response.completed", "response.incomplete", "response.failed"}


@dataclass(frozen=True, slots=True)
class Seen:
    """What came out: an error's status and code; of a turn that failed, status 200 and its code."""

    status: int
    code: str | None
    param: str | None = None


class Door(Protocol):
    """Asks, and says how it ended."""

    async def say(self, session: str, text: Any = "hi", **fields: Any) -> Seen: ...

    async def go_on(self, session: str, turn: str, **fields: Any) -> Seen: ...

    async def read(self, session: str, turn: str) -> Seen: ...


class RestDoor:
    """Requests, each answered at its end."""

    def __init__(self, front: WholeFront) -> None:
        self._front = front

    async def say(self, session: str, text: Any = "hi", **fields: Any) -> Seen:
        body = {"input": text, **fields}
        return await self._ask("POST", f"/v1/sessions/{session}/turns", body)

    async def go_on(self, session: str, turn: str, **fields: Any) -> Seen:
        return await self._ask("POST", f"/v1/sessions/{session}/turns/{turn}/continue", fields)

    async def read(self, session: str, turn: str) -> Seen:
        return await self._ask("GET", f"/v1/sessions/{session}/turns/{turn}", None)

    async def _ask(self, method: str, path: str, body: dict[str, Any] | None) -> Seen:
        async with self._front.client.request(method, path, json=body) as answer:
            document = await answer.json()
            is_retryable = answer.headers.get("x-should-retry") == "true"
            assert is_retryable == ("Retry-After" in answer.headers)
            return _seen(answer.status, document.get("error"))


class SocketDoor:
    """Frames, each answered by a turn's end or an error; the socket must have stayed open."""

    def __init__(self, ws: ClientWebSocketResponse) -> None:
        self._ws = ws

    async def say(self, session: str, text: Any = "hi", **fields: Any) -> Seen:
        return await self._ask("response.create", conversation=session, input=text, **fields)

    async def go_on(self, session: str, turn: str, **fields: Any) -> Seen:
        return await self._ask("response.continue", response_id=turn, **fields)

    async def read(self, session: str, turn: str) -> Seen:
        return await self._ask("response.resume", response_id=turn)

    async def _ask(self, kind: str, **fields: Any) -> Seen:
        await self._ws.send_json({"type": kind, "event_id": "mine", **fields})
        frame = await receive(self._ws)
        while frame["type"] not in ENDS | {"error"}:
            frame = await receive(self._ws)
        await self._ws.send_json({"type": "ping", "nonce": "still there"})
        assert await receive(self._ws) == {"type": "pong", "nonce": "still there"}
        if frame["type"] == "error":
            assert frame["event_id"] == "mine"
            return _seen(frame["status"], frame["error"])
        return _seen(200, frame["response"]["error"])


def _seen(status: int, error: dict[str, Any] | None) -> Seen:
    error = error or {}
    return Seen(status, error.get("code"), error.get("param"))


@asynccontextmanager
async def opened(name: str, front: WholeFront) -> AsyncIterator[Door]:
    """The door of that name."""
    if name == "rest":
        yield RestDoor(front)
    else:
        async with front.client.ws_connect("/v1/ws") as ws:
            yield SocketDoor(ws)
