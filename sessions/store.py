"""All the SQL of sessions (with `queries` and `turn_writes`, which only this imports).

One method a question; frozen values in and out, never rows or transactions.

Every method is one transaction: when it returns, what it wrote is durable. Nothing here decides
what a turn may do; what only the database can tell (who wrote first, whose lease it is) is
answered by a conflict or by False.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime

from sqlalchemy import CTE, exists, or_, select, update
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import aliased

from sessions import rows
from sessions.errors import (
    RevisionConflictError,
    TurnNotFoundError,
)
from sessions.import_writes import insert_turns
from sessions.item_store import ItemStore
from sessions.output import cut_short
from sessions.queries import (
    OWN,
    ancestor_ids,
    base_ids,
    descends_into_a_fork,
    is_active,
)
from sessions.session_store import insert_session
from sessions.tables import NodeRow, ResponseRow, SessionRow, TokenSpanRow
from sessions.token_log import TokenSpan
from sessions.turn_writes import (
    Checkpoint,
    Lease,
    NewTurn,
    add_reply,
    input_rows,
    lock_sessions,
    move_head,
    pick_branch,
    response_row,
    set_ids,
    update_owned,
)
from sessions.types import (
    OwnerId,
    Session,
    SessionId,
    Turn,
    TurnId,
    TurnStatus,
)

# Between two queries the event loop has its turn, and a query has only so many parameters.
_TURNS_PER_QUERY = 100


class Store(ItemStore):
    """The durable truth, asked one question at a time."""

    # Reading turns.

    async def turn(self, owner: OwnerId, turn_id: TurnId, *, is_followed: bool = False) -> Turn:
        """Raises TurnNotFoundError also for another owner's.

        A deleted session's turns can be read as long as a fork that came after them lives. A turn
        that was deleted by itself is not there; `is_followed` finds one that others are built on.
        """
        async with self._database.reading(is_brief=True) as tx:
            row = await tx.get(ResponseRow, turn_id)
            session = await tx.get(SessionRow, row.session_id) if row is not None else None
            if row is None or session is None or session.owner_id != owner:
                raise TurnNotFoundError(f"no turn has the id {turn_id!r}")
            if row.deleted_at is not None and not (is_followed and await _is_followed(tx, turn_id)):
                raise TurnNotFoundError(f"no turn has the id {turn_id!r}")
            turn = await _turn_of(tx, row)
        if session.deleted_at is not None and not await self._is_in_a_fork(owner, turn_id):
            raise TurnNotFoundError(f"no turn has the id {turn_id!r}")
        return turn

    async def _is_in_a_fork(self, owner: OwnerId, turn_id: TurnId) -> bool:
        """Whether a fork that lives came after the turn, which takes a walk over what follows."""
        async with self._database.reading() as tx:
            return (await tx.scalars(select(descends_into_a_fork(turn_id, owner)))).one()

    async def any_turn(self, turn_id: TurnId) -> Turn:
        """A turn whoever owns it, for the code that runs it; it must exist."""
        async with self._database.reading(is_brief=True) as tx:
            return await _turn_of(tx, await tx.get_one(ResponseRow, turn_id))

    async def path(self, turn_id: TurnId) -> tuple[Turn, ...]:
        """The turn and all before it, oldest first, across forks."""
        return await self._turns_along(ancestor_ids(turn_id))

    async def is_ancestor(self, turn_id: TurnId, *, of: TurnId) -> bool:
        """Whether a turn is another one, or lies before it."""
        ancestors = ancestor_ids(of)
        async with self._database.reading() as tx:
            query = select(exists().where(ancestors.c.id == turn_id))
            return (await tx.scalars(query)).one()

    async def tree(self, session_id: SessionId) -> tuple[Turn, ...]:
        """All of the session's own turns, oldest first, but none before its parent; deleted ones
        only where others follow.

        A parent may be the younger one by the clock, which can be put back, or as old as its
        child, as in an import.
        """
        children = aliased(ResponseRow)
        is_shown = or_(
            ResponseRow.deleted_at.is_(None), exists().where(children.parent_id == ResponseRow.id)
        )
        query = (
            select(ResponseRow.id, ResponseRow.parent_id)
            .where(ResponseRow.session_id == session_id, is_shown)
            .order_by(ResponseRow.created_at, ResponseRow.id)
        )
        async with self._database.reading(is_large=True) as tx:
            parents = {row.id: row.parent_id for row in await tx.execute(query)}
            return await _turns_of(tx, _parents_first(parents))

    async def submitted(
        self, session_id: SessionId, client_turn_id: str
    ) -> tuple[Turn, str] | None:
        """The turn that a client submitted under its own id, and the digest of what it asked."""
        query = select(ResponseRow).where(
            ResponseRow.session_id == session_id, ResponseRow.client_turn_id == client_turn_id
        )
        async with self._database.reading(is_brief=True) as tx:
            row = (await tx.scalars(query)).one_or_none()
            if row is None:
                return None
            return await _turn_of(tx, row), row.request["digest"]

    # The token log.

    async def spans(self, turn_id: TurnId) -> tuple[TokenSpan, ...]:
        """The turn's span and those of its bases, oldest first."""
        chain = base_ids(turn_id)
        query = (
            select(TokenSpanRow)
            .join(chain, chain.c.id == TokenSpanRow.response_id)
            .order_by(chain.c.depth.desc())
        )
        async with self._database.reading() as tx:
            return tuple(rows.to_span(row) for row in await tx.scalars(query))

    async def base_turns(self, turn_id: TurnId) -> tuple[Turn, ...]:
        """The turns whose words are in a turn's log, itself last."""
        return await self._turns_along(base_ids(turn_id))

    async def _turns_along(self, chain: CTE) -> tuple[Turn, ...]:
        """The turns that a walk towards the root met, oldest first."""
        query = select(chain.c.id).order_by(chain.c.depth.desc())
        async with self._database.reading(is_large=True) as tx:
            return await _turns_of(tx, (await tx.scalars(query)).all())

    # Writing turns.

    async def add_turn(self, new: NewTurn) -> None:
        """Insert a turn, active or ended as it begins, and make it the session's head.

        Raises SessionNotFoundError when the session was deleted meanwhile, RevisionConflictError
        when somebody wrote first: then everything must be read again.
        """
        try:
            async with self._database.writing(is_brief=True) as tx:
                await move_head(tx, new)
                await _insert(tx, new)
                if not new.turn.status.is_active:
                    await add_reply(tx, new.turn)
        except IntegrityError as exc:
            raise RevisionConflictError("another turn was submitted at the same time") from exc

    async def add_imported(self, session: Session, turns: Sequence[NewTurn]) -> None:
        """Insert a session with turns that have ended; each comes behind its parent."""
        async with self._database.writing() as tx:
            await insert_session(tx, session, session.created_at)
            await insert_turns(tx, turns)

    async def checkpoint(self, lease: Lease, checkpoint: Checkpoint) -> bool:
        """Keep what there is of a reply and renew its lease; False when it is no longer ours."""
        values = {
            "status": TurnStatus.RUNNING.value,
            "partial_text": checkpoint.text,
            "delta_lengths": checkpoint.pieces,
            "lease_until": lease.until,
        }
        async with self._database.writing(is_brief=True) as tx:
            if not await update_owned(tx, lease, values):
                return False
            await set_ids(tx, lease.turn_id, checkpoint.ids)
            return True

    async def end_turn(self, lease: Lease, turn: Turn, ids: tuple[int, ...]) -> bool:
        """Write a turn's end, its reply and its ids; False when it is no longer ours."""
        assert not turn.status.is_active, turn.status
        async with self._database.writing(is_brief=True) as tx:
            await lock_sessions(tx, [turn.session_id])
            if not await update_owned(tx, lease, rows.ending_values(turn)):
                return False
            await set_ids(tx, turn.id, ids)
            await add_reply(tx, turn)
            return True

    async def renew(self, runner_id: str, turn_ids: Sequence[TurnId], until: datetime) -> None:
        """Extend the leases of those of the turns that are still the runner's."""
        statement = (
            update(ResponseRow)
            .where(ResponseRow.id.in_(turn_ids), ResponseRow.runner_id == runner_id, is_active())
            .values(lease_until=until)
        )
        async with self._database.writing(is_brief=True) as tx:
            await tx.execute(statement)

    async def interrupt_abandoned(
        self, runner_id: str | None, now: datetime, *, spare: Sequence[TurnId]
    ) -> tuple[TurnId, ...]:
        """End, as interrupted, the active turns that nobody runs any more.

        Those whose lease is over and, given a runner, all of its own; but for `spare`. Each keeps
        what its last checkpoint had.
        """
        is_abandoned = or_(ResponseRow.lease_until < now, ResponseRow.runner_id == runner_id)
        are_left = (is_active(), is_abandoned, ResponseRow.id.notin_(spare))
        query = select(ResponseRow.id, ResponseRow.session_id).where(*are_left)
        async with self._database.writing() as tx:
            seen = {row.id: row.session_id for row in await tx.execute(query)}
            await lock_sessions(tx, list(set(seen.values())))
            locked = select(ResponseRow.id).where(ResponseRow.id.in_(list(seen)), *are_left)
            found = (await tx.scalars(locked.with_for_update())).all()
            for turn in await _turns_of(tx, found):
                ended = replace(turn, status=TurnStatus.INTERRUPTED, finished_at=now)
                ended = replace(ended, output=cut_short(turn.output))
                statement = update(ResponseRow).where(ResponseRow.id == turn.id)
                values = {**rows.ending_values(ended), "epoch": ResponseRow.epoch + 1}
                await tx.execute(statement.values(**values), execution_options=OWN)
                await add_reply(tx, ended)
            return tuple(map(TurnId, found))


