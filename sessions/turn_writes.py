"""The statements that a turn is written with; `store.py` puts them into transactions.

Everything an active turn's runner writes is guarded by its lease: another server may have taken
the turn for abandoned and ended it. A session's row is locked before any row of its turns: in one
order, so that no two transactions wait for each other.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from sqlalchemy import and_, exists, func, or_, select, update
from sqlalchemy.ext.asyncio import AsyncSession

from sessions import rows
from sessions.errors import RevisionConflictError, SessionNotFoundError
from sessions.history import made
from sessions.ids import new_branch_id
from sessions.queries import OWN, is_active, result_count
from sessions.session_events import ChangeKind, SessionEvent, record
from sessions.tables import NodeRow, ResponseRow, SessionRow, TokenSpanRow
from sessions.token_log import TokenSpan, pack_ids
from sessions.types import Turn, TurnId, TurnStatus


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """Whose an active turn is, and until when nobody else may end it."""

    turn_id: TurnId
    runner_id: str
    until: datetime
    epoch: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class NewTurn:
    """A turn to insert, with its prompt.

    `input_turn_id` is whose input it has: its own, or that of the turn it is a sibling of.
    With `follows_head`, the session's head must still be the turn's parent.
    """

    turn: Turn
    span: TokenSpan
    lease: Lease
    digest: str
    input_turn_id: TurnId
    follows_head: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """A running turn's reply so far, and how it was shown; `ids` are all of its span's ids."""

    text: str
    pieces: list[Any]
    ids: tuple[int, ...] = field(repr=False)


async def lock_sessions(tx: AsyncSession, ids: Sequence[str]) -> None:
    """Keep others from changing the sessions before the transaction is over. SQLite, where
    there is but one writer, does nothing more for it than look them up."""
    query = select(SessionRow.id).where(SessionRow.id.in_(ids)).order_by(SessionRow.id)
    await tx.execute(query.with_for_update())


async def move_head(tx: AsyncSession, new: NewTurn) -> None:
    """Make the turn its session's head, as long as nobody wrote first."""
    query = select(SessionRow).where(SessionRow.id == new.turn.session_id).with_for_update()
    session = (await tx.scalars(query)).one_or_none()
    if session is None or session.deleted_at is not None:
        raise SessionNotFoundError(f"no session has the id {new.turn.session_id!r}")
    if new.follows_head and session.head_id != new.turn.parent_id:
        raise RevisionConflictError("the session went on meanwhile")
    session.head_id = new.turn.id
    session.revision += 1
    started = ChangeKind.TURN_STARTED
    event = SessionEvent(revision=session.revision, kind=started, turn_id=new.turn.id)
    await record(tx, session.id, event)
    session.updated_at = new.turn.created_at
    session.model = new.turn.model
    session.fingerprint = new.span.fingerprint


async def pick_branch(tx: AsyncSession, turn: Turn) -> str:
    """The parent's branch when the turn continues its tip, or else a new one."""
    parent = await tx.get(ResponseRow, turn.parent_id) if turn.parent_id is not None else None
    if parent is None or parent.session_id != turn.session_id:
        return new_branch_id(turn.created_at)
    query = select(
        exists().where(
            and_(ResponseRow.parent_id == parent.id, ResponseRow.branch_id == parent.branch_id)
        )
    )
    is_continued = (await tx.scalars(query)).one()
    return new_branch_id(turn.created_at) if is_continued else parent.branch_id


def response_row(new: NewTurn, branch_id: str) -> ResponseRow:
    """The row of a turn that begins."""
    turn = new.turn
    return ResponseRow(
        id=turn.id,
        session_id=turn.session_id,
        parent_id=turn.parent_id,
        branch_id=branch_id,
        client_turn_id=turn.client_turn_id,
        status=turn.status.value,
        model=turn.model,
        request={
            "params": rows.from_params(turn.params),
            "digest": new.digest,
            "terms": turn.terms.to_stored(),
        },
        labels=turn.metadata,
        input_response_id=new.input_turn_id,
        reply_node_id=turn.reply_item_id,
        delta_lengths=[],
        runner_id=new.lease.runner_id,
        lease_until=new.lease.until,
        epoch=new.lease.epoch,
        created_at=turn.created_at,
    )


