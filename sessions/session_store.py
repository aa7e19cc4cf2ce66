"""The SQL about sessions themselves: made, found, listed, changed, deleted. Part of `store`.

Whoever asks for a session names its owner, and another owner's is not there.
"""

import asyncio
from collections.abc import Iterable, Sequence
from datetime import datetime

from sqlalchemy import ColumnElement, Select, and_, exists, or_, select, text, tuple_
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncSession

from sessions import purge, rows, search
from sessions.errors import (
    IdempotencyConflictError,
    InvalidInputError,
    RevisionConflictError,
    SessionNotFoundError,
)
from sessions.ids import under_the_same_key
from sessions.manifests import ManifestStore
from sessions.pages import Page, SessionFilter
from sessions.queries import is_active
from sessions.search_types import SearchPage
from sessions.session_events import ChangeKind, SessionEvent, SessionNews, read_behind, record
from sessions.tables import (
    ACTIVE,
    OwnerRow,
    ResponseRow,
    SessionRow,
    TokenSpanRow,
)
from sessions.title_store import TitleStore, index_title
from sessions.types import (
    OwnerId,
    Session,
    SessionChange,
    SessionId,
    TurnId,
)

POLL_S = 2.0


class SessionStore(TitleStore, ManifestStore):
    """What is stored of sessions, asked one question at a time."""

    async def add_session(self, session: Session, *, clock_at: datetime) -> None:
        """Insert a session, and its owner when it is the owner's first."""
        async with self._database.writing() as tx:
            await insert_session(tx, session, clock_at)

    async def session(self, owner: OwnerId, session_id: SessionId) -> Session:
        """Raises SessionNotFoundError also for another owner's, and for a deleted one."""
        async with self._database.reading(is_brief=True) as tx:
            row = await session_row(tx, owner, session_id)
            active = await _active_turns(tx, [row.id])
            return rows.to_session(row, active.get(row.id, ()))

    async def opened(self, owner: OwnerId, session_id: SessionId) -> Session | None:
        """The session that was opened under a key; `session_id` is a `keyed_session_id`.

        Raises IdempotencyConflictError for one that was asked for otherwise, or is deleted.
        """
        async with self._database.reading() as tx:
            first, last = under_the_same_key(session_id)
            query = (
                select(SessionRow)
                .where(SessionRow.owner_id == owner, SessionRow.id.between(first, last))
                # Of two that were asked for at the same time each finds its own.
                .order_by(SessionRow.id != session_id)
            )
            row = (await tx.scalars(query)).first()
            if row is None:
                return None
            if row.id != session_id:
                raise IdempotencyConflictError("the key was used for another request")
            if row.deleted_at is not None:
                raise IdempotencyConflictError(f"the key opened {row.id}, which was deleted")
            active = await _active_turns(tx, [row.id])
            return rows.to_session(row, active.get(row.id, ()))

    async def clock_at(self, session_id: SessionId) -> datetime:
        """What the session's chat template is told the time is."""
        async with self._database.reading(is_brief=True) as tx:
            query = select(SessionRow.clock_at).where(SessionRow.id == session_id)
            return (await tx.scalars(query)).one()

    async def written_with(self, turn_id: TurnId) -> tuple[str, str]:
        """The model that a turn's tokens are of, and its fingerprint."""
        async with self._database.reading(is_brief=True) as tx:
            return await _written_with(tx, turn_id)

    async def sessions(self, owner: OwnerId, wanted: SessionFilter) -> Page:
        """A page by time of last use. Raises InvalidInputError for an unknown `after`."""
        query = _filtered(owner, wanted)
        async with self._database.reading() as tx:
            if wanted.after is not None:
                last = await tx.get(SessionRow, wanted.after)
                if last is None or last.owner_id != owner:
                    raise InvalidInputError(
                        f"no session has the id {wanted.after!r}", param="after"
                    )
                query = query.where(_is_behind(last, wanted))
            found = (await tx.scalars(query.limit(wanted.limit + 1))).all()
            active = await _active_turns(tx, (row.id for row in found))
        data = tuple(rows.to_session(row, active.get(row.id, ())) for row in found[: wanted.limit])
        return Page(data=data, has_more=len(found) > wanted.limit)

    async def change_session(
        self,
        owner: OwnerId,
        session_id: SessionId,
        change: SessionChange,
        *,
        expected_revision: int | None,
    ) -> Session:
        """Change what its owner decides; nobody's time of last use.

        Raises RevisionConflictError when the session is not at the revision that was expected.
        """
        async with self._database.writing() as tx:
            row = await session_row(tx, owner, session_id, is_locked=True)
            expect_revision(row, expected_revision)
            active = await _active_turns(tx, [row.id])
            changed = change.onto(rows.to_session(row, active.get(row.id, ())))
            for column, value in rows.from_session(changed).items():
                setattr(row, column, value)
            row.revision = changed.revision
            event = SessionEvent(
                revision=row.revision, kind=ChangeKind.UPDATED, fields=tuple(change.named)
            )
            await record(tx, row.id, event)
            if "title" in change.named:
                await index_title(tx, changed)
            return changed

    async def restore_session(
        self, owner: OwnerId, session_id: SessionId, *, deleted_after: datetime
    ) -> Session:
        """Take a deletion back, unless it was before that; a living session is left as it is.

        Raises SessionNotFoundError when it is too late.
        """
        async with self._database.writing() as tx:
            row = await tx.get(SessionRow, session_id, with_for_update=True)
            is_theirs = row is not None and row.owner_id == owner
            if row is None or not is_theirs or (row.deleted_at or deleted_after) < deleted_after:
                raise SessionNotFoundError(f"no session has the id {session_id!r}")
            if row.deleted_at is not None:
                row.deleted_at = None
                row.revision += 1
                event = SessionEvent(revision=row.revision, kind=ChangeKind.RESTORED)
                await record(tx, row.id, event)
            active = await _active_turns(tx, [row.id])
            return rows.to_session(row, active.get(row.id, ()))

    async def is_continued_elsewhere(self, session_id: SessionId) -> bool:
        """Whether a living fork would go on right behind one of the session's own turns."""
        query = select(
            exists().where(
                SessionRow.id != session_id,
                SessionRow.deleted_at.is_(None),
                SessionRow.head_id == ResponseRow.id,
                ResponseRow.session_id == session_id,
            )
        )
        async with self._database.reading() as tx:
            return (await tx.scalars(query)).one()

    async def due(self, before: datetime) -> tuple[SessionId, ...]:
        """The sessions deleted before then that something is left of."""
        query = select(SessionRow.id).where(SessionRow.deleted_at < before)
        async with self._database.reading() as tx:
            found = await tx.scalars(query.order_by(SessionRow.deleted_at))
            return tuple(SessionId(session_id) for session_id in found)

    async def purge(self, session_id: SessionId, before: datetime) -> bool:
        """Delete a session for good if it is still deleted and nothing of it runs; whether nothing
        of it is left."""
        async with self._database.writing() as tx:
            row = await tx.get(SessionRow, session_id, with_for_update=True)
            if row is None or row.deleted_at is None or row.deleted_at >= before:
                return False
            if await _active_turns(tx, [session_id]):
                return False
            return await purge.purge(tx, row)

    async def forget_deleted(self) -> None:
        """Leave nothing of what was purged where it could still be read, as far as that is the
        database's to do at once."""
        await self._database.forget_deleted()

    async def set_head(
        self,
        owner: OwnerId,
        session_id: SessionId,
        head: TurnId | None,
        *,
        expected_revision: int | None,
    ) -> Session:
        """Pick another branch. Raises RevisionConflictError as `change_session` does."""
        async with self._database.writing() as tx:
            row = await session_row(tx, owner, session_id, is_locked=True)
            expect_revision(row, expected_revision)
            if row.head_id != head:
                row.head_id = head
                row.revision += 1
                moved = ChangeKind.HEAD_MOVED
                event = SessionEvent(revision=row.revision, kind=moved, turn_id=head)
                await record(tx, row.id, event)
            if head is not None:
                row.model, row.fingerprint = await _written_with(tx, head)
            active = await _active_turns(tx, [row.id])
            return rows.to_session(row, active.get(row.id, ()))

    async def search(
        self, owner: OwnerId, words: Sequence[str], *, limit: int, after: str | None
    ) -> SearchPage:
        """A page of `SearchHit`s, newest first. Raises InvalidInputError for an unknown `after`."""
        async with self._database.reading(is_large=True) as tx:
            kind = self._database.search_kind
            return await search.find(tx, kind, owner, words, limit=limit, after=after)

    # What happens to them; `session_events.watch` reads it.

    @property
    def poll_s(self) -> float | None:
        """How often to look for what other servers wrote; None: there are no others."""
        return POLL_S if self._database.is_shared else None

    def next_change(self, session_id: SessionId) -> asyncio.Event:
        """What is set when a change of the session is committed here."""
        return self._database.signals.next(session_id)

    async def news(self, session_id: SessionId, after: int | None) -> SessionNews | None:
        """What happened behind a revision, whoever owns the session; None for a purged one."""
        async with self._database.reading() as tx:
            row = await tx.get(SessionRow, session_id)
            if row is None:
                return None
            session = None
            if row.deleted_at is None:
                active = await _active_turns(tx, [row.id])
                session = rows.to_session(row, active.get(row.id, ()))
            since = row.revision if after is None else after
            events = await read_behind(tx, row.id, since, row.revision)
        return SessionNews(
            revision=row.revision,
            session=session,
            events=events or (),
            is_whole=events is not None,
        )

    async def check(self) -> None:
        """Raises StoreUnavailableError when the database can't be read."""
        await self._database.check()

    async def delete_session(
        self, owner: OwnerId, session_id: SessionId, now: datetime
    ) -> tuple[TurnId, ...]:
        """Mark a session deleted; its turns that are still active."""
        async with self._database.writing() as tx:
            row = await session_row(tx, owner, session_id, is_locked=True)
            row.deleted_at = now
            row.revision += 1
            event = SessionEvent(revision=row.revision, kind=ChangeKind.DELETED)
            await record(tx, row.id, event)
            query = select(ResponseRow.id).where(ResponseRow.session_id == session_id, is_active())
            return tuple(TurnId(turn_id) for turn_id in await tx.scalars(query))