async def _insert(tx: AsyncSession, new: NewTurn) -> None:
    """Insert a turn with its input and its span."""
    row = response_row(new, await pick_branch(tx, new.turn))
    if not new.turn.status.is_active:
        for column, value in rows.ending_values(new.turn).items():
            setattr(row, column, value)
    tx.add(row)
    await tx.flush()
    nodes = await input_rows(tx, new)
    tx.add_all(nodes)
    tx.add(rows.from_span(new.span))
    await tx.flush()
    tx.add_all(rows.search_entries(nodes))


async def _is_followed(tx: AsyncSession, turn_id: TurnId) -> bool:
    """Whether a turn comes behind it, or a session would go on from it."""
    query = select(
        or_(
            exists().where(ResponseRow.parent_id == turn_id),
            exists().where(SessionRow.head_id == turn_id),
        )
    )
    return (await tx.scalars(query)).one()


async def _turns_of(tx: AsyncSession, ids: Sequence[str]) -> tuple[Turn, ...]:
    """Turns by their ids, in that order; those that are there, for on PostgreSQL a purge may come
    between two statements."""
    turns: list[Turn] = []
    for begin in range(0, len(ids), _TURNS_PER_QUERY):
        some = ids[begin : begin + _TURNS_PER_QUERY]
        found = await tx.scalars(select(ResponseRow).where(ResponseRow.id.in_(some)))
        by_id = {row.id: row for row in found}
        turns += await _some_turns(tx, [by_id[turn_id] for turn_id in some if turn_id in by_id])
        tx.expunge_all()
    return tuple(turns)


