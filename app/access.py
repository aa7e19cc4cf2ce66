"""Who asks: the owner that a request speaks for, and what its key allows.

While no API key was ever made everybody is `anonymous`, and only a loopback address is served
(`app/cli.py`). From the first key on each call of the API needs one; the probes, the page's files
and preflights never do.
"""

from typing import Final

from aiohttp import hdrs, web
from aiohttp.typedefs import Handler

from app.errors import RequestError
from app.keys import KEY, KEY_RING, OWNER
from app.place import place_of, route_of
from app.rate import RATE_LIMIT
from app.tickets import TICKETS
from sessions.api_keys import ApiKey, KeyId, Scope
from sessions.types import OwnerId

_ADMIN_ROUTES: Final = frozenset({"/metrics", "/v1/cache", "/v1/cache/verify", "/v1/cache/collect"})
_SOCKET: Final = "/v1/ws"
_SCHEME: Final = "bearer"


@web.middleware
async def authenticate(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Find the owner, or refuse: 401 for no valid key, 403 for one that may not do this."""
    scope = _scope_needed(request)
    if scope is not None and await request.app[KEY_RING].is_closed():
        if (
            route_of(request) == _SOCKET
            and _bearer_of(request) is None
            and "ticket" in request.query
        ):
            request[KEY], request[OWNER] = await _of_ticket(request)
        else:
            key = await _key_of(request)
            if scope not in key.scopes:
                message = f"this key lacks the scope {scope.value!r}"
                raise RequestError("missing_scope", message)
            request[KEY], request[OWNER] = key.id, key.owner
    if scope is Scope.CHAT:
        request.app[RATE_LIMIT].count(request[OWNER])
    return await handler(request)


def _unauthorized(message: str) -> RequestError:
    return RequestError("invalid_api_key", message)


async def _of_ticket(request: web.Request) -> tuple[KeyId, OwnerId]:
    """Take the ticket in the address; it is as good as the key that asked for it."""
    ticket = request.app[TICKETS].redeem(request.query["ticket"])
    if ticket is None or ticket.key is None or not await request.app[KEY_RING].holds(ticket.key):
        raise _unauthorized("the ticket is used, expired or of a revoked key; ask for another")
    return ticket.key, ticket.owner


async def _key_of(request: web.Request) -> ApiKey:
    secret = _bearer_of(request)
    if secret is None:
        raise _unauthorized(
            "this server needs an API key, as in 'Authorization: Bearer sk-splice-…'; "
            "`splice keys create` makes one"
        )
    key = await request.app[KEY_RING].find(secret)
    if key is None:
        raise _unauthorized("the API key is wrong, revoked or expired")
    return key


def _bearer_of(request: web.Request) -> str | None:
    """The secret in the header; None without a header of that scheme."""
    scheme, _, secret = request.headers.get(hdrs.AUTHORIZATION, "").partition(" ")
    return secret.strip() if scheme.lower() == _SCHEME and secret.strip() else None


def _scope_needed(request: web.Request) -> Scope | None:
    """The scope that an address needs; None for what is open to everybody."""
    route = route_of(request) or place_of(request)
    if route in _ADMIN_ROUTES:
        return Scope.ADMIN
    return Scope.CHAT if route.startswith("/v1/") else None
