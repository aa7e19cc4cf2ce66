"""Replay: the same events under the same numbers as when they happened."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from sessions.replay import closing, delta, opening, replay
from sessions.types import (
    ReplyDelta,
    ReplyItemAdded,
    ReplyItemDone,
    ReplyPartAdded,
    ReplyPartDone,
    ReplyTextDone,
    TurnCreated,
    TurnEnded,
    TurnError,
    TurnInProgress,
    TurnMetrics,
    TurnStatus,
)
from tests.support.turns import make_turn


def kinds(turn) -> list[type]:
    return [type(event) for event in replay(turn)]


def test_a_completed_turn_has_every_event_in_the_protocols_order():
    assert kinds(make_turn()) == [
        TurnCreated,
        TurnInProgress,
        ReplyItemAdded,
        ReplyPartAdded,
        ReplyDelta,
        ReplyDelta,
        ReplyTextDone,
        ReplyPartDone,
        ReplyItemDone,
        TurnMetrics,
        TurnEnded,
    ]


def test_the_first_events_know_nothing_of_what_came_later():
    created, in_progress, *_ = replay(make_turn())

    assert created.turn.status is TurnStatus.PENDING
    assert in_progress.turn.status is TurnStatus.RUNNING
    for event in (created, in_progress):
        assert event.turn.reply_text == ""
        assert event.turn.usage is event.turn.finished_at is None


def test_a_turn_that_failed_at_once_goes_straight_to_its_end():
    error = TurnError(code="engine_died", message="gone", retryable=True)
    turn = make_turn(
        status=TurnStatus.FAILED, reply_text="", delta_lengths=(), error=error, usage=None
    )

    assert kinds(turn) == [TurnCreated, TurnInProgress, TurnEnded]


def test_a_turn_that_failed_in_mid_reply_shows_what_there_was():
    turn = make_turn(status=TurnStatus.FAILED, usage=None, timing=None)

    assert kinds(turn)[4:] == [ReplyDelta, ReplyDelta, TurnEnded]


def test_a_cancelled_turn_without_a_word_still_has_its_empty_item():
    turn = make_turn(status=TurnStatus.CANCELLED, reply_text="", delta_lengths=(), usage=None)

    assert kinds(turn)[2:] == [
        ReplyItemAdded,
        ReplyPartAdded,
        ReplyTextDone,
        ReplyPartDone,
        ReplyItemDone,
        TurnEnded,
    ]
    assert replay(turn)[-2].status == "incomplete"


def test_an_active_turn_shows_its_reply_so_far_and_no_end():
    turn = make_turn(status=TurnStatus.RUNNING, usage=None, timing=None, finished_at=None)

    assert kinds(turn)[-2:] == [ReplyDelta, ReplyDelta]


@given(
    pieces=st.lists(st.text(min_size=1, max_size=5), max_size=10),
    status=st.sampled_from([s for s in TurnStatus if not s.is_active]),
    has_usage=st.booleans(),
)
def test_a_replay_equals_what_was_live(pieces, status, has_usage):
    ended = make_turn(
        status=status,
        reply_text="".join(pieces),
        delta_lengths=tuple(map(len, pieces)),
        **({} if has_usage else {"usage": None, "timing": None}),
    )
    submitted = replace(
        ended,
        status=TurnStatus.PENDING,
        reply_text="",
        delta_lengths=(),
        usage=None,
        timing=None,
        finished_at=None,
    )

    live = list(opening(submitted))
    for number, text in enumerate(pieces):
        live += delta(submitted, text, is_first=number == 0)
    live += closing(ended)

    assert list(replay(ended)) == live
