"""The asynchronous client against a server that follows a script."""

import asyncio
import socket

import pytest

from splice import (
    APIStatusError,
    AsyncClient,
    BadRequestError,
    ConflictError,
    ConnectionLostError,
    MetricsEvent,
    NotFoundError,
    OverloadedError,
    ServerError,
    TextDelta,
    TurnEvent,
)
from splice.async_client import AsyncSession
from splice.transport import Transport
from tests.support.scripted_api import (
    ScriptedApi,
    answer,
    refuse,
    session_json,
    stream,
    turn_events,
    turn_json,
)


class Naps:
    """Sleeping that takes no time and is written down."""

    def __init__(self):
        self.lengths = []

    async def __call__(self, seconds):
        self.lengths.append(seconds)
        await asyncio.sleep(0)


@pytest.fixture
def naps():
    return Naps()


def session_at(api, naps, **options):
    transport = Transport(api.url, sleep=naps, **options)
    return transport, AsyncSession(transport, session_json())


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


async def test_without_a_time_the_pauses_grow(naps):
    api = ScriptedApi(*[refuse(503, "engine_unavailable")] * 3, stream(*turn_events("a")))

    await reply(api, naps)

    least = [0.5, 1.0, 2.0]
    assert all(low <= nap <= 1.25 * low for low, nap in zip(least, naps.lengths, strict=True))


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, BadRequestError),
        (404, NotFoundError),
        (409, ConflictError),
        (413, BadRequestError),
        (429, OverloadedError),
        (500, ServerError),
        (503, ServerError),
        (418, APIStatusError),
    ],
)
async def test_each_status_has_its_error(naps, status, kind):
    api = ScriptedApi(refuse(status, "c", x_should_retry="false"))

    async with api.serving():
        transport, session = session_at(api, naps)
        with pytest.raises(kind) as caught:
            await session.refresh()
        await transport.close()

    assert caught.value.status == status


async def test_an_error_that_is_no_json_still_has_its_status(naps):
    async def page(request):
        from aiohttp import web

        return web.Response(status=400, text="<html>")

    api = ScriptedApi(page)
    async with api.serving():
        transport, session = session_at(api, naps)
        with pytest.raises(BadRequestError, match="Bad Request"):
            await session.refresh()
        await transport.close()


async def test_a_server_that_is_not_there_is_a_lost_connection(naps):
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        transport = Transport(f"http://127.0.0.1:{unused.getsockname()[1]}", sleep=naps)
        with pytest.raises(ConnectionLostError, match="no answer from"):
            await AsyncSession(transport, session_json()).refresh()
        await transport.close()

    assert len(naps.lengths) == 3


async def test_a_session_whose_making_may_have_worked_is_not_made_twice():
    async def vanish(request):
        request.transport.abort()
        await asyncio.sleep(0)

    api = ScriptedApi(vanish)
    async with api.serving(), AsyncClient(api.url) as client:
        with pytest.raises(ConnectionLostError):
            await client.sessions.create()

    assert len(api.requests) == 1


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


async def test_what_a_session_can_do_asks_what_the_protocol_says(naps):
    api = ScriptedApi(
        answer(session_json("conv_2"), status=201),
        answer(session_json(head="resp_1")),
        stream(*turn_events("again")),
        answer(turn_json("x", status="cancelled")),
        answer({"data": [turn_json("x", status="completed")]}),
        answer(turn_json("x", status="completed")),
        answer({"tables": []}),
        stream(*turn_events("a")[3:]),
        answer({"deleted": True}),
    )
    async with api.serving():
        transport, session = session_at(api, naps)
        assert (await session.fork("resp_0", title="b")).id == "conv_2"
        assert (await session.regenerate(temperature=0)).text == "again"
        assert (await session.cancel()).status == "cancelled"
        assert [turn.input_text for turn in await session.turns(whole_tree=True)] == ["hi"]
        assert (await session.turn("resp_1")).session_id == "conv_1"
        assert await session.kv() == {"tables": []}
        assert (await session.resume("resp_1", starting_after=2).final()).text == "a"
        await session.delete()
        await transport.close()

    assert [f"{method} {path}" for method, path, _ in api.requests] == [
        "POST /v1/sessions/conv_1/fork",
        "GET /v1/sessions/conv_1",
        "POST /v1/sessions/conv_1/turns/resp_1/regenerate",
        "POST /v1/sessions/conv_1/turns/resp_1/cancel",
        "GET /v1/sessions/conv_1/turns?all=true",
        "GET /v1/sessions/conv_1/turns/resp_1",
        "GET /v1/sessions/conv_1/kv",
        "GET /v1/sessions/conv_1/turns/resp_1?stream=true&starting_after=2",
        "DELETE /v1/sessions/conv_1",
    ]
    assert api.requests[0][2] == {"at": "resp_0", "title": "b"}
    assert api.requests[2][2]["temperature"] == 0


async def test_regenerating_in_an_empty_session_is_a_mistake_of_the_caller(naps):
    api = ScriptedApi(answer(session_json()))
    async with api.serving():
        transport, session = session_at(api, naps)
        with pytest.raises(ValueError, match="has no turn yet"):
            await session.regenerate()
        await transport.close()


async def test_a_stream_left_early_closes_its_connection(naps):
    api = ScriptedApi(stream(*turn_events("a", "b")))
    async with api.serving():
        transport, session = session_at(api, naps)
        async with session.stream("hi") as reading:
            async for piece in reading.text_stream:
                assert piece == "a"
                break
        await transport.close()

    assert reading.last_sequence_number == 2
