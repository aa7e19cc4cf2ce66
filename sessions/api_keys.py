"""API keys: what one is, and how a secret becomes the hash that is stored. No I/O.

A secret is 32 random bytes behind a prefix that scanners of leaked secrets can recognise. Only its
SHA-256 is kept: with that much randomness a slow hash would protect nothing more. Whoever has the
database can therefore not speak for anybody.
"""

import hashlib
import re
import secrets
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Final, NewType

from sessions.errors import InvalidInputError
from sessions.types import OwnerId

KeyId = NewType("KeyId", str)  # key_…

SECRET_PREFIX: Final = "sk-splice-"
_SECRET_BYTES = 32
_OWNER = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@+-]{0,127}")


class Scope(StrEnum):
    """What a key is good for; none includes another.

    `chat`: sessions, turns, sockets, completions. `admin`: metrics and the cache.
    """

    CHAT = "chat"
    ADMIN = "admin"


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiKey:
    """A key as it is stored, without its hash. It speaks for its owner until it ends."""

    id: KeyId
    owner: OwnerId
    name: str | None
    scopes: frozenset[Scope]
    created_at: datetime
    last_used_at: datetime | None = None
    expires_at: datetime | None = None
    revoked_at: datetime | None = None

    def is_valid(self, now: datetime) -> bool:
        """Whether it is neither revoked nor past its time."""
        return self.revoked_at is None and (self.expires_at is None or now < self.expires_at)


def new_secret() -> str:
    """Make a secret; nothing can show it a second time."""
    return SECRET_PREFIX + secrets.token_urlsafe(_SECRET_BYTES)


def digest_of(secret: str) -> bytes:
    """The hash of a secret, whatever somebody sent as one."""
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).digest()


def owner_named(name: str) -> OwnerId:
    """Check an owner's name, which is its id. Raises InvalidInputError."""
    if _OWNER.fullmatch(name) is None:
        raise InvalidInputError(
            "an owner's name has up to 128 letters, digits and ._@+- and begins with a letter or "
            "digit",
            param="owner",
        )
    return OwnerId(name)
