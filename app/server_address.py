"""The address of a server as `splice chat` and `splice kv` are given it, and why nobody answers."""

import os
from urllib.parse import urlsplit

from app.refusals import RefusalError

KEY_HINT = "--key, or the variable SPLICE_API_KEY"


def server_url(text: str) -> str:
    """The address with its scheme, without `/v1`. Raises RefusalError for what can't be one."""
    whole = text if "://" in text else f"http://{text}"
    url = whole.rstrip("/").removesuffix("/v1").rstrip("/")
    try:
        parts = urlsplit(url)
        is_one = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # of a port that is none
        is_one = False
    if not is_one:
        raise RefusalError(
            f"{text!r} is no address of a server: name one with --url, as in http://127.0.0.1:8000"
        )
    return url


def reason_of(exc: BaseException | None) -> str:
    """Why a connection failed, as a person says it."""
    while exc is not None:
        cause = getattr(exc, "os_error", None) or getattr(exc, "reason", None) or exc.__cause__
        if not isinstance(cause, BaseException):
            break
        exc = cause
    if isinstance(exc, TimeoutError):
        return "it takes too long"
    if isinstance(exc, OSError) and exc.errno is not None:
        # asyncio has its own words there, with the address once more.
        return os.strerror(exc.errno) if exc.errno > 0 else exc.strerror or str(exc)
    return str(exc)
