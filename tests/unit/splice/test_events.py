"""Events read from bytes."""

import itertools
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from splice.events import Event, SseParser, TextDelta, TurnEvent, parse_event
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
