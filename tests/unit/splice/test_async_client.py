"""The asynchronous client against a server that follows a script."""

import asyncio

import pytest

from splice import (
    AsyncClient,
    ConflictError,
    ConnectionLostError,
    MetricsEvent,
    ServerError,
    TextDelta,
    TurnEvent,
)
from tests.support.scripted_api import (
    Naps,
    ScriptedApi,
    answer,
    refuse,
    session_at,
    session_json,
    stream,
    stream_head,
    turn_events,
)


@pytest.fixture
def naps():
    return Naps()


async def reply(api, naps, **options):
    """Everything one stream yields, and the turn it ends with."""
    async with api.serving():
        transport, session = session_at(api, naps, **options)
        stream_of_turn = session.stream("hi")
        try:
            events = [event async for event in stream_of_turn]
        finally:
            await transport.close()
    return events, stream_of_turn.turn


async def test_a_reply_streams_as_typed_events(naps):
    api = ScriptedApi(stream(*turn_events("Hel", "lo")))

    events, turn = await reply(api, naps)

    assert [e.delta for e in events if isinstance(e, TextDelta)] == ["Hel", "lo"]
    assert [e.metrics.reused for e in events if isinstance(e, MetricsEvent)] == [3]
    assert isinstance(events[-1], TurnEvent)
    assert events[-1].is_end
    assert (turn.text, turn.status) == ("Hello", "completed")


async def test_a_turn_is_sent_with_a_client_turn_id(naps):
    api = ScriptedApi(stream(*turn_events("x")))

    await reply(api, naps)

    ((method, path, body),) = api.requests
    assert (method, path) == ("POST", "/v1/sessions/conv_1/turns")
    assert body["stream"] is True
    assert len(body["client_turn_id"]) == 32


@pytest.mark.parametrize("seen", range(1, 6))
async def test_a_torn_stream_goes_on_after_the_last_event(naps, seen):
    events = turn_events("a", "b", "c")
    api = ScriptedApi(stream(*events[:seen], then_break=True), stream(*events[seen:]))

    got, turn = await reply(api, naps)

    assert [e.sequence_number for e in got] == list(range(len(events)))
    assert turn.text == "abc"
    assert api.requests[1][1] == (
        f"/v1/sessions/conv_1/turns/resp_1?stream=true&starting_after={seen - 1}"
    )


async def test_a_stream_torn_before_its_first_event_sends_the_same_turn_again(naps):
    api = ScriptedApi(stream(then_break=True), stream(*turn_events("a")))

    _, turn = await reply(api, naps)

    (_, _, first), (_, _, second) = api.requests
    assert first == second
    assert turn.text == "a"


async def test_a_stream_that_ends_properly_but_early_goes_on(naps):
    events = turn_events("a")
    api = ScriptedApi(stream(*events[:2]), stream(*events[2:]))

    _, turn = await reply(api, naps)

    assert turn.text == "a"


async def test_repeated_events_are_given_once(naps):
    events = turn_events("a", "b")
    api = ScriptedApi(stream(*events[:4], then_break=True), stream(*events))

    got, _ = await reply(api, naps)

    assert [e.sequence_number for e in got] == list(range(len(events)))


async def test_a_gap_is_asked_for_again(naps):
    events = turn_events("a", "b")
    api = ScriptedApi(stream(*events[:2], *events[3:]), stream(*events[2:]))

    got, _ = await reply(api, naps)

    assert [e.sequence_number for e in got] == list(range(len(events)))


async def test_an_end_is_taken_whatever_its_number(naps):
    shown = turn_events("a", "b", "c")
    kept = turn_events("a")
    api = ScriptedApi(stream(*shown[:-1], then_break=True), stream(kept[-1]))

    got, turn = await reply(api, naps)

    assert [e.sequence_number for e in got] == [*range(len(shown) - 1), kept[-1]["sequence_number"]]
    assert turn.text == "a"


async def test_an_error_in_a_stream_that_may_be_tried_again_is(naps):
    events = turn_events("a")
    error = {"type": "error", "status": 503, "error": {"code": "store_unavailable"}}
    api = ScriptedApi(stream(*events[:2], error), stream(*events[2:]))

    got, turn = await reply(api, naps)

    assert [e.sequence_number for e in got] == list(range(len(events)))
    assert turn.text == "a"


async def test_an_error_in_a_stream_that_is_for_good_is_raised(naps):
    said = {"code": "internal", "message": "a bug", "type": "server_error", "param": None}
    error = {"type": "error", "status": 500, "error": said}
    api = ScriptedApi(stream(*turn_events("a")[:2], error))

    with pytest.raises(ServerError, match="a bug") as caught:
        await reply(api, naps)

    assert (caught.value.status, caught.value.code) == (500, "internal")
    assert len(api.requests) == 1


