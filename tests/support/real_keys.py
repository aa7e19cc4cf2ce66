"""API keys in a database, made before any server runs on it."""

from datetime import UTC, datetime
from pathlib import Path

from sessions.api_keys import ApiKey, Scope, digest_of, new_secret
from sessions.database import Database
from sessions.ids import new_key_id
from sessions.key_store import KeyStore
from sessions.types import OwnerId


async def make_keys(path: Path, *owners: str) -> dict[str, str]:
    """The secret of a key for each owner."""
    now = datetime.now(UTC)
    secrets = {owner: new_secret() for owner in owners}
    database = Database(f"sqlite:///{path}")
    await database.migrate()
    for owner, secret in secrets.items():
        key = ApiKey(
            id=new_key_id(now),
            owner=OwnerId(owner),
            name=None,
            scopes=frozenset(Scope),
            created_at=now,
            expires_at=None,
        )
        await KeyStore(database).add(key, digest_of(secret))
    await database.close()
    return secrets
