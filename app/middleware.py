"""Around every request: its id and owner, its count, the guards, and the end of its errors.

From the outside in: `observe`, `answer_errors`, `guard`, `authenticate` (`app/access.py`),
`check_query` (`app/query.py`). The headers are set just before a response leaves, so that streams
and sockets have them as well.
"""

import asyncio
import logging
import re
import secrets
from typing import Final

from aiohttp import hdrs, web
from aiohttp.typedefs import Handler, Middleware

from app.access import authenticate
from app.errors import PeerGoneError, boundary, describe
from app.keys import CONFIG, METRICS, OWNER, REQUEST_ID, TRACING
from app.logs import bound
from app.openai.words import in_words_of
from app.place import PROBES, peer_of, route_of
from app.query import check_query
from app.security import (
    SECURITY_HEADERS,
    check_host,
    check_origin,
    cors_headers,
    preflight,
)
from sessions.types import ANONYMOUS

logger = logging.getLogger(__name__)

REQUEST_ID_HEADER: Final = "x-request-id"
_SANE_REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,128}")
_ID = re.compile(r"(conv|resp)_[0-9a-f]{1,64}")
_KNOWN_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})


@web.middleware
async def observe(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Give the request an id and a first owner; count it and log it when it has been answered."""
    sent = request.headers.get(REQUEST_ID_HEADER, "")
    is_sane = _SANE_REQUEST_ID.fullmatch(sent) is not None
    request[REQUEST_ID] = sent if is_sane else f"req_{secrets.token_hex(12)}"
    request[OWNER] = ANONYMOUS
    clock = asyncio.get_running_loop().time
    began = clock()
    ids = bound(request_id=request[REQUEST_ID], **_ids_in(request))
    with ids, request.app[TRACING].arriving(request.headers):
        response = await handler(request)
        _note(request, response, duration_s=clock() - began)
    return response


def _note(request: web.Request, response: web.StreamResponse, *, duration_s: float) -> None:
    method = request.method if request.method in _KNOWN_METHODS else "other"
    route = route_of(request) or "unmatched"
    request.app[METRICS].request(method, route, response.status)
    logger.log(
        logging.DEBUG if route in PROBES else logging.INFO,
        "%s %s %s",
        method,
        route,
        response.status,
        extra={
            "request_id": request[REQUEST_ID],
            "owner": request[OWNER],
            "peer": peer_of(request),
            **_ids_in(request),
            "duration_s": round(duration_s, 6),
        },
    )


@web.middleware
async def answer_errors(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Turn whatever a handler raises into an answer in OpenAI's shape."""
    try:
        with boundary(request[REQUEST_ID]) as caught:
            return await handler(request)
    except PeerGoneError as exc:
        return describe(exc).response()  # for the log and the count; nobody reads it
    assert caught.error is not None, "the block ended without a response"
    return in_words_of(request, caught.error).response()


@web.middleware
async def guard(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Refuse what comes from a foreign page, before anything else looks at it."""
    config = request.app[CONFIG]
    check_host(request, config)
    answer = preflight(request, config)
    if answer is not None:
        return answer
    check_origin(request, config)
    return await handler(request)


MIDDLEWARES: Final[tuple[Middleware, ...]] = (
    observe,
    answer_errors,
    guard,
    authenticate,
    check_query,
)


def _ids_in(request: web.Request) -> dict[str, str]:
    """The session and turn that the address names; what only looks like an id is left out."""
    named = {f"{kind}_id": request.match_info.get(kind, "") for kind in ("session", "turn")}
    return {name: value for name, value in named.items() if _ID.fullmatch(value)}


async def set_headers(request: web.Request, response: web.StreamResponse) -> None:
    """Set what every answer carries; a handler's own headers win."""
    headers = {
        REQUEST_ID_HEADER: request.get(REQUEST_ID, ""),
        "Cache-Control": "no-store",
        **SECURITY_HEADERS,
        **cors_headers(request, request.app[CONFIG]),
    }
    for name, value in headers.items():
        response.headers.setdefault(name, value)
    # aiohttp has put its own and Python's versions there, which only help an attacker.
    response.headers[hdrs.SERVER] = "splice"