async def test_events_that_nobody_knows_are_passed_through(naps):
    first, *rest = turn_events("a")
    unknown = {"type": "splice:weather", "sequence_number": 1, "is_raining": True}
    unnumbered = {"type": "splice:aside", "words": "hm"}
    rest = [{**event, "sequence_number": event["sequence_number"] + 1} for event in rest]
    api = ScriptedApi(stream(first, unknown, unnumbered, *rest))

    got, turn = await reply(api, naps)

    assert [e.raw for e in got[:3]] == [first, unknown, unnumbered]
    assert [e.sequence_number for e in got] == [0, 1, 1, 2, 3, 4, 5]
    assert turn.text == "a"


async def test_any_number_of_open_streams_leaves_room_for_a_call(naps):
    is_over = asyncio.Event()

    async def hold(request):
        response = await stream_head(request, *turn_events("a")[:1])
        await is_over.wait()
        return response

    api = ScriptedApi(*[hold] * 110, answer(session_json(title="here")))
    async with api.serving():
        transport, session = session_at(api, naps)
        streams = [session.stream(str(number)) for number in range(110)]
        await asyncio.gather(*(anext(reading) for reading in streams))

        async with asyncio.timeout(10):
            assert (await session.refresh()).title == "here"
        is_over.set()
        await asyncio.gather(*(reading.close() for reading in streams))
        await transport.close()


async def test_a_stream_that_never_comes_back_is_given_up(naps):
    api = ScriptedApi(*[stream(then_break=True)] * 3)

    with pytest.raises(ConnectionLostError):
        await reply(api, naps, max_retries=2)

    assert len(api.requests) == 3


async def test_progress_makes_the_retries_count_anew(naps):
    events = turn_events("a", "b", "c")
    torn = [stream(event, then_break=True) for event in events[:-1]]
    api = ScriptedApi(*torn, stream(events[-1]))

    got, _ = await reply(api, naps, max_retries=1)

    assert len(got) == len(events)


async def test_a_refusal_that_helps_nobody_to_repeat_is_raised_at_once(naps):
    api = ScriptedApi(refuse(409, "idempotency_conflict", x_should_retry="false"))

    with pytest.raises(ConflictError) as caught:
        await reply(api, naps)

    error = caught.value
    assert (error.status, error.code, error.param) == (409, "idempotency_conflict", "input")
    assert (error.request_id, error.message) == ("req_1", "said idempotency_conflict")
    assert naps.lengths == []


async def test_a_busy_server_is_asked_again_when_it_said(naps):
    api = ScriptedApi(
        refuse(429, "engine_busy", Retry_After="7", x_should_retry="true"),
        stream(*turn_events("a")),
    )

    _, turn = await reply(api, naps)

    assert turn.text == "a"
    assert 7 <= naps.lengths[0] <= 9


async def test_milliseconds_are_more_exact_than_seconds(naps):
    asked = {"Retry_After": "1", "retry_after_ms": "20", "x_should_retry": "true"}
    api = ScriptedApi(refuse(429, "rate_limit_exceeded", **asked), stream(*turn_events("a")))

    await reply(api, naps)

    assert 0.02 <= naps.lengths[0] <= 0.025


async def test_a_date_to_come_back_at_is_no_time(naps):
    api = ScriptedApi(
        refuse(503, "away", Retry_After="Mon, 30 Nov 2026 04:00:00 GMT"),
        stream(*turn_events("a")),
    )

    await reply(api, naps)

    assert 0.5 <= naps.lengths[0] <= 0.625


async def test_without_a_time_the_pauses_grow(naps):
    api = ScriptedApi(*[refuse(503, "engine_unavailable")] * 3, stream(*turn_events("a")))

    await reply(api, naps)

    least = [0.5, 1.0, 2.0]
    assert all(low <= nap <= 1.25 * low for low, nap in zip(least, naps.lengths, strict=True))


async def test_what_no_list_shows_unasked_is_asked_for():
    api = ScriptedApi(answer({"data": [session_json(listed=False)], "has_more": False}))
    async with api.serving(), AsyncClient(api.url) as client:
        found = [session.info.listed async for session in client.sessions.list(listed=False)]

    assert found == [False]
    assert api.requests[0][1] == "/v1/sessions?limit=20&order=desc&listed=false"


async def test_every_page_of_a_list_is_read():
    pages = [
        {"data": [session_json("conv_1")], "has_more": True, "last_id": "conv_1"},
        {"data": [session_json("conv_2")], "has_more": False, "last_id": "conv_2"},
    ]
    api = ScriptedApi(*map(answer, pages))
    async with api.serving(), AsyncClient(api.url) as client:
        found = [session.id async for session in client.sessions.list(limit=1)]

    assert found == ["conv_1", "conv_2"]
    assert api.requests[1][1] == "/v1/sessions?limit=1&order=desc&after=conv_1"