async def _turn_of(tx: AsyncSession, row: ResponseRow) -> Turn:
    return next(await _some_turns(tx, [row]))


async def _some_turns(tx: AsyncSession, found: Sequence[ResponseRow]) -> Iterator[Turn]:
    wanted = {row.input_response_id for row in found} | {row.id for row in found}
    query = select(NodeRow).where(NodeRow.response_id.in_(wanted)).order_by(NodeRow.position)
    inputs: dict[str, list[NodeRow]] = {}
    replies: dict[str, list[NodeRow]] = {}
    for node in await tx.scalars(query):
        if node.is_output:
            replies.setdefault(node.response_id, []).append(node)
        else:
            inputs.setdefault(node.response_id, []).append(node)
    return (
        rows.to_turn(row, inputs.get(row.input_response_id, ()), replies.get(row.id, ()))
        for row in found
    )


def _parents_first(parents: Mapping[str, str | None]) -> list[str]:
    """The same ids, each that came before its parent put right behind it."""
    unplaced = set(parents)
    early: dict[str, list[str]] = {}
    ordered: list[str] = []
    for turn_id, parent_id in parents.items():
        if parent_id is not None and parent_id in unplaced:
            early.setdefault(parent_id, []).append(turn_id)
            continue
        stack = [turn_id]
        while stack:
            placed = stack.pop()
            unplaced.remove(placed)
            ordered.append(placed)
            stack += reversed(early.pop(placed, []))
    return ordered
