"""The asynchronous client: one server, and the sessions it has."""

import uuid
from collections.abc import AsyncIterator, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Self, Unpack

from splice.async_session import SESSIONS, AsyncSession, session_path
from splice.endpoint import DEFAULT_URL, Endpoint
from splice.json_value import Json
from splice.transport import Request, Transport
from splice.types import SessionFields

if TYPE_CHECKING:
    from openai import AsyncOpenAI


class AsyncClient:
    """A connection to one server; use it as a context manager, or close it.

    An answer may be silent for `timeout_s`. What may be sent again is, `max_retries` times with
    growing pauses; a stream that has gone on counts anew.
    """

    def __init__(
        self,
        base_url: str = DEFAULT_URL,
        *,
        api_key: str | None = None,
        timeout_s: float = 600.0,
        max_retries: int = 3,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        endpoint = Endpoint.at(
            base_url,
            api_key=api_key,
            timeout_s=timeout_s,
            max_retries=max_retries,
            headers=headers,
        )
        self._transport = Transport(endpoint)
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

    def openai(self) -> "AsyncOpenAI":
        """OpenAI's client on this server, which names the model where nobody does; close it when
        done. Raises ImportError where the package `openai` is missing."""
        from splice.openai_client import async_openai

        return async_openai(self._transport.endpoint)


class AsyncSessions:
    """The server's sessions."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    async def create(self, **fields: Unpack[SessionFields]) -> AsyncSession:
        """Begin a conversation."""
        body = {name: value for name, value in fields.items() if value is not None}
        return await self._opened(SESSIONS, body)

    async def get(self, session_id: str) -> AsyncSession:
        """The session; raises NotFoundError."""
        request = Request(method="GET", path=session_path(session_id))
        return AsyncSession(self._transport, await self._transport.call(request))

    async def list(
        self,
        *,
        limit: int = 20,
        order: str = "desc",
        q: str = "",
        pinned: bool | None = None,
        pinned_first: bool = False,
        listed: bool = True,
    ) -> AsyncIterator[AsyncSession]:
        """Every session, most recently used first; `limit` is how many come with one request.

        Only those whose title has `q`, and those that are pinned or not, where that is said. Those
        that aren't `listed`, as those of single responses, come by themselves.
        """
        query = {"limit": str(limit), "order": order}
        if q:
            query["q"] = q
        if pinned is not None:
            query["pinned"] = str(pinned).lower()
        if pinned_first:
            query["pinned_first"] = "true"
        if not listed:
            query["listed"] = "false"
        while True:
            page = await self._transport.call(Request(method="GET", path=SESSIONS, query=query))
            for raw in page["data"]:
                yield AsyncSession(self._transport, raw)
            if not page["has_more"]:
                return
            query["after"] = page["last_id"]

    async def delete(self, session_id: str) -> None:
        """Delete the session with everything in it; raises NotFoundError."""
        await self._transport.call(Request(method="DELETE", path=session_path(session_id)))

    async def bring_in(self, exported: Json) -> AsyncSession:
        """A new session from what `export` gave, here or on another server."""
        return await self._opened(f"{SESSIONS}/import", exported)

    async def restore(self, session_id: str) -> AsyncSession:
        """Take a deletion back; raises NotFoundError when it is too late."""
        request = Request(method="POST", path=session_path(session_id) + "/restore")
        return AsyncSession(self._transport, await self._transport.call(request))

    async def _opened(self, path: str, body: Json) -> AsyncSession:
        """A new session, and one only, however often the request has to be sent."""
        key = uuid.uuid4().hex
        request = Request(method="POST", path=path, body=body, idempotency_key=key)
        return AsyncSession(self._transport, await self._transport.call(request))
