"""API keys in a dictionary, and the clock that their ring reads."""

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta

from sessions.api_keys import ApiKey, KeyId, Scope, digest_of
from sessions.errors import StoreUnavailableError
from sessions.key_ring import FRESH_S
from sessions.types import OwnerId
from tests.support.clock import FakeClock


class FakeKeys:
    """What `KeyStore` holds; `num_reads` counts how often it was asked for the keys."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.num_reads = 0
        self.num_notes = 0
        self.raises: Exception | None = None
        self.lost = asyncio.Event()  # as many reads as were to be lost have been
        self._num_to_lose = 0
        self._key_by_digest: dict[bytes, ApiKey] = {}

    def add(
        self, owner: str, *scopes: Scope, secret: str = "", expires_s: float | None = None
    ) -> str:
        """Make a key and give its secret; the ring sees it at its next look."""
        secret = secret or f"sk-splice-{owner}-{len(self._key_by_digest)}"
        now = self.clock.now
        self._key_by_digest[digest_of(secret)] = ApiKey(
            id=KeyId(f"key_{len(self._key_by_digest)}"),
            owner=OwnerId(owner),
            name=None,
            scopes=frozenset(scopes or (Scope.CHAT,)),
            created_at=now,
            expires_at=None if expires_s is None else now + timedelta(seconds=expires_s),
        )
        return secret

    def revoke(self, secret: str) -> None:
        digest = digest_of(secret)
        self._key_by_digest[digest] = replace(
            self._key_by_digest[digest], revoked_at=self.clock.now
        )

    def lose_reads(self, number: int) -> None:
        """Fail the next reads, whose turn it is at once."""
        self._num_to_lose = number
        self.lost.clear()
        self.clock.advance(FRESH_S)

    async def has_any(self) -> bool:
        if self.raises is not None:
            raise self.raises
        return bool(self._key_by_digest)

    async def unrevoked(self) -> Mapping[bytes, ApiKey]:
        self.num_reads += 1
        if self._num_to_lose:
            self._num_to_lose -= 1
            if not self._num_to_lose:
                self.lost.set()
            raise StoreUnavailableError("gone for a while")
        return {d: key for d, key in self._key_by_digest.items() if key.revoked_at is None}

    async def used(self, key_id: KeyId, now: datetime) -> None:
        self.num_notes += 1
