"""docs/errors.md, written from the error classes and `app/errors.py` themselves.

`python -m app.errors_docs` writes it again; a test fails while it differs.
"""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import model.errors as engine_errors
import sessions.errors as session_errors
from app.errors import FOUND_BY_THE_SERVER, REFUSALS, Refusal, describe, has_row

_TOP = """# Errors

Written by `make docs` from `app/errors.py`, `sessions/errors.py` and `model/errors.py`; a test
provokes each of them through the wire, over REST and over the websocket.

Every error has OpenAI's body, `{"error":{"message","type","param","code"}}`; `code` is stable,
`type` follows from the status: `invalid_request_error` below 500, `server_error` from there on.
Over REST, "retryable" is `x-should-retry: true` with `Retry-After` and `retry-after-ms`; everything
else says `x-should-retry: false`. On a websocket the same body comes in an `error` frame, with the
`status` and the `event_id` of the frame that it answers; no error of the first two tables ever
costs the socket.

An error that comes while a turn already runs is no answer to a request any more: the turn ends as
`failed`, its `error` is `{code, message, retryable}`, its last event `response.failed`. With
`stream: false` that turn is the answer, with 200.

Where the code is `internal` the caller learns nothing but the request's id, under which the log has
the rest.
"""

_SESSIONS = "Sessions and turns"
_ENGINE = "The engine"
_FAMILY_HEAD = ("code", "HTTP", "type", "retryable", "on a websocket", "when")
_NEEDS_ARGUMENTS: Mapping[type[Exception], Exception] = {
    engine_errors.ContextLengthError: engine_errors.ContextLengthError(2, 1),
    engine_errors.OutOfBlocksError: engine_errors.OutOfBlocksError(2, 1),
}


def family_of(base: type[Exception]) -> Iterator[type[Exception]]:
    """The class and all below it, parents first."""
    yield base
    for child in base.__subclasses__():
        # A class of a test's own, or of another module, has its parent's row.
        if has_row(child):
            yield from family_of(child)


def sample_of(kind: type[Exception]) -> Exception:
    """An error of a class."""
    return _NEEDS_ARGUMENTS.get(kind) or kind("something")


def page() -> str:
    """The whole of docs/errors.md."""
    parts = [_TOP]
    for title, base in (
        (_SESSIONS, session_errors.SessionsError),
        (_ENGINE, engine_errors.ModelError),
    ):
        parts.append(_table(title, [_class_row(kind) for kind in family_of(base)]))
    for title, refusals in (
        ("What the front end refuses", REFUSALS),
        ("What comes from anywhere", FOUND_BY_THE_SERVER),
    ):
        parts.append(_table(title, [_refusal_row(c, r) for c, r in refusals.items()]))
    return "".join(parts)


def _class_row(kind: type[Exception]) -> tuple[str, ...]:
    error = describe(sample_of(kind))
    own = str(getattr(kind, "code", ""))
    code = f"`{own}`" if error.code == own else f"`{error.code}` (in a turn: `{own}`)"
    return (
        code,
        str(error.status),
        str(error.error()["type"]),
        "no" if error.retry_after_s is None else f"after {error.retry_after_s:g} s",
        "stays open",
        _first_sentence(kind),
    )


def _refusal_row(code: str, refusal: Refusal) -> tuple[str, ...]:
    kind = "invalid_request_error" if refusal.status < 500 else "server_error"
    is_retryable = "yes" if refusal.is_retryable else "no"
    return (f"`{code}`", str(refusal.status), kind, is_retryable, refusal.socket, refusal.when)


def _first_sentence(kind: type[Exception]) -> str:
    text = re.sub(r"\s+", " ", kind.__doc__ or "").strip()
    return re.split(r"(?<=\.) ", text)[0].replace("|", r"\|")


def _table(title: str, rows: list[tuple[str, ...]]) -> str:
    head = [_FAMILY_HEAD, tuple("---" for _ in _FAMILY_HEAD)]
    lines = ["| " + " | ".join(cells) + " |" for cells in (*head, *rows)]
    return f"\n## {title}\n\n" + "\n".join(lines) + "\n"


def main() -> None:
    """Write the document of the checkout this module lies in."""
    root = Path(__file__).resolve().parent.parent
    (root / "docs" / "errors.md").write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main()