async def input_rows(tx: AsyncSession, new: NewTurn) -> list[NodeRow]:
    """The nodes of its input, a chain below what came before; none for a sibling's input."""
    if new.input_turn_id != new.turn.id:
        return []
    parent_id = await _last_node(tx, new.turn.parent_id) if new.turn.parent_id else None
    made = []
    for position, item in enumerate(new.turn.input_items):
        made.append(rows.from_item(item, position=position, parent_id=parent_id, is_output=False))
        parent_id = item.id
    return made


async def _last_node(tx: AsyncSession, turn_id: TurnId) -> str | None:
    """The node that a turn ends with: its reply, or without one its last input."""
    response = await tx.get_one(ResponseRow, turn_id)
    query = (
        select(NodeRow.id)
        .where(
            or_(
                and_(NodeRow.response_id == response.id, NodeRow.is_output),
                and_(NodeRow.response_id == response.input_response_id, ~NodeRow.is_output),
            )
        )
        .order_by(NodeRow.is_output.desc(), NodeRow.position.desc())
        .limit(1)
    )
    return (await tx.scalars(query)).one_or_none()


async def update_owned(tx: AsyncSession, lease: Lease, values: dict[str, Any]) -> bool:
    """Change an active turn; False when it is no longer the lease's."""
    statement = (
        update(ResponseRow)
        .where(
            ResponseRow.id == lease.turn_id,
            ResponseRow.runner_id == lease.runner_id,
            ResponseRow.epoch == lease.epoch,
            is_active(),
        )
        .values(**values)
    )
    return result_count(await tx.execute(statement, execution_options=OWN)) == 1


async def set_ids(tx: AsyncSession, turn_id: TurnId, ids: tuple[int, ...]) -> None:
    """Replace the ids of a turn's span."""
    statement = update(TokenSpanRow).where(TokenSpanRow.response_id == turn_id)
    await tx.execute(statement.values(ids=pack_ids(ids)), execution_options=OWN)


def has_reply(turn: Turn) -> bool:
    """Whether an ended turn's reply has nodes: unless there is to be none, or it failed without."""
    return turn.terms.has_reply and (bool(turn.reply_text) or turn.status is not TurnStatus.FAILED)


def output_rows(turn: Turn) -> list[NodeRow]:
    """The nodes of its reply, a chain below its input."""
    parent_id = turn.input_items[-1].id if turn.input_items else None
    nodes = []
    for position, item in enumerate(made(turn), len(turn.input_items)):
        node = rows.from_item(item, position=position, parent_id=parent_id, is_output=True)
        nodes.append(node)
        parent_id = item.id
    return nodes


async def add_reply(tx: AsyncSession, turn: Turn) -> None:
    """Insert the reply's nodes, unless there is to be none or a turn failed without one, and touch
    the session."""
    if has_reply(turn):
        nodes = output_rows(turn)
        tx.add_all(nodes)
        await tx.flush()
        tx.add_all(rows.search_entries(nodes))
    statement = (
        update(SessionRow)
        .where(SessionRow.id == turn.session_id)
        .values(
            revision=SessionRow.revision + 1,
            updated_at=func.coalesce(turn.finished_at, SessionRow.updated_at),
        )
        .returning(SessionRow.revision)
    )
    revision = (await tx.scalars(statement, execution_options=OWN)).one()
    ended = ChangeKind.TURN_ENDED
    event = SessionEvent(revision=revision, kind=ended, turn_id=turn.id, status=turn.status)
    await record(tx, turn.session_id, event)
