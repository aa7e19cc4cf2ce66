"""From bytes and queries to checked values. Everything wrong becomes an error that names the part.

Nothing here can be made to recurse without end: the reader stops at a fixed depth, and numbers
too large for a machine word come out as floats, which integer fields refuse. Messages tell what
was expected and where, never what was sent.
"""

import difflib
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Final, TypeVar, get_args

import orjson
from aiohttp import web
from pydantic import BaseModel, TypeAdapter, ValidationError

from app.errors import PeerGoneError
from sessions.errors import InvalidInputError
from sessions.nesting import MAX_NESTING, is_too_deep

M = TypeVar("M")
B = TypeVar("B", bound=BaseModel)

_REASONS: Final[Mapping[str, str]] = {
    "extra_forbidden": "unknown field",
    "missing": "this field is required",
    "too_short": "this must not be empty",
}
"""What pydantic says of these would be long-winded; its other messages are clear."""
_OF_A_KEY: Final = "[key]"  # pydantic's last step to a key that is wrong itself
_BLANKS: Final = b" \t\r\n"  # JSON's own; Python has more
_WHOLE_NUMBER: Final = re.compile(r"-?[0-9]+")


def read_json(data: bytes | str) -> object:
    """Parse one JSON text; the error has the line and column."""
    try:
        value: object = orjson.loads(data)
    except orjson.JSONDecodeError as exc:
        # `args[0]` repeats the position at its end; `msg` is the bare reason.
        place = f"line {exc.lineno}, column {exc.colno}"
        raise InvalidInputError(f"this is not JSON: {exc.msg} ({place})") from exc
    if is_too_deep(value, data):
        raise InvalidInputError(f"this is nested more than {MAX_NESTING} levels deep")
    return value


def validate(kind: type[B], value: object) -> B:
    """Check a value against a model of a body."""
    try:
        return kind.model_validate(value)
    except ValidationError as exc:
        raise _invalid(exc, kind=kind) from exc


def validate_tagged(adapter: TypeAdapter[M], value: object, kinds: Sequence[type[BaseModel]]) -> M:
    """Check a value against a union that is told apart by its `type`; `kinds` are its members."""
    try:
        return adapter.validate_python(value)
    except ValidationError as exc:
        # The first step of the place is the tag, which the sender didn't write as a level.
        tag = exc.errors()[0]["loc"][:1]
        kind = next((k for k in kinds if tag == get_args(k.model_fields["type"].annotation)), None)
        raise _invalid(exc, kind=kind, skip=len(tag)) from exc


async def read_body(request: web.Request, kind: type[B]) -> B:
    """Read and check a JSON body; an absent body is an empty object."""
    return validate(kind, await read_object(request))


async def read_object(request: web.Request) -> dict[str, Any]:
    """Read a JSON object; raise aiohttp's own error when it is too large."""
    limit = request.client_max_size
    if limit and (request.content_length or 0) > limit:
        raise _too_large(limit)
    data = await _read(request)
    value = read_json(data) if data.strip(_BLANKS) else {}
    if not isinstance(value, dict):
        raise InvalidInputError("the body must be a JSON object")
    return value


def integer_of(request: web.Request, name: str, default: int, *, minimum: int, maximum: int) -> int:
    """Read a number from the query."""
    text = request.query.get(name)
    if text is None:
        return default
    if _WHOLE_NUMBER.fullmatch(text) is None:  # `int` takes more: " 3", "1_0", "٣"
        raise InvalidInputError(f"{name} must be a whole number", param=name)
    number = int(text[:20])
    if not minimum <= number <= maximum:
        raise InvalidInputError(f"{name} must be from {minimum} to {maximum}", param=name)
    return number


def truth_of(request: web.Request, name: str) -> bool:
    """Read a yes or no from the query; absent means no."""
    text = request.query.get(name, "false").lower()
    if text not in ("true", "false", "1", "0"):
        raise InvalidInputError(f"{name} must be true or false", param=name)
    return text in ("true", "1")


def _too_large(limit: int) -> web.HTTPRequestEntityTooLarge:
    text = f"the body has more than {limit:,} bytes, the most that max_body_bytes lets in"
    return web.HTTPRequestEntityTooLarge(limit, text=text)


async def _read(request: web.Request) -> bytes:
    """Read the whole body; what goes wrong on the way is the sender's doing, never ours."""
    try:
        return await request.read()
    except web.HTTPRequestEntityTooLarge as exc:
        raise _too_large(request.client_max_size) from exc
    except ConnectionError as exc:
        raise PeerGoneError from exc
    except web.RequestPayloadError as exc:  # a wrong Content-Encoding, say
        raise InvalidInputError("the body can't be decoded") from exc


def nearest(name: str, known: Collection[str]) -> str:
    """Which of the names that there are may have been meant; empty where none is near."""
    near = difflib.get_close_matches(name, known, n=1)
    return f"; did you mean {near[0]}?" if near else ""


def _invalid(
    exc: ValidationError, *, kind: type[BaseModel] | None, skip: int = 0
) -> InvalidInputError:
    """Tell the first thing that is wrong, of which kind of body; a misspelt field's neighbours are
    those of the place where it stands."""
    problems = exc.errors(include_url=False, include_input=False, include_context=False)
    # A misspelt field is missing as well, and its spelling is what helps.
    misspelt = (problem for problem in problems if problem["type"] == "extra_forbidden")
    problem = next(misspelt, problems[0])
    place = problem["loc"][skip:]
    param = _param(place)
    reason = _REASONS.get(problem["type"]) or problem["msg"].removeprefix("Value error, ")
    # What pydantic checks of a list is "after validation" to it, and to nobody else.
    reason = reason[:1].lower() + reason[1:].replace(" after validation", "")
    if problem["type"] == "extra_forbidden" and kind is not None:
        reason += nearest(str(place[-1]), _fields_at(kind, place[:-1]))
    return InvalidInputError(f"{param}: {reason}" if param else reason, param=param)


def _fields_at(kind: type[BaseModel], place: Sequence[int | str]) -> Collection[str]:
    """The fields that an object at a place of a body may have; none where that can't be told."""
    for step in place:
        if isinstance(step, int):
            continue  # what a list's elements are was found with the list
        field = kind.model_fields.get(step)
        inner = None if field is None else next(_models_in(field.annotation), None)
        if inner is None:
            return ()
        kind = inner
    return kind.model_fields


def _models_in(annotation: object) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for part in get_args(annotation):
        yield from _models_in(part)


def _param(place: Sequence[int | str]) -> str | None:
    """Write a place as OpenAI does: `messages[0].content`; None for the whole."""
    path = ""
    for step in place:
        if isinstance(step, int):
            path += f"[{step}]"
        elif step != _OF_A_KEY:
            path += f".{step[:64]}" if path else step[:64]
    return path or None
