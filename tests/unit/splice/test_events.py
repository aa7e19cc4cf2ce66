"""Events read from bytes."""

import itertools
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from splice.events import (
    ArgumentsDelta,
    Event,
    ItemEvent,
    ReasoningDelta,
    SseParser,
    TextDelta,
    TurnEvent,
    parse_event,
)
from tests.support.scripted_api import turn_events

EVENTS = turn_events("Grüße 😀\n", " 你好")
WIRE = b": keep-alive\n\n" + b"".join(
    f"event: {e['type']}\ndata: {json.dumps(e, ensure_ascii=False)}\n\n".encode() for e in EVENTS
)


@given(st.lists(st.integers(0, len(WIRE)), max_size=12), st.booleans())
def test_cuts_anywhere_and_either_line_end_give_the_same_events(cuts, is_crlf):
    wire = WIRE.replace(b"\n", b"\r\n") if is_crlf else WIRE
    edges = [0, *sorted(cuts), len(wire)]
    parser = SseParser()

    found = [
        event for start, end in itertools.pairwise(edges) for event in parser.feed(wire[start:end])
    ]

    assert found == EVENTS


def test_data_over_several_lines_is_one_object():
    assert list(SseParser().feed(b'data: {"a":\ndata: 1}\n\n')) == [{"a": 1}]


def test_the_end_mark_is_no_event():
    assert list(SseParser().feed(b"data: [DONE]\n\n")) == []


def test_a_kind_from_the_future_is_an_event_with_all_its_data():
    event = parse_event({"type": "splice:new", "sequence_number": 3, "more": 1})

    assert type(event) is Event
    assert event.raw["more"] == 1


def test_an_event_without_a_number_has_that_of_the_one_before():
    assert parse_event({"type": "splice:new"}, 7).sequence_number == 7


def test_what_a_model_thinks_and_calls_has_types_of_its_own():
    call = {"id": "fc_1", "type": "function_call", "call_id": "c", "name": "look"}
    place = {"item_id": "fc_1", "output_index": 1}
    events = [
        {"type": "response.reasoning_text.delta", "item_id": "rs_1", "delta": "hm"},
        {"type": "response.output_item.added", "item": call},
        {"type": "response.function_call_arguments.delta", **place, "delta": '{"a"'},
        {"type": "response.output_item.done", "item": {**call, "arguments": '{"a":1}'}},
    ]

    thought, begun, piece, whole = [
        parse_event({**event, "sequence_number": number}) for number, event in enumerate(events)
    ]

    assert isinstance(thought, ReasoningDelta)
    assert thought.delta == "hm"
    assert isinstance(begun, ItemEvent)
    assert (begun.item.name, begun.is_done) == ("look", False)
    assert isinstance(piece, ArgumentsDelta)
    assert (piece.item_id, piece.delta) == ("fc_1", '{"a"')
    assert isinstance(whole, ItemEvent)
    assert (whole.item.arguments, whole.is_done) == ('{"a":1}', True)


@pytest.mark.parametrize("kind", ["completed", "incomplete", "failed"])
def test_the_last_event_of_a_turn_is_its_end(kind):
    event = parse_event({**EVENTS[-1], "type": f"response.{kind}"})

    assert isinstance(event, TurnEvent)
    assert event.is_end


def test_a_delta_has_its_text():
    assert parse_event(EVENTS[2]) == TextDelta(
        type="response.output_text.delta",
        sequence_number=2,
        raw=EVENTS[2],
        delta="Grüße 😀\n",
    )
