"""Turns and events look as docs/protocol.md says."""

from dataclasses import replace

import pytest

from app.representation import event_object, session_object
from app.response_object import turn_object
from sessions.types import (
    InputMessage,
    ReplyDelta,
    SamplingParams,
    TurnRequest,
    TurnStatus,
)
from tests.support.fake_engine import INFO
from tests.support.fake_manager import FakeManager


@pytest.fixture
async def manager():
    return FakeManager()


async def _turn(manager, status=None, text="Oslo."):
    session = await manager.create("me", title="t")
    request = TurnRequest(
        input=(InputMessage(role="user", text="hi"),),
        params=SamplingParams(temperature=0.5),
        client_turn_id="c1",
    )
    turn = await manager.submit("me", session.id, request)
    if text:
        manager.say(turn.id, text)
    return manager.turns_by_id[turn.id] if status is None else manager.end(turn.id, status)


async def test_a_completed_turn_is_a_whole_response(manager):
    turn = turn_object(await _turn(manager, TurnStatus.COMPLETED))

    assert turn["status"] == "completed"
    assert turn["output"][0]["content"][0]["text"] == "Oslo."
    assert turn["input"][0]["content"] == [{"type": "input_text", "text": "hi"}]
    assert turn["usage"]["input_tokens_details"] == {"cached_tokens": 112, "cache_write_tokens": 8}
    assert turn["usage"]["total_tokens"] == 121
    assert turn["splice"]["client_turn_id"] == "c1"
    assert turn["splice"]["metrics"]["kv"]["reused"] == 112
    assert turn["splice"]["metrics"]["ttft_ms"] == 84.0


@pytest.mark.parametrize(
    ("status", "shown", "reason"),
    [
        (TurnStatus.COMPLETED, "completed", None),
        (TurnStatus.INCOMPLETE, "incomplete", "max_output_tokens"),
        (TurnStatus.INTERRUPTED, "incomplete", "interrupted"),
        (TurnStatus.CANCELLED, "cancelled", None),
        (TurnStatus.FAILED, "failed", None),
    ],
)
async def test_each_way_to_end_has_its_status(manager, status, shown, reason):
    turn = turn_object(await _turn(manager, status))

    assert turn["status"] == shown
    assert (turn["incomplete_details"] or {}).get("reason") == reason


async def test_a_running_turn_shows_the_text_so_far(manager):
    turn = turn_object(await _turn(manager))

    assert turn["status"] == "in_progress"
    assert turn["output"][0]["status"] == "in_progress"


async def test_a_turn_without_text_has_no_output(manager):
    assert turn_object(await _turn(manager, text=""))["output"] == []


async def test_a_failed_turn_says_why(manager):
    turn = turn_object(await _turn(manager, TurnStatus.FAILED))

    assert turn["error"]["code"] == "engine_died"
    assert turn["usage"] is None


async def test_the_events_come_in_the_order_of_the_responses_stream(manager):
    turn = await _turn(manager, TurnStatus.COMPLETED)
    events = [event_object(n, e) for n, e in enumerate(manager.feeds[turn.id].events)]

    assert [event["type"] for event in events] == [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.content_part.added",
        "response.output_text.delta",
        "response.output_text.done",
        "response.content_part.done",
        "response.output_item.done",
        "splice:metrics",
        "response.completed",
    ]
    assert [event["sequence_number"] for event in events] == list(range(10))
    assert events[0]["response"]["output"] == []
    assert events[2]["item"]["content"] == []


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (TurnStatus.CANCELLED, "response.incomplete"),
        (TurnStatus.INCOMPLETE, "response.incomplete"),
        (TurnStatus.INTERRUPTED, "response.incomplete"),
        (TurnStatus.FAILED, "response.failed"),
    ],
)
async def test_a_turn_that_is_not_completed_ends_with_the_event_clients_know(manager, status, kind):
    turn = await _turn(manager, status)

    assert event_object(9, manager.feeds[turn.id].events[-1])["type"] == kind


async def test_a_delta_has_its_place(manager):
    assert event_object(4, ReplyDelta("msg_1", "fjord")) == {
        "type": "response.output_text.delta",
        "sequence_number": 4,
        "item_id": "msg_1",
        "output_index": 0,
        "content_index": 0,
        "delta": "fjord",
        "logprobs": [],
    }


async def test_times_are_whole_seconds(manager):
    session = await manager.create("me")

    shown = session_object(replace(session, revision=3), None)

    assert shown["created_at"] == 1795953600
    assert shown["revision"] == 3


@pytest.mark.parametrize(
    ("model", "fingerprint", "state"),
    [
        ("tiny", "f", "loaded"),
        ("tiny", "g", "fingerprint_changed"),
        ("other", "f", "other_model"),
        (None, None, None),
    ],
)
async def test_a_session_says_how_it_stands_to_the_loaded_model(manager, model, fingerprint, state):
    session = await manager.create("me")
    loaded = None if model is None else replace(INFO, model_id=model, fingerprint=fingerprint)

    assert session_object(session, loaded)["model_state"] == state
