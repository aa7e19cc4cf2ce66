"""`Idempotency-Key`: a request that makes something makes it once, however often it is sent.

Turns have their `client_turn_id` for that; this is for what else is made.
"""

from collections.abc import Awaitable, Callable
from typing import Final

from aiohttp import web
from pydantic import BaseModel

from app.keys import MANAGER, OWNER
from sessions.errors import InvalidInputError
from sessions.types import Session, SessionId
from sessions.validation import MAX_CLIENT_TURN_ID_CHARS, check_text

HEADER: Final = "Idempotency-Key"


def key_of(request: web.Request) -> str | None:
    """The key that a request carries. Raises InvalidInputError for one that is none."""
    key = request.headers.get(HEADER)
    if key is None:
        return None
    check_text(key, param=HEADER)
    if not 0 < len(key) <= MAX_CLIENT_TURN_ID_CHARS:
        raise InvalidInputError(
            f"a key has 1 to {MAX_CLIENT_TURN_ID_CHARS} characters", param=HEADER
        )
    return key


async def opened_once(
    request: web.Request,
    body: BaseModel,
    make: Callable[[SessionId | None], Awaitable[Session]],
) -> Session:
    """What `make` opens, or what it opened when the same was sent before with the same key."""
    key = key_of(request)
    if key is None:
        return await make(None)
    asked = {"path": request.path, "body": body.model_dump(mode="json", exclude_unset=True)}
    return await request.app[MANAGER].keyed.opened(request[OWNER], key, asked, make)
