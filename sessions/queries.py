"""Expressions that more than one question of the store is put together from."""

from typing import Any

from sqlalchemy import CTE, ColumnElement, CursorResult, Result, exists, literal, or_, select

from sessions.tables import ResponseRow, SessionRow, TokenSpanRow
from sessions.types import OwnerId, TurnId, TurnStatus

# An UPDATE need not look for rows already loaded: every transaction reads before it writes.
OWN = {"synchronize_session": False}


def is_active() -> ColumnElement[bool]:
    """Whether a turn may still change by itself."""
    return ResponseRow.status.in_([s.value for s in TurnStatus if s.is_active])


def result_count(result: Result[Any]) -> int:
    """How many rows an UPDATE changed."""
    assert isinstance(result, CursorResult), type(result)
    return result.rowcount


def ancestor_ids(turn_id: TurnId) -> CTE:
    """(id, depth) of a turn (depth 0) and of all before it."""
    start = select(
        ResponseRow.id, ResponseRow.parent_id.label("next_id"), literal(0).label("depth")
    ).where(ResponseRow.id == turn_id)
    chain = start.cte("ancestors", recursive=True)
    before = select(ResponseRow.id, ResponseRow.parent_id, chain.c.depth + 1)
    return chain.union_all(before.join(chain, ResponseRow.id == chain.c.next_id))


def base_ids(turn_id: TurnId) -> CTE:
    """(id, depth) of a turn and of the turns that its token log is built on."""
    start = select(
        TokenSpanRow.response_id.label("id"),
        TokenSpanRow.base_id.label("next_id"),
        literal(0).label("depth"),
    ).where(TokenSpanRow.response_id == turn_id)
    chain = start.cte("bases", recursive=True)
    before = select(TokenSpanRow.response_id, TokenSpanRow.base_id, chain.c.depth + 1)
    return chain.union_all(before.join(chain, TokenSpanRow.response_id == chain.c.next_id))


def descends_into_a_fork(turn_id: TurnId, owner: OwnerId) -> ColumnElement[bool]:
    """Whether a living session of the owner was forked at the turn or after it."""
    start = select(ResponseRow.id).where(ResponseRow.id == turn_id)
    chain = start.cte("descendants", recursive=True)
    after = select(ResponseRow.id).join(chain, ResponseRow.parent_id == chain.c.id)
    descendants = chain.union_all(after)
    return exists().where(
        SessionRow.owner_id == owner,
        SessionRow.deleted_at.is_(None),
        or_(
            SessionRow.forked_from_id.in_(select(descendants.c.id)),
            SessionRow.head_id.in_(select(descendants.c.id)),
        ),
    )
