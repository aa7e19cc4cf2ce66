"""The asynchronous client: sessions, turns and streams.

A turn that was sent goes on at the server whatever happens to this process: leaving a stream early
stops reading, and only `cancel` stops the turn.
"""

import uuid
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from types import TracebackType
from typing import Any, Self, Unpack
from urllib.parse import quote

from splice.errors import ConnectionLostError
from splice.events import Event, TextDelta, TurnEvent
from splice.transport import Request, Transport
from splice.types import (
    Json,
    Message,
    SessionChanges,
    SessionFields,
    SessionInfo,
    Turn,
    TurnOptions,
)

DEFAULT_URL = "http://127.0.0.1:8000"
_SESSIONS = "/v1/sessions"


class AsyncClient:
    """A connection to one server; use it as a context manager, or close it."""

    def __init__(
        self,
        base_url: str = DEFAULT_URL,
        *,
        api_key: str | None = None,
        timeout_s: float = 600.0,
        max_retries: int = 3,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        key = {} if api_key is None else {"Authorization": f"Bearer {api_key}"}
        headers = {**key, **(headers or {})}
        self._transport = Transport(
            base_url, timeout_s=timeout_s, max_retries=max_retries, headers=headers
        )
        self.sessions = AsyncSessions(self._transport)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close every connection. Turns that are running go on at the server."""
        await self._transport.close()

    async def models(self) -> list[str]:
        """The ids of the models that the server has."""
        answer = await self._transport.call(Request(method="GET", path="/v1/models"))
        return [entry["id"] for entry in answer["data"]]

    async def search(self, words: str, *, limit: int = 20) -> AsyncIterator[Json]:
        """Titles and messages with all the words, newest first, as the server describes them."""
        query = {"q": words, "limit": str(limit)}
        while True:
            request = Request(method="GET", path="/v1/search", query=query)
            page = await self._transport.call(request)
            for raw in page["data"]:
                yield raw
            if not page["has_more"]:
                return
            query["after"] = page["last_id"]

    async def cache(self) -> Json:
        """The block pool, as the server describes it."""
        answer: Json = await self._transport.call(Request(method="GET", path="/v1/cache"))
        return answer


class AsyncSessions:
    """The server's sessions."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    async def create(self, **fields: Unpack[SessionFields]) -> "AsyncSession":
        """Begin a conversation."""
        body = {name: value for name, value in fields.items() if value is not None}
        request = Request(method="POST", path=_SESSIONS, body=body, is_repeatable=False)
        return AsyncSession(self._transport, await self._transport.call(request))

    async def get(self, session_id: str) -> "AsyncSession":
        """The session; raises NotFoundError."""
        request = Request(method="GET", path=_session(session_id))
        return AsyncSession(self._transport, await self._transport.call(request))

    async def list(
        self, *, limit: int = 20, order: str = "desc", q: str = "", pinned: bool | None = None
    ) -> AsyncIterator["AsyncSession"]:
        """Every session, most recently used first; `limit` is how many come with one request.

        Only those whose title has `q`, and those that are pinned or not, where that is said.
        """
        query = {"limit": str(limit), "order": order}
        if q:
            query["q"] = q
        if pinned is not None:
            query["pinned"] = str(pinned).lower()
        while True:
            page = await self._transport.call(Request(method="GET", path=_SESSIONS, query=query))
            for raw in page["data"]:
                yield AsyncSession(self._transport, raw)
            if not page["has_more"]:
                return
            query["after"] = page["last_id"]

    async def delete(self, session_id: str) -> None:
        """Delete the session with everything in it; raises NotFoundError."""
        await self._transport.call(Request(method="DELETE", path=_session(session_id)))

    async def bring_in(self, exported: Json) -> "AsyncSession":
        """A new session from what `export` gave, here or on another server."""
        path = f"{_SESSIONS}/import"
        request = Request(method="POST", path=path, body=exported, is_repeatable=False)
        return AsyncSession(self._transport, await self._transport.call(request))

    async def restore(self, session_id: str) -> "AsyncSession":
        """Take a deletion back; raises NotFoundError when it is too late."""
        request = Request(method="POST", path=_session(session_id) + "/restore")
        return AsyncSession(self._transport, await self._transport.call(request))


class AsyncSession:
    """One conversation. `info` is what the server last said of it; `refresh` asks again."""

    def __init__(self, transport: Transport, raw: Json) -> None:
        self._transport = transport
        self._active_turn: str | None = None
        self.info = SessionInfo.from_wire(raw)

    @property
    def id(self) -> str:
        """The session's id, `conv_…`."""
        return self.info.id

    async def refresh(self) -> SessionInfo:
        """Read the session anew."""
        self.info = SessionInfo.from_wire(await self._call("GET", ""))
        return self.info

    async def update(self, **changes: Unpack[SessionChanges]) -> SessionInfo:
        """Change the session; raises ConflictError when it is not at `expected_revision`."""
        self.info = SessionInfo.from_wire(await self._call("PATCH", "", changes, once=True))
        return self.info

    async def send(self, text: str | Sequence[Message], **options: Unpack[TurnOptions]) -> Turn:
        """Send a message and wait for the whole reply; a failed turn is returned, not raised."""
        return await self.stream(text, **options).final()

    def stream(
        self, text: str | Sequence[Message], **options: Unpack[TurnOptions]
    ) -> "AsyncStream":
        """Send a message and read the reply as it comes. Nothing is sent before the first read."""
        return self._stream("/turns", {"input": text, **options})

    async def regenerate(
        self, turn: Turn | str | None = None, **options: Unpack[TurnOptions]
    ) -> Turn:
        """A new reply to the same input, beside the old one; by default the last turn's."""
        return await self.stream_again(await self._named(turn), **options).final()

    def stream_again(self, turn: Turn | str, **options: Unpack[TurnOptions]) -> "AsyncStream":
        """`regenerate`, read as it comes."""
        return self._stream(f"/turns/{quote(_id(turn))}/regenerate", dict(options))

    async def go_on(
        self, turn: Turn | str | None = None, *, max_output_tokens: int | None = None
    ) -> Turn:
        """Go on with a reply that was cut, by default the last turn's: a turn beside it whose reply
        begins with the cut one."""
        turn_id = await self._named(turn)
        return await self.stream_on(turn_id, max_output_tokens=max_output_tokens).final()

    def stream_on(
        self,
        turn: Turn | str,
        *,
        max_output_tokens: int | None = None,
        client_turn_id: str | None = None,
    ) -> "AsyncStream":
        """`go_on`, read as it comes."""
        named = {"max_output_tokens": max_output_tokens, "client_turn_id": client_turn_id}
        body = {name: value for name, value in named.items() if value is not None}
        return self._stream(f"/turns/{quote(_id(turn))}/continue", body)

    async def export(self) -> Json:
        """The whole session, to be imported again."""
        exported: Json = await self._call("GET", "/export")
        return exported

    async def tree(self) -> Json:
        """How the session's turns hang together, as the server describes it."""
        tree: Json = await self._call("GET", "/tree")
        return tree

    async def move_head(self, turn: Turn | str | None) -> SessionInfo:
        """Pick the branch that the next message continues; None: a new beginning."""
        body = {"turn": _id(turn) if turn is not None else None}
        self.info = SessionInfo.from_wire(await self._call("POST", "/head", body))
        return self.info

    def resume(self, turn: Turn | str, *, starting_after: int = -1) -> "AsyncStream":
        """The events of a turn after that sequence number, stored or still to come."""
        request = self._reading(_id(turn), starting_after)
        return AsyncStream(
            self, self._transport.events(request, self._reading, starting_after), starting_after
        )

    async def cancel(self, turn: Turn | str | None = None) -> Turn:
        """Stop a turn; what there is of its reply is kept. The turn this object last began."""
        turn_id = _id(turn) if turn is not None else self._active_turn or await self._named(None)
        return Turn.from_wire(await self._call("POST", f"/turns/{quote(turn_id)}/cancel"))

    async def fork(
        self, at: Turn | str | None = None, *, title: str | None = None
    ) -> "AsyncSession":
        """A new session that continues from a turn of this one, by default from its end."""
        body = {"at": _id(at) if at is not None else None, "title": title}
        given = {name: value for name, value in body.items() if value is not None}
        return AsyncSession(self._transport, await self._call("POST", "/fork", given, once=True))

    async def turns(self, *, whole_tree: bool = False) -> list[Turn]:
        """The conversation's turns, oldest first; or those of all its branches."""
        query = {"all": "true"} if whole_tree else None
        request = Request(method="GET", path=_session(self.id) + "/turns", query=query)
        return [Turn.from_wire(raw) for raw in (await self._transport.call(request))["data"]]

    async def turn(self, turn_id: str) -> Turn:
        """One turn as it is now."""
        return Turn.from_wire(await self._call("GET", f"/turns/{quote(turn_id)}"))

    async def kv(self) -> Json:
        """The conversation's block tables, as the server describes them."""
        tables: Json = await self._call("GET", "/kv")
        return tables

    async def delete(self) -> None:
        """Delete the session with everything in it."""
        await self._call("DELETE", "")

    def _stream(self, path: str, fields: dict[str, Any]) -> "AsyncStream":
        body = {"client_turn_id": uuid.uuid4().hex, **fields, "stream": True}
        start = Request(method="POST", path=_session(self.id) + path, body=body)
        return AsyncStream(self, self._transport.events(start, self._reading))

    def _reading(self, turn_id: str, starting_after: int) -> Request:
        query = {"stream": "true", "starting_after": str(starting_after)}
        path = f"{_session(self.id)}/turns/{quote(turn_id)}"
        return Request(method="GET", path=path, query=query)

    async def _named(self, turn: Turn | str | None) -> str:
        if turn is not None:
            return _id(turn)
        head = (await self.refresh()).head
        if head is None:
            raise ValueError(f"session {self.id} has no turn yet")
        return head

    async def _call(
        self, method: str, path: str, body: Json | None = None, *, once: bool = False
    ) -> Any:  # noqa: ANN401 (any JSON)
        request = Request(
            method=method, path=_session(self.id) + path, body=body, is_repeatable=not once
        )
        return await self._transport.call(request)

    def _began(self, turn_id: str) -> None:
        self._active_turn = turn_id


class AsyncStream:
    """A turn's events as they come, each once: an async iterator, to be read by one reader.

    A lost connection is made again and the stream goes on where it was.
    """

    def __init__(
        self, session: AsyncSession, events: AsyncGenerator[Event, None], starting_after: int = -1
    ) -> None:
        self._session = session
        self._events = events
        self.turn: Turn | None = None
        self.last_sequence_number = starting_after

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Event:
        event = await anext(self._events)
        self.last_sequence_number = event.sequence_number
        if isinstance(event, TurnEvent):
            self.turn = event.turn
            self._session._began(event.turn.id)
        return event

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    @property
    async def text_stream(self) -> AsyncIterator[str]:
        """Only the reply's text, piece by piece."""
        async for event in self:
            if isinstance(event, TextDelta):
                yield event.delta

    async def final(self) -> Turn:
        """Read to the end; the turn as it ended."""
        async for _ in self:
            pass
        if self.turn is None:
            raise ConnectionLostError("the stream was closed before the turn began")
        return self.turn

    async def close(self) -> None:
        """Stop reading; the turn goes on."""
        await self._events.aclose()


def _session(session_id: str) -> str:
    return f"{_SESSIONS}/{quote(session_id)}"


def _id(turn: Turn | str) -> str:
    return turn if isinstance(turn, str) else turn.id
