"""The statements that an imported session's turns are written with; `store.py` has the transaction.

Whatever a row refers to is known from the import itself, so nothing is asked of the database and
many rows go in one statement: on SQLite all other writers wait until the last of them is in.
"""

from collections.abc import Sequence
from itertools import islice
from typing import Any

from sqlalchemy import insert
from sqlalchemy.ext.asyncio import AsyncSession

from sessions import rows
from sessions.ids import new_branch_id
from sessions.tables import NodeRow, ResponseRow, SearchEntryRow
from sessions.turn_writes import NewTurn, has_reply, response_row
from sessions.types import TurnId

# Between two of them the event loop has its turn.
TURNS_PER_FLUSH = 50


async def insert_turns(tx: AsyncSession, turns: Sequence[NewTurn]) -> None:
    """Insert turns that have ended, with their replies; each comes behind its parent."""
    branches = _branches(turns)
    last_nodes: dict[TurnId, str] = {}
    waiting = iter(turns)
    while part := list(islice(waiting, TURNS_PER_FLUSH)):
        # Rows refer to those of the flush before, which is the order that foreign keys ask for.
        tx.add_all(_response(new, branches[new.turn.id]) for new in part)
        await tx.flush()
        nodes = [node for new in part for node in _nodes(new, last_nodes)]
        tx.add_all(nodes)
        tx.add_all(rows.from_span(new.span) for new in part)
        await tx.flush()
        # One by one, were the session to learn the id that each is given.
        if found := [_values(entry) for entry in rows.search_entries(nodes)]:
            await tx.execute(insert(SearchEntryRow), found)


def _values(entry: SearchEntryRow) -> dict[str, Any]:
    return {
        "session_id": entry.session_id,
        "response_id": entry.response_id,
        "node_id": entry.node_id,
        "text": entry.text,
    }


def _branches(turns: Sequence[NewTurn]) -> dict[TurnId, str]:
    """A parent's first child is on its branch, every other turn begins one."""
    branches: dict[TurnId, str] = {}
    continued: set[TurnId] = set()
    for new in turns:
        parent = new.turn.parent_id
        if parent is None or parent in continued:
            branches[new.turn.id] = new_branch_id(new.turn.created_at)
        else:
            branches[new.turn.id] = branches[parent]
            continued.add(parent)
    return branches


def _response(new: NewTurn, branch_id: str) -> ResponseRow:
    row = response_row(new, branch_id)
    for column, value in rows.ending_values(new.turn).items():
        setattr(row, column, value)
    return row


def _nodes(new: NewTurn, last_nodes: dict[TurnId, str]) -> list[NodeRow]:
    """A turn's input and reply, a chain below the parent's last node; notes its own."""
    items = list(new.turn.input_items)
    if has_reply(new.turn):
        items.append(rows.reply_item(new.turn))
    parent_id = last_nodes[new.turn.parent_id] if new.turn.parent_id is not None else None
    made = []
    for position, item in enumerate(items):
        is_output = position >= len(new.turn.input_items)
        made.append(
            rows.from_item(item, position=position, parent_id=parent_id, is_output=is_output)
        )
        parent_id = item.id
    assert parent_id is not None, f"{new.turn.id} has no input"
    last_nodes[new.turn.id] = parent_id
    return made
