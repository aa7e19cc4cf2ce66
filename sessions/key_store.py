"""The SQL of API keys: few rows, written by an operator's command, read by the server.

Every method is one transaction, as in `store`. A revoked key stays as a row, so that a server whose
keys are all revoked is closed and not open again.
"""

from collections.abc import Mapping
from datetime import datetime

from sqlalchemy import exists, select, update
from sqlalchemy.ext.asyncio import AsyncSession

from sessions.api_keys import ApiKey, KeyId, Scope
from sessions.database import Database
from sessions.errors import ConflictError, KeyNotFoundError, NotFoundError
from sessions.queries import result_count
from sessions.session_store import ensure_owner
from sessions.tables import ApiKeyRow, OwnerRow
from sessions.types import OwnerId


class KeyStore:
    """The stored keys."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def add(self, key: ApiKey, digest: bytes) -> None:
        """Insert a key, and its owner when it is the owner's first trace.

        Raises ConflictError while the owner is disabled.
        """
        async with self._database.writing() as tx:
            await ensure_owner(tx, key.owner, key.created_at)
            if (await tx.get_one(OwnerRow, key.owner)).disabled_at is not None:
                raise ConflictError(
                    f"the owner {key.owner} is disabled; `splice keys enable-owner` ends that"
                )
            tx.add(
                ApiKeyRow(
                    id=key.id,
                    owner_id=key.owner,
                    name=key.name,
                    key_hash=digest,
                    scopes=sorted(key.scopes),
                    created_at=key.created_at,
                    expires_at=key.expires_at,
                )
            )

    async def has_any(self) -> bool:
        """Whether a key was ever made."""
        async with self._database.reading() as tx:
            return bool(await tx.scalar(select(exists().select_from(ApiKeyRow))))

    async def keys(self) -> tuple[ApiKey, ...]:
        """All keys, the revoked ones too, oldest first."""
        query = select(ApiKeyRow).order_by(ApiKeyRow.created_at, ApiKeyRow.id)
        async with self._database.reading() as tx:
            return tuple(_to_key(row) for row in await tx.scalars(query))

    async def unrevoked(self) -> Mapping[bytes, ApiKey]:
        """The keys by hash that are not revoked and whose owner isn't disabled."""
        query = (
            select(ApiKeyRow)
            .join(OwnerRow, OwnerRow.id == ApiKeyRow.owner_id)
            .where(ApiKeyRow.revoked_at.is_(None), OwnerRow.disabled_at.is_(None))
        )
        async with self._database.reading() as tx:
            return {row.key_hash: _to_key(row) for row in await tx.scalars(query)}

    async def revoke(self, key_id: KeyId, now: datetime) -> ApiKey:
        """End a key; one that has ended keeps its time. Raises KeyNotFoundError."""
        async with self._database.writing() as tx:
            row = await tx.get(ApiKeyRow, key_id)
            if row is None:
                raise KeyNotFoundError(f"no key has the id {key_id!r}")
            row.revoked_at = row.revoked_at or now
            return _to_key(row)

    async def disable(self, owner: OwnerId, now: datetime) -> int:
        """End all keys of an owner, and let no new one be made; how many were ended.

        Raises NotFoundError for an owner who was never here.
        """
        async with self._database.writing() as tx:
            row = await _owner_row(tx, owner)
            row.disabled_at = row.disabled_at or now
            mine = update(ApiKeyRow).where(
                ApiKeyRow.owner_id == owner, ApiKeyRow.revoked_at.is_(None)
            )
            return result_count(await tx.execute(mine.values(revoked_at=now)))

    async def enable(self, owner: OwnerId) -> None:
        """Let keys be made again; those that were ended stay so. Raises NotFoundError."""
        async with self._database.writing() as tx:
            (await _owner_row(tx, owner)).disabled_at = None

    async def used(self, key_id: KeyId, now: datetime) -> None:
        """Note when a key was used."""
        async with self._database.writing() as tx:
            statement = update(ApiKeyRow).where(ApiKeyRow.id == key_id)
            await tx.execute(statement.values(last_used_at=now))


async def _owner_row(tx: AsyncSession, owner: OwnerId) -> OwnerRow:
    row = await tx.get(OwnerRow, owner)
    if row is None:
        raise NotFoundError(f"no owner has the name {owner!r}")
    return row


def _to_key(row: ApiKeyRow) -> ApiKey:
    known = frozenset(Scope)
    return ApiKey(
        id=KeyId(row.id),
        owner=OwnerId(row.owner_id),
        name=row.name,
        # A scope of a later version is none that this one could grant.
        scopes=frozenset(Scope(scope) for scope in row.scopes if scope in known),
        created_at=row.created_at,
        last_used_at=row.last_used_at,
        expires_at=row.expires_at,
        revoked_at=row.revoked_at,
    )
