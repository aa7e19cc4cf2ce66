"""The synchronous client: the asynchronous one, run on a loop in a thread of its own.

Every method blocks until its answer is there. One client may be used from several threads.
"""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Self, Unpack

from splice.async_client import AsyncClient, AsyncSessions
from splice.endpoint import DEFAULT_URL
from splice.json_value import Json
from splice.loop import Loop
from splice.session import Session
from splice.types import SessionFields

if TYPE_CHECKING:
    from openai import OpenAI


class Client:
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
        self._inner = AsyncClient(
            base_url,
            api_key=api_key,
            timeout_s=timeout_s,
            max_retries=max_retries,
            headers=headers,
        )
        self._loop = Loop()
        self.sessions = Sessions(self._loop, self._inner.sessions)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close every connection. Turns that are running go on at the server."""
        self._loop.close(self._inner.close())

    def models(self) -> list[str]:
        """The ids of the models that the server has."""
        return self._loop.run(self._inner.models())

    def search(self, words: str, *, limit: int = 20) -> Iterator[Json]:
        """Titles and messages with all the words, newest first, as the server describes them."""
        return self._loop.iterate(self._inner.search(words, limit=limit))

    def cache(self) -> Json:
        """The block pool, as the server describes it."""
        return self._loop.run(self._inner.cache())

    def openai(self) -> "OpenAI":
        """OpenAI's client on this server, which names the model where nobody does; close it when
        done. Raises ImportError where the package `openai` is missing."""
        from splice.openai_client import openai_client

        return openai_client(self._inner._transport.endpoint)


class Sessions:
    """The server's sessions."""

    def __init__(self, loop: Loop, inner: AsyncSessions) -> None:
        self._loop = loop
        self._inner = inner

    def create(self, **fields: Unpack[SessionFields]) -> Session:
        """Begin a conversation."""
        return Session(self._loop, self._loop.run(self._inner.create(**fields)))

    def get(self, session_id: str) -> Session:
        """The session; raises NotFoundError."""
        return Session(self._loop, self._loop.run(self._inner.get(session_id)))

    def list(
        self,
        *,
        limit: int = 20,
        order: str = "desc",
        q: str = "",
        pinned: bool | None = None,
        pinned_first: bool = False,
        listed: bool = True,
    ) -> Iterator[Session]:
        """Every session, most recently used first; `limit` is how many come with one request.

        Only those whose title has `q`, and those that are pinned or not, where that is said. Those
        that aren't `listed`, as those of single responses, come by themselves.
        """
        found = self._inner.list(
            limit=limit,
            order=order,
            q=q,
            pinned=pinned,
            pinned_first=pinned_first,
            listed=listed,
        )
        for session in self._loop.iterate(found):
            yield Session(self._loop, session)

    def delete(self, session_id: str) -> None:
        """Delete the session with everything in it; raises NotFoundError."""
        self._loop.run(self._inner.delete(session_id))

    def bring_in(self, exported: Json) -> Session:
        """A new session from what `export` gave, here or on another server."""
        return Session(self._loop, self._loop.run(self._inner.bring_in(exported)))

    def restore(self, session_id: str) -> Session:
        """Take a deletion back; raises NotFoundError when it is too late."""
        return Session(self._loop, self._loop.run(self._inner.restore(session_id)))
