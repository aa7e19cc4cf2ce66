"""Whose key it is: the stored keys in memory, read again when they are older than `FRESH_S`.

Bounds: what the command line makes or revokes takes effect within `FRESH_S`, also in another
process; the ring holds as many entries as there are unrevoked keys, whatever is sent; a wrong
secret costs no query. When the database can't be read nobody gets in.
"""

import asyncio
import hmac
import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Final, Protocol

from sessions.api_keys import ApiKey, KeyId, digest_of
from sessions.errors import StoreUnavailableError

logger = logging.getLogger(__name__)

FRESH_S: Final = 2.0
_USE_NOTED_EVERY = timedelta(minutes=1)


class KeySource(Protocol):
    """What the ring reads and writes; `KeyStore` in earnest."""

    async def has_any(self) -> bool:
        """Whether a key was ever made."""
        ...

    async def unrevoked(self) -> Mapping[bytes, ApiKey]:
        """The keys by hash."""
        ...

    async def used(self, key_id: KeyId, now: datetime) -> None:
        """Note a use."""
        ...


class KeyRing:
    """The keys that are good now; one a server."""

    def __init__(self, source: KeySource, clock: Callable[[], datetime]) -> None:
        self._source = source
        self._clock = clock
        self._reading = asyncio.Lock()
        self._read_at: datetime | None = None
        self._is_closed = False
        self._key_by_digest: dict[bytes, ApiKey] = {}

    async def is_closed(self) -> bool:
        """Whether callers need a key: from the first one made on, even if it is revoked."""
        await self._refresh()
        return self._is_closed

    async def find(self, secret: str) -> ApiKey | None:
        """The valid key with a secret, or None."""
        await self._refresh()
        sent = digest_of(secret)
        # Each comparison takes the same time, and all are made: nothing tells how near it was.
        matches = [d for d in self._key_by_digest if hmac.compare_digest(d, sent)]
        if not matches:
            return None
        key = self._key_by_digest[matches[0]]
        return await self._used(key, sent) if key.is_valid(self._clock()) else None

    async def holds(self, key_id: KeyId) -> bool:
        """Whether a key that was found before is still valid."""
        await self._refresh()
        now = self._clock()
        return any(key.id == key_id and key.is_valid(now) for key in self._key_by_digest.values())

    async def _refresh(self) -> None:
        async with self._reading:
            now = self._clock()
            # A clock set back makes an age below zero, which tells nothing.
            if self._read_at is not None and 0 <= (now - self._read_at).total_seconds() < FRESH_S:
                return
            is_closed = self._is_closed or await self._source.has_any()
            self._key_by_digest = dict(await self._source.unrevoked()) if is_closed else {}
            self._is_closed, self._read_at = is_closed, now

    async def _used(self, key: ApiKey, digest: bytes) -> ApiKey:
        now = self._clock()
        if key.last_used_at is not None and now - key.last_used_at < _USE_NOTED_EVERY:
            return key
        noted = replace(key, last_used_at=now)
        if digest in self._key_by_digest:
            self._key_by_digest[digest] = noted
        try:
            await self._source.used(key.id, now)
        except StoreUnavailableError as exc:  # a note, on which no request depends
            logger.warning("the use of %s was not noted: %s", key.id, exc)
        return noted
