"""The SQL about single items, and about turns that are deleted by themselves. Part of `store`.

Nothing goes by a deletion here but what is found: turns that follow have the words in their logs.
What goes for good goes with its session (`purge`).
"""

from datetime import datetime

from sqlalchemy import (
    ColumnElement,
    Select,
    Subquery,
    and_,
    delete,
    exists,
    or_,
    select,
    union_all,
)
from sqlalchemy.ext.asyncio import AsyncSession

from sessions import rows
from sessions.errors import InvalidInputError, ItemNotFoundError, TurnNotFoundError
from sessions.pages import ItemFilter, ItemPage
from sessions.queries import ancestor_ids, is_active
from sessions.session_events import ChangeKind, SessionEvent, record
from sessions.session_store import SessionStore, session_row
from sessions.tables import NodeRow, ResponseRow, SearchEntryRow, SessionRow
from sessions.types import (
    Item,
    ItemId,
    OwnerId,
    SessionId,
    TurnId,
)


class ItemStore(SessionStore):
    """Items, asked for one by one."""

    async def item(self, owner: OwnerId, item_id: ItemId) -> Item:
        """Raises ItemNotFoundError also for another owner's, and for one of a deleted session."""
        async with self._database.reading() as tx:
            node = await tx.get(NodeRow, item_id)
            session = await tx.get(SessionRow, node.session_id) if node is not None else None
            is_there = session is not None and session.deleted_at is None
            if node is None or session is None or session.owner_id != owner or not is_there:
                raise _no_item(item_id)
            if node.deleted_at is not None:
                raise _no_item(item_id)
            return rows.to_item(node)

    async def items(self, head: TurnId, wanted: ItemFilter) -> ItemPage:
        """A page of what a branch says; of a turn that still runs nothing.

        Reads the page's texts only, and ids along the branch. Raises InvalidInputError for an
        `after` that isn't among them.
        """
        along = _items_along(head)
        async with self._database.reading() as tx:
            query = select(along.c.id)
            if wanted.after is not None:
                query = query.where(await _is_behind(tx, along, wanted))
            places = (along.c.depth, along.c.position.desc())
            query = query.order_by(
                *(places if wanted.is_descending else (along.c.depth.desc(), along.c.position))
            )
            ids = (await tx.scalars(query.limit(wanted.limit + 1))).all()
            found = await tx.scalars(select(NodeRow).where(NodeRow.id.in_(ids)))
            by_id = {node.id: rows.to_item(node) for node in found}
        data = tuple(by_id[item_id] for item_id in ids[: wanted.limit])
        return ItemPage(data=data, has_more=len(ids) > wanted.limit)

    async def item_along(self, head: TurnId, item_id: ItemId) -> Item:
        """An item of a branch; raises ItemNotFoundError."""
        along = _items_along(head)
        query = select(NodeRow).join(along, along.c.id == NodeRow.id).where(along.c.id == item_id)
        async with self._database.reading() as tx:
            node = (await tx.scalars(query)).one_or_none()
            if node is None:
                raise _no_item(item_id)
            return rows.to_item(node)

    async def delete_item(
        self, owner: OwnerId, session_id: SessionId, item_id: ItemId, now: datetime
    ) -> None:
        """Take an item out of its conversation; its turn still has it.

        Raises ItemNotFoundError for one that is not the session's own.
        """
        async with self._database.writing() as tx:
            session = await session_row(tx, owner, session_id, is_locked=True)
            node = await tx.get(NodeRow, item_id)
            if node is None or node.session_id != session_id or node.deleted_at is not None:
                raise _no_item(item_id)
            node.deleted_at = now
            session.settings = {**session.settings, "edited_at": now.isoformat()}
            await tx.execute(delete(SearchEntryRow).where(SearchEntryRow.node_id == item_id))
            await _note(tx, session)

    async def delete_turn(self, owner: OwnerId, turn_id: TurnId, now: datetime) -> bool:
        """Have an ended turn found no more; whether it was all that a session had that is there for
        its turns alone: in no list, so nobody opened it, named it or pinned it.

        A head goes back to the last turn before it that is there; a fork's stays, for a fork keeps
        all it came from. Raises TurnNotFoundError.
        """
        async with self._database.writing() as tx:
            row = await tx.get(ResponseRow, turn_id)
            if row is None:
                raise _no_turn(turn_id)
            session = await tx.get(SessionRow, row.session_id, with_for_update=True)
            if session is None or session.owner_id != owner:
                raise _no_turn(turn_id)
            await tx.refresh(row)  # as it is now that nobody else changes the session
            if row.deleted_at is not None:
                raise _no_turn(turn_id)
            row.deleted_at = now
            if session.head_id == turn_id:
                session.head_id = await _living_ancestor(tx, row.parent_id)
            await tx.execute(delete(SearchEntryRow).where(SearchEntryRow.response_id == turn_id))
            await _note(tx, session)
            others = exists().where(
                ResponseRow.session_id == session.id, ResponseRow.deleted_at.is_(None)
            )
            await tx.flush()
            return not session.is_listed and not (await tx.scalars(select(others))).one()


def _items_along(head: TurnId) -> Subquery:
    """(id, depth, position) of the items of a turn (depth 0) and of all before it."""
    chain = ancestor_ids(head)
    branch = select(ResponseRow.id, ResponseRow.input_response_id, chain.c.depth).join(
        chain, chain.c.id == ResponseRow.id
    )
    turns = branch.where(~is_active()).subquery()

    def said(turn_id: ColumnElement[str], *, is_output: bool) -> Select[tuple[str, int, int]]:
        return (
            select(NodeRow.id, turns.c.depth, NodeRow.position)
            .join(turns, turn_id == NodeRow.response_id)
            .where(NodeRow.is_output.is_(is_output), NodeRow.deleted_at.is_(None))
        )

    given = said(turns.c.input_response_id, is_output=False)
    return union_all(given, said(turns.c.id, is_output=True)).subquery()


async def _is_behind(tx: AsyncSession, along: Subquery, wanted: ItemFilter) -> ColumnElement[bool]:
    """Whether an item comes after the last one of the page before."""
    query = select(along.c.depth, along.c.position).where(along.c.id == wanted.after)
    last = (await tx.execute(query)).one_or_none()
    if last is None:
        raise InvalidInputError("no item of the list has that id", param="after")
    depth, position = last
    if wanted.is_descending:
        return or_(along.c.depth > depth, and_(along.c.depth == depth, along.c.position < position))
    return or_(along.c.depth < depth, and_(along.c.depth == depth, along.c.position > position))


async def _note(tx: AsyncSession, session: SessionRow) -> None:
    session.revision += 1
    event = SessionEvent(revision=session.revision, kind=ChangeKind.UPDATED, fields=("items",))
    await record(tx, session.id, event)


async def _living_ancestor(tx: AsyncSession, turn_id: str | None) -> str | None:
    """The turn, or the last one before it that was not deleted."""
    if turn_id is None:
        return None
    chain = ancestor_ids(TurnId(turn_id))
    living = (
        select(ResponseRow.id)
        .join(chain, chain.c.id == ResponseRow.id)
        .where(ResponseRow.deleted_at.is_(None))
        .order_by(chain.c.depth)
    )
    return (await tx.scalars(living.limit(1))).one_or_none()


def _no_turn(turn_id: TurnId) -> TurnNotFoundError:
    return TurnNotFoundError(f"no turn has the id {turn_id!r}")


def _no_item(item_id: ItemId) -> ItemNotFoundError:
    return ItemNotFoundError(f"no item has the id {item_id!r}")
