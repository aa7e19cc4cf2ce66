"""A generation in flight: what an engine that takes over is asked, and what the reader is told."""

from model.config import SamplingParams
from model.errors import RepeatedCrashError
from model.flight import Flight
from model.messages import (
    ClaimReport,
    FinishReason,
    GenerationDelta,
    GenerationFinished,
    GenerationRequest,
    GenerationStarted,
)

STARTED = GenerationStarted(claim=ClaimReport(num_prompt_tokens=3, computed=3))


def make_flight(**params) -> Flight:
    request = GenerationRequest(
        request_id="a", token_ids=(1, 2, 3), params=SamplingParams(**params)
    )
    return Flight(request, now_s=100.0)


def finished(**values) -> GenerationFinished:
    return GenerationFinished(
        reason=FinishReason.LENGTH, token_ids=(7, 8, 9), text="", num_rows_computed=5, **values
    )


def test_without_a_crash_the_request_is_asked_as_it_came():
    flight = make_flight()

    assert flight.request(100.0).resumed_ids is None
    assert flight.request(100.0).params == SamplingParams()


def test_an_engine_that_takes_over_is_given_what_was_delivered():
    flight = make_flight()
    flight.deliver(STARTED, 101.0)
    flight.deliver(GenerationDelta(token_ids=(7, 8), text="x"), 102.0)

    assert flight.survives_crash()

    assert flight.request(103.0).resumed_ids == (7, 8)


def test_an_engine_that_takes_over_a_continued_reply_is_given_what_it_began_with():
    params = SamplingParams()
    request = GenerationRequest(
        request_id="a", token_ids=(1, 2, 3), params=params, resumed_ids=(5, 6)
    )
    flight = Flight(request, now_s=100.0)
    flight.deliver(STARTED, 101.0)
    flight.deliver(GenerationDelta(token_ids=(7, 8), text="x"), 102.0)

    assert flight.survives_crash()

    assert flight.request(103.0).resumed_ids == (5, 6, 7, 8)
    flight.deliver(finished(total_s=1.0), 112.0)
    events = [flight.stream.get_nowait() for _ in range(flight.stream.qsize())]
    # By the first engine: three of the prompt, then one to sample each of the two behind.
    assert events[-1].num_rows_computed == 5 + 3 + 2


def test_the_deadline_counts_on_while_the_engine_restarts():
    flight = make_flight(deadline_s=10.0)
    assert flight.request(100.0).params.deadline_s == 10.0

    assert flight.survives_crash()

    assert flight.request(104.0).params.deadline_s == 6.0
    assert flight.request(200.0).params.deadline_s == 0.0


def test_the_end_after_a_crash_has_the_rows_and_times_of_both_engines():
    flight = make_flight()
    flight.deliver(STARTED, 101.0)
    flight.deliver(GenerationDelta(token_ids=(7, 8), text="x"), 103.0)
    assert flight.survives_crash()
    flight.deliver(STARTED, 110.0)

    flight.deliver(finished(total_s=1.0), 112.0)

    events = [flight.stream.get_nowait() for _ in range(flight.stream.qsize())]
    assert [type(e) for e in events] == [GenerationStarted, GenerationDelta, GenerationFinished]
    end = events[-1]
    # Three of the prompt and one delivered token were computed by the first engine.
    assert end.num_rows_computed == 5 + 3 + 1
    assert (end.queue_s, end.first_token_s, end.total_s) == (1.0, 3.0, 12.0)


def test_a_second_crash_is_the_end():
    flight = make_flight()

    assert flight.survives_crash()
    assert not flight.survives_crash()

    assert isinstance(flight.stream.get_nowait(), RepeatedCrashError)
