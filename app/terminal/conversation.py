"""A conversation at the keyboard: messages, replies, and commands that begin with a slash.

Invariants:
    a Ctrl-C ends what is being said, at the server too, and keeps what there is of it; the next
    one, with nothing said in between, leaves
    what the server refuses is shown, and the conversation goes on
    a session that was begun here and in which nothing was said is not left behind
"""

import difflib
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice

from app.server_address import KEY_HINT
from app.terminal.reader import Reader
from app.terminal.screen import Screen
from splice import Client, Session, SpliceError, Stream, Turn
from splice.errors import APIStatusError, NotFoundError

PROMPT = "> "
NUM_LISTED = 15
NUM_RECALLED = 3
_NUM_SEARCHED = 100  # with one request


@dataclass(frozen=True, slots=True)
class Command:
    """What a word behind a slash does; `usage` is how it is written."""

    usage: str
    meaning: str
    act: Callable[[str], None]

    @property
    def name(self) -> str:
        """The word."""
        return self.usage.split()[0]


class Conversation:
    """One person's chat with one server, in one session after the other."""

    def __init__(
        self,
        client: Client,
        session: Session,
        screen: Screen,
        reader: Reader,
        *,
        is_new: bool = False,
    ) -> None:
        self._client = client
        self._session = session
        self._is_new = is_new  # and as far as is known nothing was said in it
        self._screen = screen
        self._reader = reader
        self._is_warned = False  # the next Ctrl-C leaves
        self._listed: tuple[str, ...] = ()  # ids, as they were numbered last
        self._is_over = False
        commands = (
            Command("/new [TITLE]", "begin another conversation", self._new),
            Command("/fork [TITLE]", "go on in a copy, and leave this one as it is", self._fork),
            Command("/regen", "another reply to the last message", self._regenerate),
            Command("/continue", "go on with a reply that was cut", self._continue),
            Command("/edit [TEXT]", "say the last message differently", self._edit),
            Command("/stop", "stop what is being said, also from elsewhere", self._stop_all),
            Command("/title TITLE", "name the conversation", self._title),
            Command("/sessions", "list conversations", self._list),
            Command(
                "/open ID", "go to another: its number there, or how its id begins", self._open
            ),
            Command("/kv", "show where the conversation's state lies", self._kv),
            Command("/help", "show this list", self._help),
            Command("/quit", "leave; the conversation is kept", self._quit),
        )
        self._commands = {command.name: command for command in commands}

    def run(self) -> None:
        """Talk until whoever types leaves."""
        try:
            self._attempt(self._recall)
            while not self._is_over:
                self._next()
        except (EOFError, KeyboardInterrupt):
            pass  # left
        with suppress(KeyboardInterrupt):
            self._attempt(self._leave)

    def _next(self) -> None:
        try:
            line = self._reader.read(PROMPT).strip()
            self._is_warned = False
            if line:
                self._attempt(lambda: self._take(line))
        except KeyboardInterrupt:
            if self._is_warned:
                raise
            self._is_warned = True
            self._screen.note("Ctrl-C again leaves")

    def _leave(self) -> None:
        if not self._tidy():
            self._screen.note(f"to go on: splice chat --session {self._session.id}")

    def _tidy(self) -> bool:
        """Delete the session if it was begun here and nothing was said in it; whether it was."""
        if not self._is_new:
            return False
        info = self._session.refresh()
        if info.head is not None or info.active or info.title:
            return False
        self._session.delete()
        return True

    def _go_to(self, session: Session, *, is_new: bool) -> None:
        self._tidy()
        self._session, self._is_new = session, is_new

    def _attempt(self, act: Callable[[], None]) -> None:
        try:
            act()
        except SpliceError as exc:
            self._screen.fail(explain(exc))

    def _take(self, line: str) -> None:
        if not line.startswith("/") or line.startswith("//"):
            self._show(self._session.stream(line.removeprefix("/")))
            return
        name, _, rest = line.partition(" ")
        command = self._commands.get(name)
        if command is not None:
            command.act(rest.strip())
            return
        near = difflib.get_close_matches(name, self._commands, n=1)
        hint = f"did you mean {near[0]}?" if near else "/help lists what there is"
        self._screen.note(f"there is no {name}; {hint} (two slashes begin a message with one)")

    # Replies.

    def _regenerate(self, _: str) -> None:
        if (last := self._last()) is not None:
            self._show(self._session.stream_again(last))

    def _continue(self, _: str) -> None:
        if (last := self._last()) is not None:
            self._show(self._session.stream_on(last))

    def _edit(self, text: str) -> None:
        last = self._last()
        if last is None:
            return
        if not text:
            text = self._reader.read("edit " + PROMPT, prefill=last.input_text).strip()
        if text:
            self._show(self._session.stream(text, parent=last.parent_id))

    def _last(self) -> Turn | None:
        head = self._session.refresh().head
        if head is None:
            self._screen.note("nothing has been said yet")
            return None
        return self._session.turn(head)

    def _show(self, stream: Stream) -> None:
        """Show a reply as it comes."""
        try:
            with self._screen.reply() as reply:
                for piece in stream.text_stream:
                    reply.add(piece)
        except KeyboardInterrupt:
            self._is_warned = True
            self._stop(stream)
            return
        if stream.turn is not None:
            self._screen.ended(stream.turn)

    def _stop(self, stream: Stream) -> None:
        stopped = stream.stop()
        if stopped is None:
            self._screen.note("stopped before it began")
            return
        self._screen.ended(stopped)

    def _stop_all(self, _: str) -> None:
        stopped = len(self._session.stop())
        self._screen.note(f"stopped: {stopped}" if stopped else "nothing is being said")

    # Sessions.

    def _new(self, title: str) -> None:
        self._go_to(self._client.sessions.create(title=title or None), is_new=True)
        self._screen.note(f"a new conversation, {self._session.id}")

    def _fork(self, title: str) -> None:
        self._go_to(self._session.fork(title=title or None), is_new=False)
        self._screen.note(f"a copy, {self._session.id}; the other one stays as it is")

    def _open(self, said: str) -> None:
        if not said:
            self._screen.note("/open ID, or a number; /sessions lists them")
            return
        found = self._found(said)
        if found is None:
            return
        if found.id == self._session.id:
            self._screen.note("this is the conversation that is open")
            return
        self._go_to(found, is_new=False)
        self._recall()

    def _found(self, said: str) -> Session | None:
        """The conversation of a number, an id, or an id's beginning; None, and says so, if none."""
        if said.isdecimal() and 1 <= int(said) <= len(self._listed):
            return self._client.sessions.get(self._listed[int(said) - 1])
        with suppress(NotFoundError):
            return self._client.sessions.get(said)
        beginnings = (said, f"conv_{said}")
        every = self._client.sessions.list(limit=_NUM_SEARCHED)
        alike = list(islice((s for s in every if s.id.startswith(beginnings)), 2))
        if len(alike) == 1:
            return alike[0]
        self._screen.fail(
            f"more than one conversation's id begins with {said}: say more of it, or the number "
            "that /sessions gives it"
            if alike
            else f"there is no conversation {said}; /sessions lists what there is"
        )
        return None

    def _title(self, title: str) -> None:
        if not title:
            self._screen.note(self._session.info.title or "it has no title")
            return
        self._session.rename(title)
        self._screen.note(f"called {title!r}")

    def _list(self, _: str) -> None:
        found = [*islice(self._client.sessions.list(limit=NUM_LISTED), NUM_LISTED)]
        self._listed = tuple(session.id for session in found)
        self._screen.sessions((session.info for session in found), self._session.id)

    def _kv(self, _: str) -> None:
        self._screen.tables(self._session.kv())

    def _recall(self) -> None:
        """Show how a conversation that is gone on with ended, and a reply that is still coming."""
        if self._session.info.head is None:
            return
        turns = self._session.turns()
        if len(turns) > NUM_RECALLED:
            self._screen.note(f"… {len(turns) - NUM_RECALLED} earlier turns")
        for turn in turns[-NUM_RECALLED:]:
            if turn.status in ("queued", "in_progress"):
                self._screen.note(turn.input_text)
                self._show(self._session.resume(turn))
            else:
                self._screen.exchange(turn)

    # The rest.

    def _help(self, _: str) -> None:
        self._screen.commands((c.usage, c.meaning) for c in self._commands.values())
        self._screen.note("Ctrl-C stops a reply; a line that ends in \\ goes on in the next")

    def _quit(self, _: str) -> None:
        self._is_over = True


def explain(exc: SpliceError, listing: str = "/sessions") -> str:
    """What went wrong, with what would help; `listing` is the command that lists conversations."""
    if isinstance(exc, APIStatusError) and exc.status == 401:
        return f"{exc.message} ({KEY_HINT})"
    if isinstance(exc, NotFoundError):
        return f"{exc.message}; {listing} lists what there is"
    return str(exc)
