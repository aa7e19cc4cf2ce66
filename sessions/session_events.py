"""What happened to a session, one event a revision, so that `revision` is the cursor of readers.

An event is written in the transaction that counts the revision up. The last `KEPT` and at most as
many again are kept; a reader whose cursor is older learns that it has missed some.

Part of `store`, which alone may touch the rows; `watch` is what readers use.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, Protocol

from sqlalchemy import delete, select
from sqlalchemy.ext.asyncio import AsyncSession

from sessions.tables import SessionEventRow
from sessions.types import OwnerId, Session, SessionId, TurnId, TurnStatus

KEPT: Final = 256
CHANGED: Final = "changed_sessions"
"""Where a transaction notes, in its `info`, whom to tell when it is committed."""


class ChangeKind(StrEnum):
    """What happened. A turn that starts is the head from then on."""

    TURN_STARTED = "turn_started"
    TURN_ENDED = "turn_ended"
    HEAD_MOVED = "head_moved"
    UPDATED = "updated"
    DELETED = "deleted"
    RESTORED = "restored"


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionEvent:
    """One change. `turn_id` is the turn that started or ended, or the new head (None: none).

    `status` is how a turn ended, `fields` are the names of what was changed by an update.
    """

    revision: int
    kind: ChangeKind
    turn_id: TurnId | None = None
    status: TurnStatus | None = None
    fields: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionNews:
    """What is new behind a cursor: the events, and the session as it is now.

    `session` None: it is deleted. `is_whole` False: there were more events than are known, and
    none is here.
    """

    revision: int
    session: Session | None
    events: tuple[SessionEvent, ...] = ()
    is_whole: bool = True


class NewsSource(Protocol):
    """What `watch` reads; `Store` in earnest."""

    @property
    def poll_s(self) -> float | None:
        """How often to look for what other servers wrote; None: there are no others."""
        ...

    async def session(self, owner: OwnerId, session_id: SessionId) -> Session:
        """Raises SessionNotFoundError."""
        ...

    async def news(self, session_id: SessionId, after: int | None) -> SessionNews | None:
        """What is new; None when nothing is left of the session."""
        ...

    def next_change(self, session_id: SessionId) -> asyncio.Event:
        """What is set at the next change that is made here."""
        ...


async def watch(
    source: NewsSource, owner: OwnerId, session_id: SessionId, *, after: int | None
) -> AsyncIterator[SessionNews]:
    """Yield what is new behind a revision, at once and then whenever there is more.

    `after` None begins with how the session is now. A deleted session is still watched, for it may
    be restored; the end comes when it is purged. Raises SessionNotFoundError at the beginning.
    """
    await source.session(owner, session_id)
    cursor, is_first = after, True
    while True:
        changed = source.next_change(session_id)
        news = await source.news(session_id, cursor)
        if news is None:
            return
        if is_first or news.revision != cursor:
            yield news
        cursor, is_first = news.revision, False
        with suppress(TimeoutError):
            async with asyncio.timeout(source.poll_s):
                await changed.wait()


async def record(
    tx: AsyncSession,
    session_id: str,
    event: SessionEvent,
) -> None:
    """Write an event; whoever watches hears of it when the transaction is committed."""
    tx.add(
        SessionEventRow(
            session_id=session_id,
            revision=event.revision,
            kind=event.kind.value,
            turn_id=event.turn_id,
            status=event.status.value if event.status is not None else None,
            fields=sorted(event.fields),
        )
    )
    tx.info.setdefault(CHANGED, set()).add(session_id)
    if event.revision % KEPT == 0:
        rows = SessionEventRow
        old = (rows.session_id == session_id, rows.revision <= event.revision - KEPT)
        await tx.execute(delete(rows).where(*old))


async def forget(tx: AsyncSession, session_id: str) -> None:
    """Delete a session's events: a reader from before must begin anew."""
    rows = SessionEventRow
    tx.info.setdefault(CHANGED, set()).add(session_id)
    await tx.flush()
    await tx.execute(delete(rows).where(rows.session_id == session_id))


async def read_behind(
    tx: AsyncSession, session_id: str, after: int, upto: int
) -> tuple[SessionEvent, ...] | None:
    """The events behind a revision, up to another; None when they are not all there."""
    if not 0 <= upto - after < 2 * KEPT:
        return None
    rows = SessionEventRow
    query = select(rows).where(
        rows.session_id == session_id, rows.revision > after, rows.revision <= upto
    )
    found = (await tx.scalars(query.order_by(rows.revision))).all()
    if len(found) != upto - after:
        return None
    return tuple(_to_event(row) for row in found)


def _to_event(row: SessionEventRow) -> SessionEvent:
    fields: list[Any] = row.fields
    return SessionEvent(
        revision=row.revision,
        kind=ChangeKind(row.kind),
        turn_id=TurnId(row.turn_id) if row.turn_id is not None else None,
        status=TurnStatus(row.status) if row.status is not None else None,
        fields=tuple(fields),
    )
