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
from sessions.api_keys import ApiKey, Scope

_ADMIN_ROUTES: Final = frozenset({"/metrics", "/v1/cache"})
_SCHEME: Final = "bearer"


@web.middleware
async def authenticate(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Find the owner, or refuse: 401 for no valid key, 403 for one that may not do this."""
    scope = _scope_needed(request)
    if scope is not None and await request.app[KEY_RING].is_closed():
        key = await _key_of(request)
        if scope not in key.scopes:
            message = f"this key lacks the scope {scope.value!r}"
            raise RequestError(403, "missing_scope", message)
        request[KEY], request[OWNER] = key.id, key.owner
    return await handler(request)


def unauthorized(message: str) -> RequestError:
    """Refuse for want of a valid key."""
    return RequestError(401, "invalid_api_key", message)


async def _key_of(request: web.Request) -> ApiKey:
    secret = bearer_of(request)
    if secret is None:
        raise unauthorized(
            "this server needs an API key, as in 'Authorization: Bearer sk-splice-…'; "
            "`splice keys create` makes one"
        )
    key = await request.app[KEY_RING].find(secret)
    if key is None:
        raise unauthorized("the API key is wrong, revoked or expired")
    return key


def bearer_of(request: web.Request) -> str | None:
    """The secret in the header; None without a header of that scheme."""
    scheme, _, secret = request.headers.get(hdrs.AUTHORIZATION, "").partition(" ")
    return secret.strip() if scheme.lower() == _SCHEME and secret.strip() else None


def _scope_needed(request: web.Request) -> Scope | None:
    """The scope that an address needs; None for what is open to everybody."""
    resource = request.match_info.route.resource
    route = request.path if resource is None else resource.canonical
    if route in _ADMIN_ROUTES:
        return Scope.ADMIN
    return Scope.CHAT if route.startswith("/v1/") else None
