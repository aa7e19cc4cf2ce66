"""What a session's handle can do, against a server that follows a script."""

import pytest

from app.protocol import SessionBody, SessionPatch
from splice import BadRequestError, ConnectionLostError, Usage
from splice.types import SessionChanges, SessionFields
from tests.support.scripted_api import (
    Naps,
    ScriptedApi,
    answer,
    refuse,
    session_at,
    session_json,
    stream,
    turn_events,
    turn_json,
)

ITEMS = [
    {"id": "msg_1", "type": "message", "role": "user", "content": "Weather?"},
    {"id": "fc_1", "type": "function_call", "call_id": "c", "name": "look", "arguments": "{}"},
    {"id": "fco_1", "type": "function_call_output", "call_id": "c", "output": "rain"},
    {"id": "rs_1", "type": "reasoning", "content": [{"type": "reasoning_text", "text": "wet"}]},
    {"id": "x_1", "type": "hologram", "shape": "cube"},
]


@pytest.fixture
def naps():
    return Naps()


@pytest.fixture
async def scripted(naps):
    """A session on a server with that script, and the server."""
    closing = []

    async def start(*answers):
        api = ScriptedApi(*answers)
        serving = api.serving()
        await serving.__aenter__()
        transport, session = session_at(api, naps)
        closing.append((transport, serving))
        return api, session

    yield start
    for transport, serving in closing:
        await transport.close()
        await serving.__aexit__(None, None, None)


def asked(api):
    return [f"{method} {path}" for method, path, _ in api.requests]


async def test_what_a_session_can_do_asks_what_the_protocol_says(scripted):
    api, session = await scripted(
        answer(session_json("conv_2"), status=201),
        answer(session_json(head="resp_1")),
        stream(*turn_events("again")),
        answer(session_json(active=["resp_1"])),
        answer(turn_json("x", status="cancelled")),
        answer({"data": [turn_json("x", status="completed")]}),
        answer(turn_json("x", status="completed")),
        answer({"tables": []}),
        answer({"whole": True}),
        answer({"parked": True}),
        answer(session_json(head=None)),
        stream(*turn_events("a")[3:]),
        answer({"deleted": True}),
    )

    assert (await session.fork("resp_0", title="b")).id == "conv_2"
    assert (await session.regenerate(temperature=0)).text == "again"
    assert [turn.status for turn in await session.stop()] == ["cancelled"]
    assert [turn.input_text for turn in await session.turns(whole_tree=True)] == ["hi"]
    assert (await session.turn("resp_1")).session_id == "conv_1"
    assert await session.kv() == {"tables": []}
    assert await session.warm(deadline_s=2) == {"whole": True}
    assert await session.park("disk")
    assert (await session.move_head(None)).head is None
    assert (await session.resume("resp_1", starting_after=2).final()).text == "a"
    await session.delete()

    assert asked(api) == [
        "POST /v1/sessions/conv_1/fork",
        "GET /v1/sessions/conv_1",
        "POST /v1/sessions/conv_1/turns/resp_1/regenerate",
        "GET /v1/sessions/conv_1",
        "POST /v1/sessions/conv_1/turns/resp_1/cancel",
        "GET /v1/sessions/conv_1/turns?all=true",
        "GET /v1/sessions/conv_1/turns/resp_1",
        "GET /v1/sessions/conv_1/kv",
        "POST /v1/sessions/conv_1/warm",
        "POST /v1/sessions/conv_1/park",
        "POST /v1/sessions/conv_1/head",
        "GET /v1/sessions/conv_1/turns/resp_1?stream=true&starting_after=2",
        "DELETE /v1/sessions/conv_1",
    ]
    bodies = [body for _, _, body in api.requests]
    assert bodies[0] == {"at": "resp_0", "title": "b"}
    assert bodies[2]["temperature"] == 0
    assert bodies[8:11] == [{"deadline_s": 2}, {"tier": "disk"}, {"turn": None}]


async def test_an_edited_question_stands_beside_the_old_one(scripted):
    old = {**turn_json("x", status="completed"), "previous_response_id": "resp_0"}
    api, session = await scripted(
        answer(session_json(head="resp_1")), answer(old), stream(*turn_events("b"))
    )

    turn = await session.edit("what else?", temperature=0)

    assert turn.text == "b"
    body = api.requests[-1][2]
    assert (body["input"], body["parent"], body["temperature"]) == ("what else?", "resp_0", 0)


async def test_regenerating_in_an_empty_session_is_a_mistake_of_the_caller(scripted):
    _, session = await scripted(answer(session_json()))

    with pytest.raises(ValueError, match="has no turn yet"):
        await session.regenerate()


async def test_a_stream_left_early_closes_its_connection(scripted):
    _, session = await scripted(stream(*turn_events("a", "b")))

    async with session.stream("hi") as reading:
        async for piece in reading.text_stream:
            assert piece == "a"
            break

    assert reading.last_sequence_number == 2


