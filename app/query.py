"""The query of our own addresses: a parameter that nobody reads is refused, as a field is.

OpenAI's addresses ignore what they don't know, as their clients expect; so do the page's files,
the probes and the websockets, whose addresses pass through others' hands.
"""

from typing import Final

from aiohttp import web
from aiohttp.typedefs import Handler

from app.openapi_calls import CALLS
from app.parsing import nearest
from app.place import route_of
from sessions.errors import InvalidInputError

_OURS: Final = ("/v1/sessions", "/v1/search", "/v1/cache", "/v1/ws-tickets")


@web.middleware
async def check_query(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Refuse a query parameter that the address doesn't have."""
    route = route_of(request)
    if request.query and route is not None and route.startswith(_OURS):
        method = "GET" if request.method == "HEAD" else request.method
        call = CALLS.get((method, route))
        known = [name for name, _ in call.query] if call is not None else []
        for name in request.query:
            if name not in known:
                shown = name[:64]
                raise InvalidInputError(
                    f"{shown}: unknown query parameter{nearest(shown, known)}", param=shown
                )
    return await handler(request)
