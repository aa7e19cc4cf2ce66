"""Who may talk to the server from a browser.

A page of another site must not reach a server on its reader's machine: not by a form or a
websocket (its `Origin` gives it away), and not by a name that its owner points at 127.0.0.1
(DNS rebinding: then the `Host` is a name that we don't have). An IP address as host is always
fine, for rebinding needs a name. Programs send no `Origin` and are not asked for one.
"""

import ipaddress
from urllib.parse import urlsplit

from aiohttp import hdrs, web

from app.config import AppConfig
from app.errors import RequestError
from app.place import PROBES, host_of, place_of

SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})

CONTENT_POLICY = (
    "default-src 'self'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; object-src 'none'; base-uri 'none'; frame-ancestors 'none'"
)
_EXPOSED = "x-request-id, x-should-retry, Retry-After, retry-after-ms"
SECURITY_HEADERS = {
    "Content-Security-Policy": CONTENT_POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "X-Frame-Options": "DENY",
}


def check_host(request: web.Request, config: AppConfig) -> None:
    """Refuse a host name that is not ours."""
    host = host_of(request)
    if host is None or place_of(request) in PROBES or "*" in config.allowed_hosts:
        return
    name = _host_name(host)
    if not (_is_local(name) or name in {allowed.lower() for allowed in config.allowed_hosts}):
        message = (
            "this server isn't known by that host name; allowed_hosts in its settings can name it"
        )
        raise RequestError("host_not_allowed", message)


def check_origin(request: web.Request, config: AppConfig) -> None:
    """Refuse what a page of another site may not do: anything but reading, and sockets."""
    is_socket = request.headers.get(hdrs.UPGRADE, "").lower() == "websocket"
    if request.method in SAFE_METHODS and not is_socket:
        return
    origin = request.headers.get(hdrs.ORIGIN)
    if origin is not None and not (_is_own(origin, request) or is_allowed(origin, config)):
        raise _foreign_origin()


def is_allowed(origin: str, config: AppConfig) -> bool:
    """Tell whether the settings name the origin."""
    return origin.lower() in {allowed.lower().rstrip("/") for allowed in config.allowed_origins}


def cors_headers(request: web.Request, config: AppConfig) -> dict[str, str]:
    """Let pages of an allowed origin read the answer; nothing for any other."""
    origin = request.headers.get(hdrs.ORIGIN)
    if origin is None or not is_allowed(origin, config):
        return {}
    return {
        "Access-Control-Allow-Origin": origin,
        "Access-Control-Expose-Headers": _EXPOSED,
        "Vary": "Origin",
    }


def preflight(request: web.Request, config: AppConfig) -> web.Response | None:
    """Answer whether an allowed origin may send a request; None when nobody asked."""
    if request.method != "OPTIONS" or "Access-Control-Request-Method" not in request.headers:
        return None
    if not cors_headers(request, config):
        raise _foreign_origin()
    return web.Response(
        status=204,
        headers={
            "Access-Control-Allow-Methods": "GET, POST, PATCH, DELETE",
            "Access-Control-Allow-Headers": (
                "authorization, content-type, idempotency-key, x-request-id"
            ),
            "Access-Control-Max-Age": "600",
        },
    )


def _foreign_origin() -> RequestError:
    message = "pages of this origin may not use the server; allowed_origins in its settings can"
    return RequestError("origin_not_allowed", f"{message} name it")


def _host_name(host: str) -> str:
    """Take the name from `name`, `name:port`, `[address]:port`; empty when it is none of these."""
    try:
        return (urlsplit(f"//{host}").hostname or "").rstrip(".")
    except ValueError:
        return ""


def _is_local(name: str) -> bool:
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _is_own(origin: str, request: web.Request) -> bool:
    """Compare host and port only: behind a proxy that ends TLS the schemes differ."""
    try:
        return urlsplit(origin).netloc.lower() == (host_of(request) or "").lower()
    except ValueError:
        return False
