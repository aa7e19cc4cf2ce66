"""How often an owner may ask: a bucket each, filled evenly, a minute's worth deep.

Requests and websocket frames other than pings count alike. Memory: buckets that are full again say
nothing and are dropped, so at most those owners have one who asked within the last minute.
"""

from collections.abc import Callable
from datetime import datetime
from typing import Final

from aiohttp import web

from app.errors import RequestError
from sessions.types import OwnerId

_MINUTE_S: Final = 60.0


class RateLimit:
    """One a server; `per_minute` None sets no limit."""

    def __init__(self, per_minute: int | None, clock: Callable[[], datetime]) -> None:
        self._per_minute = per_minute
        self._clock = clock
        # When each owner's bucket will be full again: all that a bucket has to remember.
        self._full_at_by_owner: dict[OwnerId, float] = {}
        self._swept_at = 0.0

    def __len__(self) -> int:
        return len(self._full_at_by_owner)

    def count(self, owner: OwnerId) -> None:
        """Count one request. Raises RequestError (429) with the time to wait."""
        if self._per_minute is None:
            return
        now = self._clock().timestamp()
        self._sweep(now)
        # No bucket is further from full than empty; a clock set back must not lock anybody out.
        full_at = min(max(self._full_at_by_owner.get(owner, now), now), now + _MINUTE_S)
        after = full_at + _MINUTE_S / self._per_minute
        wait_s = after - now - _MINUTE_S
        if wait_s > 1e-6:
            raise RequestError(
                "rate_limit_exceeded",
                f"more than {self._per_minute} requests a minute",
                retry_after_s=wait_s,
            )
        self._full_at_by_owner[owner] = after

    def _sweep(self, now: float) -> None:
        if abs(now - self._swept_at) < _MINUTE_S:
            return
        self._swept_at = now
        self._full_at_by_owner = {o: at for o, at in self._full_at_by_owner.items() if at > now}


class FrameLimit:
    """How fast one socket may send: a second's worth at once, then evenly."""

    def __init__(self, per_s: int, clock: Callable[[], float]) -> None:
        self._per_s = per_s
        self._clock = clock
        self._full_at = 0.0

    def takes(self) -> bool:
        """Count one frame, unless it is one too many."""
        now = self._clock()
        after = max(self._full_at, now) + 1 / self._per_s
        if after - now > 1 + 1e-6:
            return False
        self._full_at = after
        return True


RATE_LIMIT: web.AppKey[RateLimit] = web.AppKey("rate_limit", RateLimit)
