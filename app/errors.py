"""Errors on the wire: which status each one has, its body, its headers, and where it ends.

The two families below (`sessions.errors`, `model.errors`) know no HTTP. `_ROWS` has one row a
class of both, found by MRO, so that a subclass nobody thought of still gets its parent's answer; a
test fails for a class without a row. `REFUSALS` has what the front end refuses by itself. Both
together are docs/errors.md (`app/errors_docs.py`). `boundary` is the one place in the front end
where any exception at all ends: it is logged once, and the caller learns an id.
"""

import logging
import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

from aiohttp import web

import model.errors as engine_errors
import sessions.errors as session_errors
from app.answer import json_answer

logger = logging.getLogger(__name__)

DOMAIN_ERRORS = (session_errors.SessionsError, engine_errors.ModelError)
"""What the layers below raise on purpose."""


WITH_PARAM = (session_errors.InvalidInputError, engine_errors.InvalidGenerationError)
"""Those that name the part of a request which is at fault."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """What the front end refuses by itself. `socket` says what becomes of a websocket."""

    status: int
    when: str
    socket: str = "-"
    is_retryable: bool = False


_BEFORE = "is not opened"
_OPEN = "stays open"

REFUSALS: Final[Mapping[str, Refusal]] = MappingProxyType(
    {
        "invalid_api_key": Refusal(
            status=401,
            when="No key or ticket, or one that is wrong, used, revoked or expired.",
            socket=f"{_BEFORE}; an open one is closed with 4401",
        ),
        "missing_scope": Refusal(
            status=403, when="The key is good, but not for this.", socket=_BEFORE
        ),
        "host_not_allowed": Refusal(
            status=403, when="The server isn't known by that `Host`.", socket=_BEFORE
        ),
        "origin_not_allowed": Refusal(
            status=403, when="A page of another origin asks.", socket=_BEFORE
        ),
        "model_not_found": Refusal(status=404, when="No model of that name is served."),
        "previous_response_not_found": Refusal(
            status=400,
            when="No response of that id can be followed.",
            socket=_OPEN,
        ),
        "invalid_stream_id": Refusal(
            status=400, when="A lane's name is none, on a websocket of responses.", socket=_OPEN
        ),
        "websocket_stream_limit_reached": Refusal(
            status=400, when="A websocket of responses has 32 named lanes already.", socket=_OPEN
        ),
        "websocket_connection_limit_reached": Refusal(
            status=400,
            when="A websocket of responses is an hour old.",
            socket="is closed with 1001 when nothing runs on it",
        ),
        "steering_not_supported": Refusal(
            status=400, when="A running response was sent more input.", socket=_OPEN
        ),
        "upgrade_required": Refusal(
            status=426, when="The websocket's address was asked without an upgrade.", socket=_BEFORE
        ),
        "rate_limit_exceeded": Refusal(
            status=429,
            when="The owner asks more often than `owner_requests_per_minute`.",
            socket=_OPEN,
            is_retryable=True,
        ),
        "too_many_streams": Refusal(
            status=429,
            when="The socket reads `max_streams` replies already, or 272 responses wait on it.",
            socket=_OPEN,
            is_retryable=True,
        ),
        "too_many_subscriptions": Refusal(
            status=429,
            when="The socket watches `max_subscriptions` sessions already.",
            socket=_OPEN,
            is_retryable=True,
        ),
        "too_many_frames": Refusal(
            status=429,
            when="The socket sends more than `max_frames_per_s`.",
            socket="is closed with 1008",
            is_retryable=True,
        ),
        "too_many_owner_sockets": Refusal(
            status=429,
            when="The owner has `owner_max_sockets` open already.",
            socket="is closed with 1013",
            is_retryable=True,
        ),
        "too_many_sockets": Refusal(
            status=503,
            when="The server has `max_sockets` open already.",
            socket=_BEFORE,
            is_retryable=True,
        ),
    }
)

FOUND_BY_THE_SERVER: Final[Mapping[str, Refusal]] = MappingProxyType(
    {
        "not_found": Refusal(status=404, when="There is nothing at that address."),
        "method_not_allowed": Refusal(status=405, when="The address is good, the method isn't."),
        "request_too_large": Refusal(
            status=413,
            when="The body is larger than `max_body_bytes`.",
            socket="a frame that is: closed with 1009",
        ),
        "internal": Refusal(
            status=500,
            when="A bug of the server's; its log has the request id.",
            socket=_OPEN,
        ),
    }
)
"""What comes from aiohttp, and from what nobody foresaw."""


class RequestError(Exception):
    """The front end itself refuses: one of `REFUSALS`, by its code."""

    def __init__(
        self, code: str, message: str, *, param: str | None = None, retry_after_s: float = 1
    ) -> None:
        super().__init__(message)
        self.code = code
        self.param = param
        self.status = REFUSALS[code].status
        self.is_retryable = REFUSALS[code].is_retryable
        self.retry_after_s = retry_after_s


class PeerGoneError(Exception):
    """Whoever asked has left, or stopped reading until the deadline; nobody gets an answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WireError:
    """One error as a client sees it."""

    status: int
    code: str
    message: str
    param: str | None = None
    retry_after_s: float | None = None
    # Of an address, where the status is 405.
    allowed_methods: str = ""

    def error(self) -> dict[str, Any]:
        """Build the `error` object of OpenAI's shape."""
        kind = "invalid_request_error" if self.status < 500 else "server_error"
        return {"message": self.message, "type": kind, "param": self.param, "code": self.code}

    def headers(self) -> dict[str, str]:
        """Say whether trying again helps, and after how many seconds."""
        if self.retry_after_s is not None:
            return {
                "x-should-retry": "true",
                "Retry-After": str(math.ceil(self.retry_after_s)),
                "retry-after-ms": str(math.ceil(self.retry_after_s * 1000)),
            }
        # HTTP wants the scheme named with every 401, and the methods with every 405.
        challenge = {"WWW-Authenticate": "Bearer"} if self.status == 401 else {}
        allowed = {"Allow": self.allowed_methods} if self.allowed_methods else {}
        return {"x-should-retry": "false", **challenge, **allowed}

    def response(self) -> web.Response:
        """Answer a request that has had no answer yet."""
        return json_answer({"error": self.error()}, status=self.status, headers=self.headers())

    def frame(self, **ids: str | None) -> dict[str, Any]:
        """Build an `error` event or frame, for a stream that has begun."""
        return {"type": "error", "status": self.status, "error": self.error(), **ids}


