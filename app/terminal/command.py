"""`splice chat`: options, the first contact with the server, and one message from a pipe.

At a terminal it is a conversation. Otherwise (a message in the arguments, a pipe on either side) it
says one thing, writes the reply as plain text to standard output and ends: with 0 for a whole
reply, 1 for one that failed or was cut, 130 after a Ctrl-C.
"""

import io
import os
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from app.refusals import RefusalError, in_a_sentence
from app.server_address import reason_of, server_url
from app.terminal.conversation import Conversation, explain
from app.terminal.reader import KeyboardReader
from app.terminal.screen import Screen, fate_of
from splice import Client, ConnectionLostError, ServerError, Session, SpliceError

# A server that is restarted is back within a minute, and a reply goes on where it was.
MAX_RETRIES = 10
INTERRUPTED = 130


def chat(
    message: Annotated[
        str | None,
        typer.Argument(help="Say this, write the reply to standard output, and end."),
    ] = None,
    url: Annotated[
        str, typer.Option("--url", envvar="SPLICE_URL", help="Where the server is.")
    ] = "http://127.0.0.1:8000",
    key: Annotated[
        str | None,
        typer.Option("--key", envvar="SPLICE_API_KEY", help="API key, where it needs one."),
    ] = None,
    session: Annotated[
        str | None,
        typer.Option("--session", "-s", help="Conversation to go on with: its id, or `last`."),
    ] = None,
    instructions: Annotated[
        str | None, typer.Option("--instructions", "-i", help="System prompt of a new one.")
    ] = None,
) -> None:
    """Talk to a running server. At the prompt, /help lists the commands."""
    with in_a_sentence(), _speaking(url):
        url = server_url(url)
        if session is not None and instructions is not None:
            raise RefusalError("--instructions are for a new conversation, and --session names one")
        text = None if _is_at_terminal(message) else _one_message(message)
        _meet(url, key)
        with Client(url, api_key=key, max_retries=MAX_RETRIES) as client:
            chosen = _choose(client, session, instructions)
            if text is not None:
                raise typer.Exit(say_once(chosen, text))
            _converse(client, chosen, is_new=session is None)


def say_once(session: Session, text: str) -> int:
    """Say one thing and write the reply as it comes; the exit code."""
    stream = session.stream(text)
    try:
        for piece in stream.text_stream:
            typer.echo(piece, nl=False)
    except KeyboardInterrupt:
        stream.stop()
        typer.echo()
        return INTERRUPTED
    typer.echo()
    turn = stream.turn
    assert turn is not None, "a stream that ended told of its turn"
    if turn.status == "completed":
        return 0
    typer.echo(f"splice: {fate_of(turn)}", err=True)
    return 1


def _is_at_terminal(message: str | None) -> bool:
    return message is None and sys.stdin.isatty() and sys.stdout.isatty()


def _one_message(message: str | None) -> str:
    """What the arguments say, and below it what is piped in."""
    piped = "" if sys.stdin.isatty() else _piped().strip()
    if message and not piped and _has_pipe():
        typer.echo("splice: nothing came through the pipe", err=True)
    text = "\n\n".join(part for part in (message, piped) if part)
    if not text:
        raise RefusalError("there is nothing to say: name a message, or pipe one in")
    # An argument that is no UTF-8 has come with its bytes as surrogates, which JSON can't have.
    return text.encode(errors="surrogateescape").decode(errors="replace")


def _has_pipe() -> bool:
    """Whether something was meant to be piped in, unlike where there is no input at all."""
    try:
        return stat.S_ISFIFO(os.fstat(sys.stdin.fileno()).st_mode)
    except OSError:  # closed, or no file
        return False


def _piped() -> str:
    """All of standard input; what is no UTF-8, as in the diff of an old file, is replaced."""
    if isinstance(sys.stdin, io.TextIOWrapper):
        sys.stdin.reconfigure(encoding="utf-8", errors="replace")
    return sys.stdin.read()


def _converse(client: Client, session: Session, *, is_new: bool) -> None:
    console = Console()
    screen = Screen(console)
    title = session.info.title
    screen.note(f"{session.info.model} · {session.id}{f' · {title}' if title else ''} · /help")
    history = Path.home() / ".local" / "state" / "splice" / "chat-history"
    Conversation(client, session, screen, KeyboardReader(history), is_new=is_new).run()


def _choose(client: Client, session: str | None, instructions: str | None) -> Session:
    if session is None:
        return client.sessions.create(instructions=instructions)
    if session != "last":
        return client.sessions.get(session)
    last = next(client.sessions.list(limit=1), None)
    if last is None:
        raise RefusalError("there is no conversation yet")
    return last


def _meet(url: str, key: str | None) -> None:
    """Make sure that a server is there, without the patience that a conversation has."""
    with Client(url, api_key=key, max_retries=0) as client:
        try:
            client.models()
        except ConnectionLostError as exc:
            raise RefusalError(
                f"no server answers at {url} ({reason_of(exc)}): start one with `splice serve`, or "
                "name another with --url"
            ) from exc
        except ServerError:
            pass  # it is still loading, which is worth the patience of what follows


@contextmanager
def _speaking(url: str) -> Iterator[None]:
    try:
        yield
    except SpliceError as exc:
        raise RefusalError(f"{url}: {explain(exc, listing='`splice kv ls`')}") from exc
    except ValueError as exc:  # an address that is none
        raise RefusalError(f"{url}: {exc}") from exc
