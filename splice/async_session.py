"""A handle on one conversation, for programs that await."""

import uuid
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal, Unpack
from urllib.parse import quote

from splice.async_stream import AsyncStream
from splice.items import Item
from splice.json_value import Json
from splice.transport import Request, Transport
from splice.types import (
    Message,
    ReplyOptions,
    SessionChanges,
    SessionInfo,
    Turn,
    TurnOptions,
    Usage,
)

if TYPE_CHECKING:
    from openai import AsyncOpenAI

    from splice.agents import AgentsSession

SESSIONS = "/v1/sessions"
MAX_PAGE = 100
MAX_NEW_ITEMS = 20


class AsyncSession:
    """One conversation. `info` is what the server last said of it; `refresh` asks again.

    A turn that was sent goes on at the server whatever happens to this process: leaving a stream
    stops reading, and only `stop` stops the turn.
    """

    def __init__(self, transport: Transport, raw: Json) -> None:
        self._transport = transport
        self.info = SessionInfo.from_wire(raw)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.id} {self.info.title!r}>"

    @property
    def id(self) -> str:
        """The session's id, `conv_…`, which is the conversation's for OpenAI's clients, too."""
        return self.info.id

    # What is said.

    async def send(self, text: str | Sequence[Message], **options: Unpack[TurnOptions]) -> Turn:
        """Send a message and wait for the whole reply; a failed turn is returned, not raised."""
        return await self.stream(text, **options).final()

    def stream(self, text: str | Sequence[Message], **options: Unpack[TurnOptions]) -> AsyncStream:
        """Send a message and read the reply as it comes. Nothing is sent before the first read."""
        return self._stream("/turns", {"input": text, **options})

    async def edit(
        self,
        text: str | Sequence[Message],
        turn: Turn | str | None = None,
        **options: Unpack[TurnOptions],
    ) -> Turn:
        """Ask a turn's question differently, by default the last one's; the old one stays beside
        it. To read the reply as it comes, `stream` it with the old turn's `parent_id` as `parent`.
        """
        edited = turn if isinstance(turn, Turn) else await self.turn(await self._named(turn))
        beside: TurnOptions = {**options, "parent": edited.parent_id}
        return await self.stream(text, **beside).final()

    async def regenerate(
        self, turn: Turn | str | None = None, **options: Unpack[ReplyOptions]
    ) -> Turn:
        """A new reply to the same input, beside the old one; by default the last turn's."""
        return await self.stream_again(await self._named(turn), **options).final()

    def stream_again(self, turn: Turn | str, **options: Unpack[ReplyOptions]) -> AsyncStream:
        """`regenerate`, read as it comes."""
        return self._stream(f"/turns/{quote(_id(turn), safe='')}/regenerate", dict(options))

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
    ) -> AsyncStream:
        """`go_on`, read as it comes."""
        named = {"max_output_tokens": max_output_tokens, "client_turn_id": client_turn_id}
        return self._stream(f"/turns/{quote(_id(turn), safe='')}/continue", _given(named))

    def resume(self, turn: Turn | str, *, starting_after: int = -1) -> AsyncStream:
        """The events of a turn after that sequence number, stored or still to come."""
        turn_id = _id(turn)
        events = self._transport.events(
            self._reading(turn_id, starting_after), self._reading, starting_after
        )

        async def stop(_: Turn | None) -> Turn:
            return await self._stop(turn_id)

        return AsyncStream(events, stop, starting_after)

    async def stop(self, turn: Turn | str | None = None) -> list[Turn]:
        """Stop a turn, or all that run, whoever began them: the turns as they ended, with what
        there is of their replies. A turn that had ended is left as it is."""
        running = (await self.refresh()).active if turn is None else (_id(turn),)
        return [await self._stop(turn_id) for turn_id in running]

    # What was said.

    async def history(self, *, limit: int | None = None) -> list[Item]:
        """The conversation's messages, calls, results and thoughts, oldest first; with `limit` the
        newest so many of them. What a running turn says is not among them."""
        found: list[Item] = []
        size = MAX_PAGE if limit is None else min(limit, MAX_PAGE)
        query = {"order": "desc", "limit": str(size)}
        while limit is None or len(found) < limit:
            request = Request(method="GET", path=self._items, query=query)
            page = await self._transport.call(request)
            found += map(Item.from_wire, page["data"])
            if not page["has_more"]:
                break
            query["after"] = page["last_id"]
        return found[:limit][::-1]

    async def add(self, items: Sequence[Json]) -> list[Item]:
        """Put items behind what was said, in the form of OpenAI's Responses, without a reply.

        They go twenty at a time, each of which is put in whole or not at all, and once.
        """
        added: list[Item] = []
        for start in range(0, len(items), MAX_NEW_ITEMS):
            body = {"items": list(items[start : start + MAX_NEW_ITEMS])}
            request = Request(
                method="POST", path=self._items, body=body, idempotency_key=uuid.uuid4().hex
            )
            added += map(Item.from_wire, (await self._transport.call(request))["data"])
        return added

    async def remove(self, item: Item | str) -> None:
        """Take an item out of the conversation; what comes next is made without it."""
        item_id = item.id if isinstance(item, Item) else item
        path = f"{self._items}/{quote(item_id, safe='')}"
        await self._transport.call(Request(method="DELETE", path=path))

    async def turns(self, *, whole_tree: bool = False) -> list[Turn]:
        """The conversation's turns, oldest first; or those of all its branches."""
        query = {"all": "true"} if whole_tree else None
        request = Request(method="GET", path=session_path(self.id) + "/turns", query=query)
        return [Turn.from_wire(raw) for raw in (await self._transport.call(request))["data"]]

    async def turn(self, turn_id: str) -> Turn:
        """One turn as it is now."""
        return Turn.from_wire(await self._call("GET", f"/turns/{quote(turn_id, safe='')}"))

    async def usage(self, *, whole_tree: bool = False) -> Usage:
        """The tokens of all its turns together; of those on the way here, or of all branches."""
        turns = await self.turns(whole_tree=whole_tree)
        return sum((turn.usage for turn in turns if turn.usage is not None), Usage())

    async def tree(self) -> Json:
        """How the session's turns hang together, as the server describes it."""
        tree: Json = await self._call("GET", "/tree")
        return tree

    # The session itself.

    async def refresh(self) -> SessionInfo:
        """Read the session anew."""
        self.info = SessionInfo.from_wire(await self._call("GET", ""))
        return self.info

    async def update(self, **changes: Unpack[SessionChanges]) -> SessionInfo:
        """Change the session; raises ConflictError when it is not at `expected_revision`."""
        # Sent again it does the same, unless it says what revision it goes on from.
        is_once = changes.get("expected_revision") is not None
        self.info = SessionInfo.from_wire(await self._call("PATCH", "", changes, once=is_once))
        return self.info

    async def rename(self, title: str | None) -> SessionInfo:
        """Give it another title; None takes it away, and the server may make one."""
        return await self.update(title=title)

    async def fork(
        self, at: Turn | str | None = None, *, title: str | None = None
    ) -> "AsyncSession":
        """A new session that continues from a turn of this one, by default from its end."""
        given = _given({"at": _id(at) if at is not None else None, "title": title})
        raw = await self._call("POST", "/fork", given, key=uuid.uuid4().hex)
        return AsyncSession(self._transport, raw)

    async def move_head(
        self, turn: Turn | str | None, *, expected_revision: int | None = None
    ) -> SessionInfo:
        """Pick the branch that the next message continues; None: a new beginning.

        Raises ConflictError when the session is not at `expected_revision`.
        """
        is_once = expected_revision is not None
        body = {
            "turn": _id(turn) if turn is not None else None,
            **_given({"expected_revision": expected_revision}),
        }
        self.info = SessionInfo.from_wire(await self._call("POST", "/head", body, once=is_once))
        return self.info

    async def export(self) -> Json:
        """The whole session, to be imported again."""
        exported: Json = await self._call("GET", "/export")
        return exported

    async def markdown(self) -> str:
        """The conversation to be read by people."""
        path, query = session_path(self.id) + "/export", {"format": "markdown"}
        return await self._transport.text(Request(method="GET", path=path, query=query))

    async def delete(self) -> None:
        """Delete the session with everything in it; `client.sessions.restore` takes that back."""
        await self._call("DELETE", "")

    # Where its state is.

    async def kv(self) -> Json:
        """The conversation's block tables, as the server describes them."""
        tables: Json = await self._call("GET", "/kv")
        return tables

    async def warm(self, *, deadline_s: float | None = None) -> Json:
        """Bring its state onto the device before somebody goes on; what came from where."""
        warmed: Json = await self._call("POST", "/warm", _given({"deadline_s": deadline_s}))
        return warmed

    async def park(self, tier: Literal["cpu", "disk"]) -> bool:
        """Move its state off the device, for it will idle; whether there was any there.

        Raises BadRequestError where the server has no such tier.
        """
        parked: bool = (await self._call("POST", "/park", {"tier": tier}))["parked"]
        return parked

    # For other programs' ways to hold a conversation.

    def openai(self) -> "AsyncOpenAI":
        """OpenAI's client, whose responses go on with this conversation; close it when done.

        Raises ImportError where the package `openai` is missing.
        """
        from splice.openai_client import async_openai

        return async_openai(self._transport.endpoint, self.id)

    def agents(self) -> "AgentsSession":
        """The session for openai-agents' `Runner.run(…, session=…)`."""
        from splice.agents import AgentsSession

        return AgentsSession(self)

    @property
    def _items(self) -> str:
        return f"/v1/conversations/{quote(self.id, safe='')}/items"

    def _stream(self, path: str, fields: dict[str, Any]) -> AsyncStream:
        body = {"client_turn_id": uuid.uuid4().hex, **fields, "stream": True}
        start = Request(method="POST", path=session_path(self.id) + path, body=body)

        async def stop(turn: Turn | None) -> Turn | None:
            turn_id = turn.id if turn is not None else await self._running(body["client_turn_id"])
            return await self._stop(turn_id) if turn_id is not None else None

        return AsyncStream(self._transport.events(start, self._reading), stop)

    def _reading(self, turn_id: str, starting_after: int) -> Request:
        query = {"stream": "true", "starting_after": str(starting_after)}
        path = f"{session_path(self.id)}/turns/{quote(turn_id, safe='')}"
        return Request(method="GET", path=path, query=query)

    async def _stop(self, turn_id: str) -> Turn:
        return Turn.from_wire(await self._call("POST", f"/turns/{quote(turn_id, safe='')}/cancel"))

    async def _running(self, client_turn_id: str) -> str | None:
        """The running turn that was sent under that name."""
        for turn_id in (await self.refresh()).active:
            if (await self.turn(turn_id)).client_turn_id == client_turn_id:
                return turn_id
        return None

    async def _named(self, turn: Turn | str | None) -> str:
        if turn is not None:
            return _id(turn)
        head = (await self.refresh()).head
        if head is None:
            raise ValueError(f"session {self.id} has no turn yet")
        return head

    async def _call(
        self,
        method: str,
        path: str,
        body: Json | None = None,
        *,
        once: bool = False,
        key: str | None = None,
    ) -> Any:  # noqa: ANN401 (any JSON)
        request = Request(
            method=method,
            path=session_path(self.id) + path,
            body=body,
            is_repeatable=not once,
            idempotency_key=key,
        )
        return await self._transport.call(request)


def session_path(session_id: str) -> str:
    """Where a session is on its server."""
    return f"{SESSIONS}/{quote(session_id, safe='')}"


def _id(turn: Turn | str) -> str:
    return turn.id if isinstance(turn, Turn) else turn


def _given(fields: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}