async def insert_session(tx: AsyncSession, session: Session, clock_at: datetime) -> None:
    """Insert a session, and its owner when it is the owner's first.

    Raises IdempotencyConflictError where its id is taken, which only one made of a key can be.
    """
    await ensure_owner(tx, session.owner, session.created_at)
    tx.add(
        SessionRow(
            id=session.id,
            owner_id=session.owner,
            model=session.model,
            fingerprint=session.fingerprint,
            head_id=session.head_turn_id,
            forked_from_id=session.forked_from,
            revision=session.revision,
            clock_at=clock_at,
            created_at=session.created_at,
            updated_at=session.updated_at,
            **rows.from_session(session),
        )
    )
    try:
        await tx.flush()
    except IntegrityError as exc:
        raise IdempotencyConflictError("the key was used at the same time") from exc
    await index_title(tx, session)


async def ensure_owner(tx: AsyncSession, owner: OwnerId, now: datetime) -> None:
    """Insert an owner who is new."""
    if await tx.get(OwnerRow, owner) is not None:
        return
    try:
        async with tx.begin_nested():
            tx.add(OwnerRow(id=owner, created_at=now))
    except IntegrityError:
        return  # another server made it between the two statements


async def session_row(
    tx: AsyncSession, owner: OwnerId, session_id: SessionId, *, is_locked: bool = False
) -> SessionRow:
    """A living session of the owner's; raises SessionNotFoundError. Locked, nobody else changes it
    before the transaction is over."""
    row = await tx.get(SessionRow, session_id, with_for_update=is_locked)
    if row is None or row.owner_id != owner or row.deleted_at is not None:
        raise SessionNotFoundError(f"no session has the id {session_id!r}")
    return row


