"""What the log says when the store fails under a turn: which turn it was, and none of its words."""

import json
import logging

import pytest
from sqlalchemy import text

from app.logs import formatter as log_lines
from sessions.errors import StoreUnavailableError
from sessions.types import OwnerId
from tests.support.chat import Chat
from tests.support.fake_engine import FakeReply

SECRET = "my darkest secret"


async def broken(database, *statements):
    async with database.writing() as tx:
        for statement in statements:
            await tx.execute(text(statement))


def said(caplog):
    """Every record, with its traceback and what it carries."""
    formatter = logging.Formatter()
    return "\n".join(f"{formatter.format(r)} {r.__dict__}" for r in caplog.records)


async def test_a_turn_that_cannot_be_written_leaves_no_words_in_the_log(
    manager, database, engine, caplog
):
    caplog.set_level(logging.INFO)
    chat = await Chat.open(manager)
    await broken(database, "DROP TABLE nodes")

    with pytest.raises(StoreUnavailableError) as caught:
        await chat.submit(SECRET)

    assert SECRET not in said(caplog)
    assert SECRET not in str(caught.value)
    assert SECRET not in str(caught.value.__cause__)


async def test_a_reply_that_cannot_be_written_is_logged_by_its_ids_and_not_its_words(
    manager, database, engine, caplog
):
    caplog.set_level(logging.INFO)
    caplog.handler.setFormatter(log_lines("json"))
    engine.replies.append(FakeReply(pieces=(SECRET, SECRET), holds_after=1))
    chat = await Chat.open(manager)
    turn = await chat.submit("hello")
    await engine.held(turn.id)
    await broken(
        database,
        "CREATE TRIGGER no BEFORE INSERT ON nodes BEGIN SELECT RAISE(ABORT, 'no'); END",
    )
    engine.let_go()
    async for _ in manager.read(OwnerId("ann"), turn.id):
        pass

    entries = [json.loads(line) for line in caplog.text.splitlines()]
    assert (chat.id, turn.id, "ann") in {
        (entry.get("session_id"), entry.get("turn_id"), entry.get("owner"))
        for entry in entries
        if entry["logger"].startswith("sessions")
    }
    assert SECRET not in said(caplog) + caplog.text