@dataclass(frozen=True, slots=True)
class _Row:
    """A status, and when a retryable error is worth another try.

    Those of status 500 tell a client nothing, unless `is_told`.
    """

    status: int
    retry_after_s: int = 1
    is_told: bool = False


_ROWS: dict[type[Exception], _Row] = {
    session_errors.SessionsError: _Row(500),
    session_errors.NotFoundError: _Row(404),
    session_errors.SessionNotFoundError: _Row(404),
    session_errors.TurnNotFoundError: _Row(404),
    session_errors.ItemNotFoundError: _Row(404),
    session_errors.KeyNotFoundError: _Row(404),
    session_errors.ConflictError: _Row(409),
    session_errors.SessionBusyError: _Row(409, retry_after_s=2),
    session_errors.RevisionConflictError: _Row(409),
    session_errors.IdempotencyConflictError: _Row(409),
    session_errors.TurnNotEndedError: _Row(409, retry_after_s=2),
    session_errors.InvalidInputError: _Row(400),
    session_errors.UnsupportedInputError: _Row(400),
    session_errors.TooManyTurnsError: _Row(429, retry_after_s=2),
    session_errors.UnavailableError: _Row(503, retry_after_s=2),
    session_errors.DrainingError: _Row(503, retry_after_s=5),
    session_errors.StoreUnavailableError: _Row(503, retry_after_s=2),
    session_errors.ForeignDatabaseError: _Row(500),
    engine_errors.ModelError: _Row(500),
    engine_errors.InvalidGenerationError: _Row(400),
    engine_errors.ContextLengthError: _Row(400),
    engine_errors.EngineBusyError: _Row(429, retry_after_s=2),
    engine_errors.EngineUnavailableError: _Row(503, retry_after_s=5),
    engine_errors.EngineDiedError: _Row(503, retry_after_s=5),
    engine_errors.RepeatedCrashError: _Row(500, is_told=True),
    engine_errors.SequenceFailedError: _Row(503),
    engine_errors.ModelLoadError: _Row(503),
    engine_errors.OutOfBlocksError: _Row(503),
}


