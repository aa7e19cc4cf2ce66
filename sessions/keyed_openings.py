"""Sessions opened under a key of the caller's: asked for again with it, what it opened is found.

Such a session's id is made of its owner, the key and what was asked for. So nothing else is kept,
and of two requests that come at the same time one opens the session and the other finds it.
"""

from collections.abc import Awaitable, Callable
from typing import Any

from sessions.errors import IdempotencyConflictError
from sessions.ids import keyed_session_id
from sessions.store import Store
from sessions.types import OwnerId, Session, SessionId
from sessions.validation import digest


class KeyedOpenings:
    """Opens each session once; holds no state of its own."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def opened(
        self,
        owner: OwnerId,
        key: str,
        asked: dict[str, Any],
        make: Callable[[SessionId], Awaitable[Session]],
    ) -> Session:
        """The session that the key opened, as it is now, or else what `make` opens by that id.

        Raises IdempotencyConflictError where the key opened something else, or something that has
        been deleted since.
        """
        session_id = keyed_session_id(owner, key, digest(asked))
        found = await self._store.opened(owner, session_id)
        if found is not None:
            return found
        try:
            return await make(session_id)
        except IdempotencyConflictError:  # somebody was quicker, maybe with the same request
            found = await self._store.opened(owner, session_id)
            if found is None:
                raise
            return found
