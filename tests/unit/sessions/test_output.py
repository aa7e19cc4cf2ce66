"""A reply as items: the live events are those of a replay, however the text came."""

from itertools import count, pairwise

from hypothesis import given
from hypothesis import strategies as st

from sessions.item_kind import ItemKind
from sessions.output import OutputBuilder, OutputItem, OutputStep, cut_short, told
from sessions.tools import Tool
from tests.support import tiny_tokenizer as tiny

CALL = '<tool_call>\n{"name": "look", "arguments": {"a": 1}}\n</tool_call>'
TEXT = f"<think>\nhm, so\n</think>\n\nI look.\n{CALL}\n{CALL}"
CALLING = tiny.make_renderer(tiny.SMOLLM2).calling


def build(pieces, *, is_complete=True, lead=()):
    numbers = count()
    builder = OutputBuilder(
        CALLING.parser((Tool(name="look"),)),
        lambda kind: f"{kind.value}_{next(numbers)}",
        message_id="msg_first",
        lead=lead,
    )
    events = builder.begin()
    for piece in pieces:
        events += builder.feed(piece, 1)
    events += builder.finish(is_complete=is_complete)
    return builder, events


def replayed(items):
    return [event for index, item in enumerate(items) for event in told(index, item)]


@given(st.lists(st.integers(0, len(TEXT)), max_size=12), st.integers(0, len(TEXT)), st.booleans())
def test_however_a_reply_is_cut_its_events_are_told_again(cuts, end, is_complete):
    places = sorted({0, *(min(cut, end) for cut in cuts), end})
    pieces = [TEXT[a:b] for a, b in pairwise(places)]

    builder, events = build(pieces, is_complete=is_complete)

    assert [(e.step, e.index, e.text, e.item.id) for e in events] == [
        (e.step, e.index, e.text, e.item.id) for e in replayed(builder.items)
    ]
    for index, item in enumerate(builder.items):
        deltas = [e.text for e in events if e.step is OutputStep.DELTA and e.index == index]
        assert "".join(deltas) == item.text
        assert item.status != "in_progress"


def test_the_whole_is_reasoning_words_and_calls():
    builder, _ = build([TEXT])

    assert [(item.kind, item.text) for item in builder.items] == [
        (ItemKind.REASONING, "hm, so"),
        (ItemKind.MESSAGE, "I look."),
        (ItemKind.FUNCTION_CALL, '{"a": 1}'),
        (ItemKind.FUNCTION_CALL, '{"a": 1}'),
    ]
    assert builder.items[1].id == "msg_first"
    assert len({item.call_id for item in builder.items}) == 3


def test_a_reply_that_says_nothing_is_an_empty_message():
    builder, events = build([])

    assert [(item.kind, item.text) for item in builder.items] == [(ItemKind.MESSAGE, "")]
    assert [event.step for event in events] == [
        OutputStep.ADDED,
        OutputStep.PART_ADDED,
        OutputStep.TEXT_DONE,
        OutputStep.PART_DONE,
        OutputStep.DONE,
    ]


def test_a_summary_stands_in_front():
    kind = ItemKind.COMPACTION
    summary = OutputItem(id="cmp_1", kind=kind, text="In short.", status="completed")
    builder, events = build(["fine"], lead=[summary])

    assert [item.kind for item in builder.items] == [kind, ItemKind.MESSAGE]
    assert events[:2] == list(told(0, summary))


def test_items_are_stored_and_cut_short():
    builder, _ = build([TEXT])
    stored = [item.to_stored() for item in builder.items]

    assert tuple(map(OutputItem.of_stored, stored)) == builder.items
    growing = OutputItem(id="msg_1", kind=ItemKind.MESSAGE, text="a", lengths=(1,))
    assert [item.status for item in cut_short([growing])] == ["incomplete"]