_NOTHING_HERE = (
    "there is nothing at this address; there are, without a slash at their end, "
    "/v1/chat/completions, /v1/completions, /v1/responses, /v1/conversations, /v1/models and "
    "/v1/sessions, and /openapi.json lists all"
)


def has_row(kind: type[Exception]) -> bool:
    """Tell whether a class has a row of its own."""
    return kind in _ROWS


def describe(exc: Exception, request_id: str | None = None) -> WireError:
    """Find what a client is told. What is not meant for clients becomes `internal`."""
    if isinstance(exc, RequestError):
        return WireError(
            status=exc.status,
            code=exc.code,
            message=str(exc),
            param=exc.param,
            retry_after_s=exc.retry_after_s if exc.is_retryable else None,
        )
    if isinstance(exc, PeerGoneError):
        return WireError(status=499, code="client_closed_request", message="the client left")
    if isinstance(exc, web.HTTPException):
        return _describe_http(exc)
    row = next((_ROWS[kind] for kind in type(exc).__mro__ if kind in _ROWS), None)
    if row is None or not isinstance(exc, DOMAIN_ERRORS):
        return _internal(request_id)
    if row.status == 500 and not row.is_told:
        return _internal(request_id)
    return WireError(
        status=row.status,
        code=exc.code,
        message=str(exc) or exc.code.replace("_", " "),
        param=getattr(exc, "param", None),
        retry_after_s=row.retry_after_s if exc.retryable else None,
    )


def _internal(request_id: str | None) -> WireError:
    message = f"internal error; the server's log has it as {request_id}"
    return WireError(status=500, code="internal", message=message)


def _describe_http(exc: web.HTTPException) -> WireError:
    """Put aiohttp's own refusals into OpenAI's shape."""
    if isinstance(exc, web.HTTPMethodNotAllowed):
        allowed = ", ".join(sorted(exc.allowed_methods))
        message = f"{exc.method} is not allowed here; allowed: {allowed}"
        return WireError(
            status=405, code="method_not_allowed", message=message, allowed_methods=allowed
        )
    if isinstance(exc, web.HTTPRequestEntityTooLarge):
        return WireError(status=413, code="request_too_large", message=str(exc.text))
    if exc.status == 404:
        return WireError(status=404, code="not_found", message=_NOTHING_HERE)
    return WireError(status=exc.status, code="invalid_request", message=exc.reason)


@dataclass(slots=True)
class Caught:
    """What ended a block under `boundary`, if anything did."""

    error: WireError | None = None


@contextmanager
def boundary(request_id: str) -> Iterator[Caught]:
    """End any exception of the block here: described in the result and, if it is our bug, logged.

    Only `PeerGoneError` passes, for there is nobody to tell, and cancellation.
    """
    caught = Caught()
    try:
        yield caught
    except PeerGoneError:
        raise
    except Exception as exc:
        caught.error = describe(exc, request_id)
        if caught.error.code == "internal":
            logger.exception("internal error", extra={"request_id": request_id})
        elif caught.error.status >= 500:
            logger.warning("%s: %s", caught.error.code, exc, extra={"request_id": request_id})
