"""What is deleted for good once its grace is over. Part of `store`.

A fork's history lies in the session that it was forked from: whatever a fork is built on stays,
also behind the fork's own deletion as long as that can be undone; everything else goes.
"""

from collections.abc import Iterable

from sqlalchemy import delete, or_, select
from sqlalchemy.ext.asyncio import AsyncSession

from sessions.session_events import forget
from sessions.tables import (
    NodeRow,
    ResponseEventRow,
    ResponseRow,
    SearchEntryRow,
    SessionRow,
    TokenSpanRow,
)


async def purge(tx: AsyncSession, session: SessionRow) -> bool:
    """Delete a session's text, ids, events and search rows; whether nothing of it is left."""
    query = select(ResponseRow.id, ResponseRow.parent_id, ResponseRow.input_response_id)
    found = (await tx.execute(query.where(ResponseRow.session_id == session.id))).all()
    reasons = {turn_id: (parent_id, input_id) for turn_id, parent_id, input_id in found}
    kept = _closure(await _needed(tx, session.id), reasons)
    gone = select(ResponseRow.id).where(
        ResponseRow.session_id == session.id, ResponseRow.id.notin_(kept)
    )
    await forget(tx, session.id)
    entries = SearchEntryRow.session_id == session.id  # the kept ones are not found either
    await tx.execute(delete(SearchEntryRow).where(entries))
    for row in (ResponseEventRow, TokenSpanRow, NodeRow):
        await tx.execute(delete(row).where(row.response_id.in_(gone)))
    await tx.execute(
        delete(ResponseRow).where(ResponseRow.session_id == session.id, ResponseRow.id.notin_(kept))
    )
    if not kept:
        await tx.delete(session)
        return True
    # The kept turns refer to it.
    session.title, session.instructions, session.head_id = None, None, None
    session.labels, session.settings, session.manifest = {}, {}, None
    return False


async def _needed(tx: AsyncSession, session_id: str) -> set[str]:
    """The session's turns that something of another session refers to."""
    mine = select(ResponseRow.id).where(ResponseRow.session_id == session_id)
    others = select(ResponseRow.id).where(ResponseRow.session_id != session_id)
    parents = select(ResponseRow.parent_id).where(
        ResponseRow.session_id != session_id, ResponseRow.parent_id.in_(mine)
    )
    bases = select(TokenSpanRow.base_id).where(
        TokenSpanRow.base_id.in_(mine), TokenSpanRow.response_id.in_(others)
    )
    points = select(SessionRow.forked_from_id, SessionRow.head_id).where(
        SessionRow.id != session_id,
        or_(SessionRow.forked_from_id.in_(mine), SessionRow.head_id.in_(mine)),
    )
    needed = {*await tx.scalars(parents), *await tx.scalars(bases)}
    for pair in await tx.execute(points):
        needed.update(turn_id for turn_id in pair if turn_id is not None)
    return needed & set(await tx.scalars(mine))


def _closure(needed: Iterable[str], reasons: dict[str, tuple[str | None, str]]) -> frozenset[str]:
    """The turns, all before them, and those whose input they share."""
    kept: set[str] = set()
    waiting = list(needed)
    while waiting:
        turn_id = waiting.pop()
        if turn_id in kept or turn_id not in reasons:
            continue
        kept.add(turn_id)
        parent_id, input_id = reasons[turn_id]
        waiting.append(input_id)
        if parent_id is not None:
            waiting.append(parent_id)
    return frozenset(kept)
