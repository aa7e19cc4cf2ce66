"""How many replies each owner has in the making, and that they are not too many.

One count for turns and for completions without rows. Memory: an entry for each owner with a reply
in the making, none for the rest.
"""

import asyncio
from collections import Counter

from sessions.errors import TooManyTurnsError
from sessions.types import OwnerId


class Places:
    """`take` one for each reply and `leave` it exactly once; None sets no limit."""

    def __init__(self, max_per_owner: int | None = None) -> None:
        self._max_per_owner = max_per_owner
        self._num_by_owner: Counter[OwnerId] = Counter()
        # Exactly one of them is set.
        self._idle, self._busy = asyncio.Event(), asyncio.Event()
        self._idle.set()

    @property
    def num_owners(self) -> int:
        """Owners with a reply in the making."""
        return len(self._num_by_owner)

    @property
    def is_idle(self) -> bool:
        """Whether no reply is in the making."""
        return self._idle.is_set()

    async def idle(self) -> None:
        """Return when no reply is in the making; by then there may be one again."""
        await self._idle.wait()

    async def busy(self) -> None:
        """Return when a reply is in the making."""
        await self._busy.wait()

    def take(self, owner: OwnerId) -> None:
        """Raises TooManyTurnsError, and takes nothing then."""
        limit = self._max_per_owner
        if limit is not None and self._num_by_owner[owner] >= limit:
            raise TooManyTurnsError(
                f"this owner has as many replies in the making as may be at once: {limit}"
            )
        self._num_by_owner[owner] += 1
        self._idle.clear()
        self._busy.set()

    def leave(self, owner: OwnerId) -> None:
        """Give a place back."""
        self._num_by_owner[owner] -= 1
        if not self._num_by_owner[owner]:
            del self._num_by_owner[owner]
        if not self._num_by_owner:
            self._busy.clear()
            self._idle.set()
