"""The synchronous client: the asynchronous one, run on a loop in a thread of its own.

Every method blocks until its answer is there. One client may be used from several threads; a
stream is read by one of them.
"""

import asyncio
import threading
from collections.abc import AsyncIterator, Coroutine, Iterator, Mapping, Sequence
from typing import Any, Self, TypeVar, Unpack

from splice.async_client import (
    DEFAULT_URL,
    AsyncClient,
    AsyncSession,
    AsyncSessions,
    AsyncStream,
)
from splice.events import Event
from splice.types import (
    Json,
    Message,
    SessionChanges,
    SessionFields,
    SessionInfo,
    Turn,
    TurnOptions,
)

T = TypeVar("T")


class _Loop:
    """An event loop in a daemon thread, ended by `close`."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(
            target=self._loop.run_forever, name="splice-client", daemon=True
        )
        self._thread.start()

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        future = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        try:
            return future.result()
        except BaseException:
            # Ctrl-C in the caller's thread: what it waited for is of no use to anybody.
            future.cancel()
            raise

    def iterate(self, source: AsyncIterator[T]) -> Iterator[T]:
        async def following() -> T:
            return await anext(source)

        while True:
            try:
                item = self.run(following())
            except StopAsyncIteration:
                return
            yield item

    @property
    def is_closed(self) -> bool:
        return self._loop.is_closed()

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


class Client:
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
        self._loop = _Loop()
        self._inner = AsyncClient(
            base_url,
            api_key=api_key,
            timeout_s=timeout_s,
            max_retries=max_retries,
            headers=headers,
        )
        self.sessions = Sessions(self._loop, self._inner.sessions)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close every connection. Turns that are running go on at the server."""
        if self._loop.is_closed:
            return
        self._loop.run(self._inner.close())
        self._loop.close()

    def models(self) -> list[str]:
        """The ids of the models that the server has."""
        return self._loop.run(self._inner.models())

    def search(self, words: str, *, limit: int = 20) -> Iterator[Json]:
        """Titles and messages with all the words, newest first, as the server describes them."""
        return self._loop.iterate(self._inner.search(words, limit=limit))

    def cache(self) -> Json:
        """The block pool, as the server describes it."""
        return self._loop.run(self._inner.cache())


class Sessions:
    """The server's sessions."""

    def __init__(self, loop: _Loop, inner: AsyncSessions) -> None:
        self._loop = loop
        self._inner = inner

    def create(self, **fields: Unpack[SessionFields]) -> "Session":
        """Begin a conversation."""
        return Session(self._loop, self._loop.run(self._inner.create(**fields)))

    def get(self, session_id: str) -> "Session":
        """The session; raises NotFoundError."""
        return Session(self._loop, self._loop.run(self._inner.get(session_id)))

    def list(
        self, *, limit: int = 20, order: str = "desc", q: str = "", pinned: bool | None = None
    ) -> Iterator["Session"]:
        """Every session, most recently used first; `limit` is how many come with one request.

        Only those whose title has `q`, and those that are pinned or not, where that is said.
        """
        found = self._inner.list(limit=limit, order=order, q=q, pinned=pinned)
        for session in self._loop.iterate(found):
            yield Session(self._loop, session)

    def delete(self, session_id: str) -> None:
        """Delete the session with everything in it; raises NotFoundError."""
        self._loop.run(self._inner.delete(session_id))

    def bring_in(self, exported: Json) -> "Session":
        """A new session from what `export` gave, here or on another server."""
        return Session(self._loop, self._loop.run(self._inner.bring_in(exported)))

    def restore(self, session_id: str) -> "Session":
        """Take a deletion back; raises NotFoundError when it is too late."""
        return Session(self._loop, self._loop.run(self._inner.restore(session_id)))