async def test_a_stream_that_was_closed_midway_has_no_final_turn(scripted):
    _, session = await scripted(stream(*turn_events("a", "b")))
    reading = session.stream("hi")
    await anext(reading)
    await reading.close()

    with pytest.raises(ConnectionLostError, match="closed before the turn ended"):
        await reading.final()


async def test_a_stream_stops_the_turn_that_it_reads(scripted):
    events = turn_events("a", "b")
    api, session = await scripted(
        stream(*events), answer(turn_json("a", status="cancelled")), answer({})
    )
    async with session.stream("hi") as reading:
        await anext(reading)
        stopped = await reading.stop()

    assert stopped.status == "cancelled"
    assert asked(api)[1:] == ["POST /v1/sessions/conv_1/turns/resp_1/cancel"]


async def test_a_turn_is_stopped_though_none_of_its_events_was_read(scripted):
    other = {**turn_json(), "id": "resp_2", "splice": {"client_turn_id": "other"}}
    mine = {**turn_json(), "id": "resp_3", "splice": {"client_turn_id": "mine"}}
    api, session = await scripted(
        answer(session_json(active=["resp_2", "resp_3"])),
        answer(other),
        answer(mine),
        answer({**mine, "status": "cancelled"}),
    )

    stopped = await session.stream("hi", client_turn_id="mine").stop()

    assert stopped.id == "resp_3"
    assert asked(api)[-1] == "POST /v1/sessions/conv_1/turns/resp_3/cancel"


async def test_a_turn_that_never_began_needs_no_stop(scripted):
    _, session = await scripted(answer(session_json(active=[])))

    assert await session.stream("hi").stop() is None


async def test_the_reader_of_a_stopped_stream_gets_its_end(scripted):
    stopped = turn_json("a", status="cancelled")
    last = {"type": "response.incomplete", "sequence_number": 3, "response": stopped}
    api, session = await scripted(stream(*turn_events("a")[:3]), answer(stopped), stream(last))
    reading = session.stream("hi")
    first = await anext(reading)
    await reading.stop()
    rest = [event async for event in reading]

    assert [first.sequence_number, *(e.sequence_number for e in rest)] == [0, 1, 2, 3]
    assert reading.turn.status == "cancelled"
    assert asked(api)[-1].endswith("starting_after=2")


async def test_the_history_is_read_page_by_page_and_oldest_first(scripted):
    newest_first = ITEMS[::-1]
    api, session = await scripted(
        answer({"data": newest_first[:3], "has_more": True, "last_id": "fco_1"}),
        answer({"data": newest_first[3:], "has_more": False, "last_id": "msg_1"}),
    )

    items = await session.history()

    assert [item.raw for item in items] == ITEMS
    assert [item.text for item in items] == ["Weather?", "", "rain", "wet", ""]
    assert (items[1].name, items[1].call_id, items[1].arguments) == ("look", "c", "{}")
    assert api.requests[1][1].endswith("/items?order=desc&limit=100&after=fco_1")


async def test_a_limit_takes_the_newest_and_asks_for_no_more(scripted):
    api, session = await scripted(
        answer({"data": ITEMS[:1:-1], "has_more": True, "last_id": "fco_1"})
    )

    assert [item.id for item in await session.history(limit=2)] == ["rs_1", "x_1"]
    assert await session.history(limit=0) == []
    assert [request[1] for request in api.requests] == [
        "/v1/conversations/conv_1/items?order=desc&limit=2"
    ]


async def test_items_go_twenty_at_a_time(scripted):
    def added(request):
        async def echo():
            items = (await request.json())["items"]
            named = [{**item, "id": f"msg_{item['content']}"} for item in items]
            return await answer({"data": named})(request)

        return echo()

    api, session = await scripted(added, added, added)
    items = [{"role": "user", "content": str(number)} for number in range(41)]

    placed = await session.add(items)

    assert [item.text for item in placed] == [str(number) for number in range(41)]
    assert [len(body["items"]) for _, _, body in api.requests] == [20, 20, 1]
    assert len({headers["Idempotency-Key"] for headers in api.headers}) == 3


async def test_usage_is_of_all_turns_together(scripted):
    usage = {
        "input_tokens": 10,
        "input_tokens_details": {"cached_tokens": 4},
        "output_tokens": 3,
        "output_tokens_details": {"reasoning_tokens": 1},
    }
    turn = {**turn_json("a", status="completed"), "usage": usage}
    _, session = await scripted(answer({"data": [turn, turn, turn_json()]}))

    assert await session.usage() == Usage(
        input_tokens=20, cached_tokens=8, output_tokens=6, reasoning_tokens=2
    )


async def test_a_tier_that_is_not_there_is_refused(scripted):
    _, session = await scripted(refuse(400, "invalid_request", x_should_retry="false"))

    with pytest.raises(BadRequestError):
        await session.park("cpu")


@pytest.mark.parametrize(
    ("ours", "theirs"), [(SessionFields, SessionBody), (SessionChanges, SessionPatch)]
)
def test_a_session_may_be_given_whatever_the_server_takes(ours, theirs):
    assert set(ours.__annotations__) == set(theirs.model_fields)
