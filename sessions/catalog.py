"""Sessions as their owner keeps them: changed, looked through. What runs is not asked for here.

Everything is the owner's: another's session is not found.
"""

from collections.abc import AsyncIterator, Callable
from datetime import datetime, timedelta

from sessions.errors import InvalidInputError
from sessions.pages import Page, SessionFilter
from sessions.search import words_of
from sessions.search_types import SearchPage
from sessions.session_events import SessionNews, watch
from sessions.store import Store
from sessions.types import (
    OwnerId,
    Session,
    SessionChange,
    SessionId,
)
from sessions.validation import MAX_TITLE_CHARS, check_session, check_text

MAX_PAGE = 100
MAX_QUERY_CHARS = 1000


class Catalog:
    """One owner's sessions at a time; holds no state of its own."""

    def __init__(
        self,
        store: Store,
        *,
        clock: Callable[[], datetime],
        max_input_chars: int,
        delete_grace_s: float,
    ) -> None:
        self._store = store
        self._clock = clock
        self._delete_grace = timedelta(seconds=delete_grace_s)
        self._max_input_chars = max_input_chars

    async def list(self, owner: OwnerId, wanted: SessionFilter) -> Page:
        """A page of the owner's sessions. Raises InvalidInputError for what can't be asked."""
        check_limit(wanted.limit)
        if wanted.title_has is not None:
            check_text(wanted.title_has, param="q")
            if len(wanted.title_has) > MAX_TITLE_CHARS:
                raise InvalidInputError(f"at most {MAX_TITLE_CHARS} characters", param="q")
        return await self._store.sessions(owner, wanted)

    async def restore(self, owner: OwnerId, session_id: SessionId) -> Session:
        """Take a deletion back; a living session is left as it is.

        Raises SessionNotFoundError when its grace is over.
        """
        after = self._clock() - self._delete_grace
        return await self._store.restore_session(owner, session_id, deleted_after=after)

    async def search(
        self, owner: OwnerId, query: str, *, limit: int = 20, after: str | None = None
    ) -> SearchPage:
        """`SearchHit`s of the owner's living sessions, newest first; none for no words."""
        check_limit(limit)
        check_text(query, param="q")
        if len(query) > MAX_QUERY_CHARS:
            raise InvalidInputError(f"at most {MAX_QUERY_CHARS} characters", param="q")
        return await self._store.search(owner, words_of(query), limit=limit, after=after)

    def watch(
        self, owner: OwnerId, session_id: SessionId, *, after: int | None = None
    ) -> AsyncIterator[SessionNews]:
        """What happens to a session from a revision on; see `session_events.watch`."""
        return watch(self._store, owner, session_id, after=after)

    async def check_store(self) -> None:
        """Raises StoreUnavailableError when nothing can be read."""
        await self._store.check()

    async def update(
        self,
        owner: OwnerId,
        session_id: SessionId,
        change: SessionChange,
        *,
        expected_revision: int | None = None,
    ) -> Session:
        """Change what the change names; the next turn goes by it.

        Raises RevisionConflictError when the session is not at the revision that was expected.
        """
        check_session(
            change.title,
            change.instructions,
            change.metadata,
            max_chars=self._max_input_chars,
        )
        return await self._store.change_session(
            owner, session_id, change, expected_revision=expected_revision
        )


def check_limit(limit: int) -> None:
    """Raise InvalidInputError for a page of no size, or of too much."""
    if not 1 <= limit <= MAX_PAGE:
        raise InvalidInputError(f"limit must be 1 to {MAX_PAGE}", param="limit")