class Session:
    """One conversation. `info` is what the server last said of it; `refresh` asks again."""

    def __init__(self, loop: _Loop, inner: AsyncSession) -> None:
        self._loop = loop
        self._inner = inner

    @property
    def id(self) -> str:
        """The session's id, `conv_…`."""
        return self._inner.id

    @property
    def info(self) -> SessionInfo:
        """What the server last said of the session."""
        return self._inner.info

    def refresh(self) -> SessionInfo:
        """Read the session anew."""
        return self._loop.run(self._inner.refresh())

    def update(self, **changes: Unpack[SessionChanges]) -> SessionInfo:
        """Change the session; raises ConflictError when it is not at `expected_revision`."""
        return self._loop.run(self._inner.update(**changes))

    def send(self, text: str | Sequence[Message], **options: Unpack[TurnOptions]) -> Turn:
        """Send a message and wait for the whole reply; a failed turn is returned, not raised."""
        return self._loop.run(self._inner.send(text, **options))

    def stream(self, text: str | Sequence[Message], **options: Unpack[TurnOptions]) -> "Stream":
        """Send a message and read the reply as it comes. Nothing is sent before the first read."""
        return Stream(self._loop, self._inner.stream(text, **options))

    def regenerate(self, turn: Turn | str | None = None, **options: Unpack[TurnOptions]) -> Turn:
        """A new reply to the same input, beside the old one; by default the last turn's."""
        return self._loop.run(self._inner.regenerate(turn, **options))

    def go_on(
        self, turn: Turn | str | None = None, *, max_output_tokens: int | None = None
    ) -> Turn:
        """Go on with a reply that was cut, by default the last turn's: a turn beside it whose reply
        begins with the cut one."""
        return self._loop.run(self._inner.go_on(turn, max_output_tokens=max_output_tokens))

    def export(self) -> Json:
        """The whole session, to be imported again."""
        return self._loop.run(self._inner.export())

    def tree(self) -> Json:
        """How the session's turns hang together, as the server describes it."""
        return self._loop.run(self._inner.tree())

    def move_head(self, turn: Turn | str | None) -> SessionInfo:
        """Pick the branch that the next message continues; None: a new beginning."""
        return self._loop.run(self._inner.move_head(turn))

    def stream_again(self, turn: Turn | str, **options: Unpack[TurnOptions]) -> "Stream":
        """`regenerate`, read as it comes."""
        return Stream(self._loop, self._inner.stream_again(turn, **options))

    def stream_on(
        self,
        turn: Turn | str,
        *,
        max_output_tokens: int | None = None,
        client_turn_id: str | None = None,
    ) -> "Stream":
        """`go_on`, read as it comes."""
        stream = self._inner.stream_on(
            turn, max_output_tokens=max_output_tokens, client_turn_id=client_turn_id
        )
        return Stream(self._loop, stream)

    def resume(self, turn: Turn | str, *, starting_after: int = -1) -> "Stream":
        """The events of a turn after that sequence number, stored or still to come."""
        return Stream(self._loop, self._inner.resume(turn, starting_after=starting_after))

    def cancel(self, turn: Turn | str | None = None) -> Turn:
        """Stop a turn; what there is of its reply is kept. The turn this object last began."""
        return self._loop.run(self._inner.cancel(turn))

    def fork(self, at: Turn | str | None = None, *, title: str | None = None) -> "Session":
        """A new session that continues from a turn of this one, by default from its end."""
        return Session(self._loop, self._loop.run(self._inner.fork(at, title=title)))

    def turns(self, *, whole_tree: bool = False) -> list[Turn]:
        """The conversation's turns, oldest first; or those of all its branches."""
        return self._loop.run(self._inner.turns(whole_tree=whole_tree))

    def turn(self, turn_id: str) -> Turn:
        """One turn as it is now."""
        return self._loop.run(self._inner.turn(turn_id))

    def kv(self) -> Json:
        """The conversation's block tables, as the server describes them."""
        return self._loop.run(self._inner.kv())

    def delete(self) -> None:
        """Delete the session with everything in it."""
        self._loop.run(self._inner.delete())


class Stream:
    """A turn's events as they come, each once. A lost connection is made again by itself."""

    def __init__(self, loop: _Loop, inner: AsyncStream) -> None:
        self._loop = loop
        self._inner = inner

    def __iter__(self) -> Iterator[Event]:
        return self._loop.iterate(self._inner)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def turn(self) -> Turn | None:
        """The turn as the last event that told of it had it; None before the first."""
        return self._inner.turn

    @property
    def last_sequence_number(self) -> int:
        """The number of the last event read; -1 before the first."""
        return self._inner.last_sequence_number

    @property
    def text_stream(self) -> Iterator[str]:
        """Only the reply's text, piece by piece."""
        return self._loop.iterate(self._inner.text_stream)

    def final(self) -> Turn:
        """Read to the end; the turn as it ended."""
        return self._loop.run(self._inner.final())

    def close(self) -> None:
        """Stop reading; the turn goes on."""
        self._loop.run(self._inner.close())