def expect_revision(row: SessionRow, expected: int | None) -> None:
    """Raise RevisionConflictError unless the session is as it was read, or nobody minds."""
    if expected is not None and row.revision != expected:
        raise RevisionConflictError(
            f"the session is at revision {row.revision}, not {expected} any more"
        )


async def _written_with(tx: AsyncSession, turn_id: TurnId) -> tuple[str, str]:
    query = (
        select(ResponseRow.model, TokenSpanRow.fingerprint)
        .join(TokenSpanRow, TokenSpanRow.response_id == ResponseRow.id)
        .where(ResponseRow.id == turn_id)
    )
    model, fingerprint = (await tx.execute(query)).one()
    return model, fingerprint


async def _active_turns(
    tx: AsyncSession, session_ids: Iterable[str]
) -> dict[str, tuple[TurnId, ...]]:
    # All that run anywhere are few, and an index has just them.
    query = select(ResponseRow.session_id, ResponseRow.id).where(text(ACTIVE))
    wanted, active = set(session_ids), dict[str, tuple[TurnId, ...]]()
    for session_id, turn_id in await tx.execute(query.order_by(ResponseRow.id)):
        if session_id in wanted:
            active[session_id] = (*active.get(session_id, ()), TurnId(turn_id))
    return active


def _filtered(owner: OwnerId, wanted: SessionFilter) -> Select[SessionRow]:
    query = select(SessionRow).where(
        SessionRow.owner_id == owner,
        SessionRow.is_listed.is_(wanted.listed),
        SessionRow.deleted_at.is_(None),
    )
    if wanted.pinned is not None:
        query = query.where(SessionRow.is_pinned == wanted.pinned)
    if wanted.title_has is not None:
        query = query.where(SessionRow.title.icontains(wanted.title_has, autoescape=True))
    if wanted.pinned_first:
        query = query.order_by(SessionRow.is_pinned.desc())
    recency = (SessionRow.updated_at, SessionRow.id)
    return query.order_by(*(c.desc() if wanted.is_descending else c.asc() for c in recency))


def _is_behind(last: SessionRow, wanted: SessionFilter) -> ColumnElement[bool]:
    edge, bound = tuple_(SessionRow.updated_at, SessionRow.id), (last.updated_at, last.id)
    behind: ColumnElement[bool] = edge < bound if wanted.is_descending else edge > bound
    if not wanted.pinned_first:
        return behind
    alike = and_(SessionRow.is_pinned == last.is_pinned, behind)
    return or_(alike, SessionRow.is_pinned.is_(False)) if last.is_pinned else alike
