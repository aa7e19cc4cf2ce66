"""The SQL about titles that the model makes, and how a title is found. Part of `store`."""

from sqlalchemy import delete, exists, or_, select
from sqlalchemy.ext.asyncio import AsyncSession

from sessions import rows
from sessions.database import Database
from sessions.folding import fold
from sessions.session_events import ChangeKind, SessionEvent, record
from sessions.tables import NodeRow, ResponseRow, SearchEntryRow, SessionRow
from sessions.types import OwnerId, Session, SessionId, TurnStatus, Untitled

_ANSWERS = tuple(status.value for status in TurnStatus if status.is_answer)


class TitleStore:
    """What is stored of titles that the model makes."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def untitled(self, limit: int) -> tuple[SessionId, ...]:
        """The sessions used last that want a title and have been answered something."""
        is_on = SessionRow.settings["is_auto_titled"].as_boolean()
        answered = exists().where(
            ResponseRow.session_id == SessionRow.id,
            ResponseRow.status.in_(_ANSWERS),
        )
        query = (
            select(SessionRow.id)
            .where(SessionRow.title.is_(None), SessionRow.deleted_at.is_(None), answered)
            .where(or_(is_on.is_(None), is_on.is_(True)))
            .order_by(SessionRow.updated_at.desc())
            .limit(limit)
        )
        async with self._database.reading() as tx:
            return tuple(SessionId(session_id) for session_id in await tx.scalars(query))

    async def beginning(self, session_id: SessionId) -> Untitled | None:
        """What a title can be made from; None when the session wants none, or is gone."""
        first = (
            select(ResponseRow)
            .where(
                ResponseRow.session_id == session_id,
                ResponseRow.status.in_(_ANSWERS),
            )
            .order_by(ResponseRow.created_at, ResponseRow.id)
            .limit(1)
        )
        async with self._database.reading() as tx:
            row = await tx.get(SessionRow, session_id)
            if row is None or not _wants_title(row):
                return None
            turn = (await tx.scalars(first)).one_or_none()
            if turn is None:
                return None
            asked = select(NodeRow.text).where(
                NodeRow.response_id == turn.input_response_id,
                ~NodeRow.is_output,
                NodeRow.role == "user",
            )
            question = (await tx.scalars(asked.order_by(NodeRow.position.desc()).limit(1))).first()
            reply = await tx.get(NodeRow, turn.reply_node_id)
            return Untitled(
                session_id=session_id,
                owner=OwnerId(row.owner_id),
                question=question or "",
                reply=reply.text if reply is not None else "",
            )

    async def give_title(self, session_id: SessionId, title: str) -> bool:
        """Give a session the title that was made for it; False when it wants none any more."""
        async with self._database.writing() as tx:
            row = await tx.get(SessionRow, session_id, with_for_update=True)
            if row is None or not _wants_title(row):
                return False
            row.title = title
            row.revision += 1
            event = SessionEvent(revision=row.revision, kind=ChangeKind.UPDATED, fields=("title",))
            await record(tx, row.id, event)
            await index_title(tx, rows.to_session(row))
            return True


def _wants_title(row: SessionRow) -> bool:
    is_on = row.settings.get("is_auto_titled", True)
    return is_on and row.title is None and row.deleted_at is None


async def index_title(tx: AsyncSession, session: Session) -> None:
    """Let a session be found by the title it has, and by no other."""
    entry = SearchEntryRow
    await tx.execute(delete(entry).where(entry.session_id == session.id, entry.node_id.is_(None)))
    if session.title:
        tx.add(entry(session_id=session.id, text=fold(session.title)))
