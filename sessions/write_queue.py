"""Where this server's writers to one SQLite file queue, first come, first served.

SQLite itself lets whoever happens to ask at the right moment go first, and the others fail once
they have waited for `busy_timeout`. When another program keeps the lock for so long that the first
of the queue fails, so does everybody who stood behind it: each would only wait as long again.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from sqlalchemy.exc import DBAPIError

from sessions.errors import StoreUnavailableError


class WriteQueue:
    """One a database; on one event loop."""

    def __init__(self) -> None:
        self._lock = asyncio.Lock()
        self._times_locked_out = 0

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """What is done inside is done by nobody else here at the same time.

        Raises StoreUnavailableError when somebody ahead found that another program has the lock.
        """
        before = self._times_locked_out
        async with self._lock:
            if self._times_locked_out != before:
                raise StoreUnavailableError("another program keeps the database locked")
            try:
                yield
            except DBAPIError as exc:
                if is_locked_out(exc):
                    self._times_locked_out += 1
                raise


def is_locked_out(exc: DBAPIError) -> bool:
    """Whether another program has SQLite's lock, and had it for all of `busy_timeout`."""
    return "database is locked" in str(exc.orig)
