"""The SQL about what the engine keeps of sessions: manifests, who is alive, what is busy. Part of
`store`.

Nothing here is the truth of a session: no revision counts it, and no watcher hears of it.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import func, select

from sessions.database import Database
from sessions.tables import ResponseRow, SessionRow
from sessions.types import OwnerId

_CHUNK = 500
"""Of ids in one statement: databases bound them."""


@dataclass(frozen=True, slots=True)
class BusyPrompt:
    """A system prompt, or the template's own (None), and how many turns an owner began with it."""

    owner: OwnerId
    instructions: str | None
    num_turns: int


class ManifestStore:
    """What is stored for the engine's sake."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def manifests(self, runner_id: str) -> dict[str, dict[str, Any]]:
        """The manifests that a runner wrote, by session."""
        query = select(SessionRow.id, SessionRow.manifest).where(SessionRow.manifest.is_not(None))
        async with self._database.reading() as tx:
            found = (await tx.execute(query)).all()
        return {name: m for name, m in found if m is not None and m.get("runner") == runner_id}

    async def write_manifests(
        self, runner_id: str, changed: Mapping[str, dict[str, Any] | None]
    ) -> None:
        """Set manifests; None takes away one that is still the runner's. Ids that are no living
        session's are passed over."""
        for chunk in _chunks(sorted(changed)):
            async with self._database.writing() as tx:
                query = select(SessionRow).where(
                    SessionRow.id.in_(chunk), SessionRow.deleted_at.is_(None)
                )
                for row in await tx.scalars(query):
                    is_mine = row.manifest is None or row.manifest.get("runner") == runner_id
                    if changed[row.id] is not None or is_mine:
                        row.manifest = changed[row.id]

    async def living(self, names: Collection[str]) -> frozenset[str]:
        """Those of the ids that sessions have which aren't deleted, whoever owns them."""
        found: set[str] = set()
        for chunk in _chunks(sorted(names)):
            query = select(SessionRow.id).where(
                SessionRow.id.in_(chunk), SessionRow.deleted_at.is_(None)
            )
            async with self._database.reading() as tx:
                found |= set(await tx.scalars(query))
        return frozenset(found)

    async def busy_prompts(self, since: datetime, limit: int) -> tuple[BusyPrompt, ...]:
        """The system prompts that most turns began with since then, the busiest first."""
        num_turns = func.count(ResponseRow.id)
        query = (
            select(SessionRow.owner_id, SessionRow.instructions, num_turns)
            .join(ResponseRow, ResponseRow.session_id == SessionRow.id)
            .where(ResponseRow.created_at >= since, SessionRow.deleted_at.is_(None))
            .group_by(SessionRow.owner_id, SessionRow.instructions)
            .order_by(num_turns.desc(), SessionRow.owner_id)
            .limit(limit)
        )
        async with self._database.reading() as tx:
            found = (await tx.execute(query)).all()
        return tuple(BusyPrompt(OwnerId(owner), text, count) for owner, text, count in found)


def _chunks(names: Sequence[str]) -> Iterator[Sequence[str]]:
    for start in range(0, len(names), _CHUNK):
        yield names[start : start + _CHUNK]
