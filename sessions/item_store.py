"""The SQL about single items, and about turns that are deleted by themselves. Part of `store`.

Nothing goes by a deletion here but what is found: turns that follow have the words in their logs.
What goes for good goes with its session (`purge`).
"""

from datetime import datetime

from sqlalchemy import delete, exists, select
from sqlalchemy.ext.asyncio import AsyncSession

from sessions import rows
from sessions.errors import ItemNotFoundError, TurnNotFoundError
from sessions.session_events import ChangeKind, SessionEvent, record
from sessions.session_store import SessionStore, session_row
from sessions.tables import NodeRow, ResponseRow, SearchEntryRow, SessionRow
from sessions.types import Item, ItemId, OwnerId, SessionId, TurnId


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
        """Have an ended turn found no more; whether it was all that its session had.

        A head goes back to its parent. Raises TurnNotFoundError.
        """
        async with self._database.writing() as tx:
            row = await tx.get(ResponseRow, turn_id)
            session = await tx.get(SessionRow, row.session_id) if row is not None else None
            if row is None or session is None or session.owner_id != owner or row.deleted_at:
                raise TurnNotFoundError(f"no turn has the id {turn_id!r}")
            row.deleted_at = now
            if session.head_id == turn_id:
                session.head_id = row.parent_id
            await tx.execute(delete(SearchEntryRow).where(SearchEntryRow.response_id == turn_id))
            await _note(tx, session)
            others = exists().where(
                ResponseRow.session_id == session.id, ResponseRow.deleted_at.is_(None)
            )
            await tx.flush()
            return session.forked_from_id is None and not (await tx.scalars(select(others))).one()


async def _note(tx: AsyncSession, session: SessionRow) -> None:
    session.revision += 1
    event = SessionEvent(revision=session.revision, kind=ChangeKind.UPDATED, fields=("items",))
    await record(tx, session.id, event)


def _no_item(item_id: ItemId) -> ItemNotFoundError:
    return ItemNotFoundError(f"no item has the id {item_id!r}")
