"""An import's rows: what they hang on, and that they go in by the many."""

from datetime import timedelta

import pytest
from sqlalchemy import event, select

from sessions.tables import NodeRow, ResponseRow
from sessions.types import ItemId, TurnId, TurnStatus
from tests.support.postgres import DATABASES
from tests.support.turns import NOW, make_item, make_turn
from tests.unit.sessions.test_store import make_new_turn, make_session


@pytest.fixture(params=DATABASES)
def database_kind(request):
    return request.param


def ended(name: str, *, parent: str | None, status=TurnStatus.COMPLETED, reply: str = "yes"):
    new = make_new_turn(name, parent=parent)
    turn = make_turn(
        id=TurnId(name),
        parent_id=parent,
        status=status,
        input_items=(make_item(id=ItemId(f"msg_in_{name}"), turn_id=TurnId(name)),),
        reply_item_id=ItemId(f"msg_out_{name}"),
        reply_text=reply,
        finished_at=NOW + timedelta(seconds=1),
    )
    return type(new)(
        turn=turn,
        span=new.span,
        lease=new.lease,
        digest="",
        input_turn_id=turn.id,
        follows_head=False,
    )


async def test_each_turn_hangs_on_its_parents_last_word(database, store):
    failed = TurnStatus.FAILED
    turns = [
        ended("resp_1", parent=None),
        ended("resp_2", parent="resp_1", status=failed, reply=""),
        ended("resp_3", parent="resp_2"),
        ended("resp_4", parent="resp_1"),
    ]

    await store.add_imported(make_session(), turns)

    async with database.reading() as tx:
        nodes = {node.id: node.parent_id for node in await tx.scalars(select(NodeRow))}
        branches = {row.id: row.branch_id for row in await tx.scalars(select(ResponseRow))}
    assert nodes == {
        "msg_in_resp_1": None,
        "msg_out_resp_1": "msg_in_resp_1",
        "msg_in_resp_2": "msg_out_resp_1",
        "msg_in_resp_3": "msg_in_resp_2",
        "msg_out_resp_3": "msg_in_resp_3",
        "msg_in_resp_4": "msg_out_resp_1",
        "msg_out_resp_4": "msg_in_resp_4",
    }
    assert branches["resp_1"] == branches["resp_2"] == branches["resp_3"] != branches["resp_4"]


async def test_a_long_session_takes_few_statements_while_other_writers_wait(database, store):
    turns = [
        ended(f"resp_{number:04}", parent=f"resp_{number - 1:04}" if number else None)
        for number in range(400)
    ]
    statements = []
    count = event.listens_for(database._engine.sync_engine, "before_cursor_execute")
    count(lambda _conn, _cursor, statement, *_: statements.append(statement))

    await store.add_imported(make_session(), turns)

    assert len(statements) < len(turns) / 4
    assert [turn.id for turn in await store.tree(make_session().id)] == [t.turn.id for t in turns]


async def test_a_long_session_is_read_in_parts_whose_turns_keep_their_own_words(database, store):
    turns = [
        ended(
            f"resp_{number:04}",
            parent=f"resp_{number - 1:04}" if number else None,
            reply=f"reply {number}",
        )
        for number in range(450)
    ]
    await store.add_imported(make_session(), turns)
    numbers = []
    count = event.listens_for(database._engine.sync_engine, "before_cursor_execute")
    count(lambda _conn, _cursor, _statement, values, *_: numbers.append(len(values)))

    path = await store.path(turns[-1].turn.id)

    assert [turn.reply_text for turn in path] == [f"reply {number}" for number in range(450)]
    assert [turn.input_items[0].id for turn in path] == [f"msg_in_{turn.id}" for turn in path]
    assert max(numbers) < 450
