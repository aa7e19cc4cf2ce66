"""What is left of a turn once items of it were taken out of the conversation."""

from dataclasses import replace

import pytest

from sessions.history import left
from sessions.item_kind import ItemKind
from sessions.output import OutputItem
from tests.support.turns import make_turn

OUTPUT = (
    OutputItem(id="rs_1", kind=ItemKind.REASONING, text="Hm."),
    OutputItem(id="msg_1", kind=ItemKind.MESSAGE, text="Oslo."),
)


@pytest.mark.parametrize(
    ("gone", "said", "has_reply"),
    [
        (set(), "Hm. Oslo.", True),
        ({"rs_1"}, "Oslo.", True),
        ({"msg_1"}, "", True),
        ({"rs_1", "msg_1"}, "", False),
    ],
)
def test_a_replys_words_stay_as_long_as_their_item_does(gone, said, has_reply):
    turn = replace(
        make_turn(), output=OUTPUT, reply_text="Hm. Oslo.", deleted_items=frozenset(gone)
    )

    rest = left(turn)

    assert [item.id for item in rest.output] == [i.id for i in OUTPUT if i.id not in gone]
    assert (rest.reply_text, rest.terms.has_reply) == (said, has_reply)
