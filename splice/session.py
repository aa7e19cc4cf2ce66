"""A handle on one conversation, for programs that block: `AsyncSession`, run on a loop."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Literal, Self, Unpack

from splice.async_session import AsyncSession
from splice.async_stream import AsyncStream
from splice.events import Event
from splice.items import Item
from splice.json_value import Json
from splice.loop import Loop
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
    from openai import OpenAI


class Session:
    """One conversation. `info` is what the server last said of it; `refresh` asks again.

    A turn that was sent goes on at the server whatever happens to this process: leaving a stream
    stops reading, and only `stop` stops the turn.
    """

    def __init__(self, loop: Loop, inner: AsyncSession) -> None:
        self._loop = loop
        self._inner = inner

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.id} {self.info.title!r}>"

    @property
    def id(self) -> str:
        """The session's id, `conv_…`, which is the conversation's for OpenAI's clients, too."""
        return self._inner.id

    @property
    def info(self) -> SessionInfo:
        """What the server last said of the session."""
        return self._inner.info

    # What is said.

    def send(self, text: str | Sequence[Message], **options: Unpack[TurnOptions]) -> Turn:
        """Send a message and wait for the whole reply; a failed turn is returned, not raised."""
        return self._loop.run(self._inner.send(text, **options))

    def stream(self, text: str | Sequence[Message], **options: Unpack[TurnOptions]) -> "Stream":
        """Send a message and read the reply as it comes. Nothing is sent before the first read."""
        return Stream(self._loop, self._inner.stream(text, **options))

    def edit(
        self,
        text: str | Sequence[Message],
        turn: Turn | str | None = None,
        **options: Unpack[TurnOptions],
    ) -> Turn:
        """Ask a turn's question differently, by default the last one's; the old one stays beside
        it. To read the reply as it comes, `stream` it with the old turn's `parent_id` as `parent`.
        """
        return self._loop.run(self._inner.edit(text, turn, **options))

    def regenerate(self, turn: Turn | str | None = None, **options: Unpack[ReplyOptions]) -> Turn:
        """A new reply to the same input, beside the old one; by default the last turn's."""
        return self._loop.run(self._inner.regenerate(turn, **options))

    def stream_again(self, turn: Turn | str, **options: Unpack[ReplyOptions]) -> "Stream":
        """`regenerate`, read as it comes."""
        return Stream(self._loop, self._inner.stream_again(turn, **options))

    def go_on(
        self, turn: Turn | str | None = None, *, max_output_tokens: int | None = None
    ) -> Turn:
        """Go on with a reply that was cut, by default the last turn's: a turn beside it whose reply
        begins with the cut one."""
        return self._loop.run(self._inner.go_on(turn, max_output_tokens=max_output_tokens))

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

    def stop(self, turn: Turn | str | None = None) -> list[Turn]:
        """Stop a turn, or all that run, whoever began them: the turns as they ended, with what
        there is of their replies. A turn that had ended is left as it is."""
        return self._loop.run(self._inner.stop(turn))

    # What was said.

    def history(self, *, limit: int | None = None) -> list[Item]:
        """The conversation's messages, calls, results and thoughts, oldest first; with `limit` the
        newest so many of them. What a running turn says is not among them."""
        return self._loop.run(self._inner.history(limit=limit))

    def add(self, items: Sequence[Json]) -> list[Item]:
        """Put items behind what was said, in the form of OpenAI's Responses, without a reply.

        They go twenty at a time, each of which is put in whole or not at all, and once.
        """
        return self._loop.run(self._inner.add(items))

    def remove(self, item: Item | str) -> None:
        """Take an item out of the conversation; what comes next is made without it."""
        self._loop.run(self._inner.remove(item))

    def turns(self, *, whole_tree: bool = False) -> list[Turn]:
        """The conversation's turns, oldest first; or those of all its branches."""
        return self._loop.run(self._inner.turns(whole_tree=whole_tree))

    def turn(self, turn_id: str) -> Turn:
        """One turn as it is now."""
        return self._loop.run(self._inner.turn(turn_id))

    def usage(self, *, whole_tree: bool = False) -> Usage:
        """The tokens of all its turns together; of those on the way here, or of all branches."""
        return self._loop.run(self._inner.usage(whole_tree=whole_tree))

    def tree(self) -> Json:
        """How the session's turns hang together, as the server describes it."""
        return self._loop.run(self._inner.tree())

    # The session itself.

    def refresh(self) -> SessionInfo:
        """Read the session anew."""
        return self._loop.run(self._inner.refresh())

    def update(self, **changes: Unpack[SessionChanges]) -> SessionInfo:
        """Change the session; raises ConflictError when it is not at `expected_revision`."""
        return self._loop.run(self._inner.update(**changes))

    def rename(self, title: str | None) -> SessionInfo:
        """Give it another title; None takes it away, and the server may make one."""
        return self._loop.run(self._inner.rename(title))

    def fork(self, at: Turn | str | None = None, *, title: str | None = None) -> "Session":
        """A new session that continues from a turn of this one, by default from its end."""
        return Session(self._loop, self._loop.run(self._inner.fork(at, title=title)))

    def move_head(
        self, turn: Turn | str | None, *, expected_revision: int | None = None
    ) -> SessionInfo:
        """Pick the branch that the next message continues; None: a new beginning.

        Raises ConflictError when the session is not at `expected_revision`.
        """
        moved = self._inner.move_head(turn, expected_revision=expected_revision)
        return self._loop.run(moved)

    def export(self) -> Json:
        """The whole session, to be imported again."""
        return self._loop.run(self._inner.export())

    def markdown(self) -> str:
        """The conversation to be read by people."""
        return self._loop.run(self._inner.markdown())

    def delete(self) -> None:
        """Delete the session with everything in it; `client.sessions.restore` takes that back."""
        self._loop.run(self._inner.delete())

    # Where its state is.

    def kv(self) -> Json:
        """The conversation's block tables, as the server describes them."""
        return self._loop.run(self._inner.kv())

    def warm(self, *, deadline_s: float | None = None) -> Json:
        """Bring its state onto the device before somebody goes on; what came from where."""
        return self._loop.run(self._inner.warm(deadline_s=deadline_s))

    def park(self, tier: Literal["cpu", "disk"]) -> bool:
        """Move its state off the device, for it will idle; whether there was any there.

        Raises BadRequestError where the server has no such tier.
        """
        return self._loop.run(self._inner.park(tier))

    def openai(self) -> "OpenAI":
        """OpenAI's client, whose responses go on with this conversation; close it when done.

        Raises ImportError where the package `openai` is missing.
        """
        from splice.openai_client import openai_client

        return openai_client(self._inner._transport.endpoint, self.id)


class Stream:
    """A turn's events as they come, each once. A lost connection is made again by itself.

    It is read by one thread; any thread may stop the turn.
    """

    def __init__(self, loop: Loop, inner: AsyncStream) -> None:
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

    def stop(self) -> Turn | None:
        """Stop the turn at the server: as it ended, with what there is of its reply, and None where
        it had not begun. Whoever reads still gets the last event."""
        return self._loop.run(self._inner.stop())

    def close(self) -> None:
        """Read no more; the turn goes on."""
        self._loop.run(self._inner.close())
