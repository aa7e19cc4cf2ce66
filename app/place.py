"""Where a request came from and went to, whatever stands in front of the server.

Everything is below `base_path`. What a proxy says about its client is believed only if the
connection comes from one of `trusted_proxies`; anybody can send such headers.
"""

import ipaddress
from collections.abc import Iterable
from ipaddress import IPv4Address, IPv6Address
from typing import Final

from aiohttp import hdrs, web

from app.keys import CONFIG

PROBES: Final = frozenset({"/health", "/healthz", "/readyz", "/metrics"})
"""Asked for by machines under any name, and of no use to a page."""


def below(base: str, routes: Iterable[web.RouteDef]) -> list[web.RouteDef]:
    """The routes below a base path. Probes are answered without it, too: they know of no proxy."""
    routes = list(routes)
    if not base:
        return routes
    prefixed = [web.RouteDef(r.method, base + r.path, r.handler, r.kwargs) for r in routes]
    bare = [route for route in routes if route.path in PROBES]
    return [*prefixed, *bare, web.get(base, _to_folder)]


async def _to_folder(request: web.Request) -> web.StreamResponse:
    """Add the slash, without which the page's own addresses would lead beside it."""
    return web.Response(status=308, headers={"Location": request.app[CONFIG].base_path + "/"})


def place_of(request: web.Request) -> str:
    """The path below the base path; the whole path where it isn't below it."""
    base = request.app[CONFIG].base_path
    return request.path.removeprefix(base) if request.path.startswith(base + "/") else request.path


def route_of(request: web.Request) -> str | None:
    """The route's pattern below the base path, for there are as many paths as sessions."""
    resource = request.match_info.route.resource
    if resource is None:
        return None
    return resource.canonical.removeprefix(request.app[CONFIG].base_path) or "/"


def host_of(request: web.Request) -> str | None:
    """The host that the client asked for, with its port if it named one."""
    named = _listed(request, "X-Forwarded-Host")
    if named and _is_trusted(request.remote, request):
        return named[-1]
    return request.headers.get(hdrs.HOST)


def peer_of(request: web.Request) -> str | None:
    """The client's address: the last one that isn't a trusted proxy's."""
    peer = request.remote
    for earlier in reversed(_listed(request, "X-Forwarded-For")):
        if not _is_trusted(peer, request) or _address(earlier) is None:
            break
        peer = earlier
    return peer


def _is_trusted(peer: str | None, request: web.Request) -> bool:
    address = None if peer is None else _address(peer)
    networks = request.app[CONFIG].trusted_proxies
    return address is not None and any(address in network for network in networks)


def _address(text: str) -> IPv4Address | IPv6Address | None:
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return None
    # A socket for both families calls an IPv4 peer ::ffff:192.0.2.1.
    return getattr(address, "ipv4_mapped", None) or address


def _listed(request: web.Request, name: str) -> list[str]:
    values = ",".join(request.headers.getall(name, ())).split(",")
    return [value.strip() for value in values if value.strip()]
