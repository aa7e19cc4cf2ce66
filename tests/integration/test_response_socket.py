"""Responses over a websocket: lanes, preparation, forks, limits and how it ends."""

import asyncio

import openai
import pytest

from app.openai import lanes
from model.messages import FinishReason
from tests.support.fake_engine import FakeReply
from tests.support.front_end import receive
from tests.support.whole_front import serving_whole

ENDS = ("response.completed", "response.incomplete", "response.failed", "error")


@pytest.fixture
async def ws(front):
    async with front.client.ws_connect("/v1/responses") as ws:
        yield ws


async def ask(ws, text="hello", **fields):
    body = {"type": "response.create", "input": text, **fields}
    await ws.send_json({name: value for name, value in body.items() if value is not None})


async def ended(ws):
    """The frames up to a response's end, or an error."""
    frames = [await receive(ws)]
    while frames[-1]["type"] not in ENDS:
        frames.append(await receive(ws))
    return frames


async def made(ws, text="hello", **fields):
    """The response, when it has ended."""
    await ask(ws, text, **fields)
    return (await ended(ws))[-1]["response"]


async def test_openais_client_speaks_with_it(front):
    async with (
        openai.AsyncOpenAI(base_url=f"{front.base_url}/v1", api_key="any") as client,
        client.responses.connect() as connection,
    ):
        await connection.response.create(model="default", input="Where?", stream=True)
        first = [event async for event in _until_end(connection)]
        await connection.response.create(
            input="More?", previous_response_id=first[-1].response.id, store=False
        )
        second = [event async for event in _until_end(connection)]

    assert [e.sequence_number for e in first] == list(range(len(first)))
    assert first[-1].response.output_text == "Hello"
    assert second[-1].response.usage.input_tokens_details.cached_tokens > 0


async def _until_end(connection):
    async for event in connection:
        yield event
        if event.type in ENDS:
            return


async def test_every_event_names_its_lane_and_the_default_lane_none(ws):
    await ask(ws, stream_id="a")
    named = await ended(ws)
    await ask(ws)
    unnamed = await ended(ws)

    assert {frame["stream_id"] for frame in named} == {"a"}
    assert not [frame for frame in unnamed if "stream_id" in frame]


async def test_a_lane_keeps_order_and_lanes_run_beside_each_other(front, ws):
    front.engine.replies.extend([FakeReply(holds_after=1), FakeReply(), FakeReply()])
    await ask(ws, "slow", stream_id="a")
    await ask(ws, "behind", stream_id="a")
    created = await receive(ws)
    await front.engine.held(created["response"]["id"])
    await ask(ws, "beside", stream_id="b")

    others = []
    while not others or others[-1]["type"] != "response.completed":
        others.append(await receive(ws))
    assert others[-1]["stream_id"] == "b"
    front.engine.let_go()
    first, second = await ended(ws), await ended(ws)
    assert [f[-1]["response"]["input"][0]["content"][0]["text"] for f in (first, second)] == [
        "slow",
        "behind",
    ]


async def test_a_prepared_state_is_a_parent_and_has_no_output(front, ws):
    front.engine.replies.append(FakeReply(pieces=(), reason=FinishReason.LENGTH))
    warm = await made(ws, "a long text", instructions="Be brief.", generate=False)
    first = await made(ws, "one", previous_response_id=warm["id"])
    other = await made(ws, "two", previous_response_id=warm["id"], stream_id="b")

    assert (warm["status"], warm["output"], warm["usage"]["output_tokens"]) == ("completed", [], 0)
    assert first["instructions"] == other["instructions"] == "Be brief."
    prepared, one, two = front.engine.requests
    assert prepared.params.max_output_tokens == 0
    whole = await made(
        ws,
        [{"role": "user", "content": "a long text"}, {"role": "user", "content": "two"}],
        instructions="Be brief.",
    )
    assert two.token_ids == front.engine.requests[-1].token_ids
    assert one.num_known_tokens > 0
    assert one.diverged_at is None
    assert whole["status"] == "completed"


async def test_a_lanes_newest_response_is_followed_though_it_is_not_stored(front, ws):
    first = await made(ws, "one", store=False)
    second = await made(ws, "two", store=False, previous_response_id=first["id"])
    fork = await made(
        ws, "three", store=False, previous_response_id=second["id"], stream_id="other"
    )

    assert [r["conversation"] for r in (first, second, fork)] == [None] * 3
    one, two, three = (request.token_ids for request in front.engine.requests)
    assert two[: len(one)] == one
    assert three[: len(two)] == two
    assert (await front.call("GET", "/v1/sessions?listed=false"))[1]["data"] == []


async def test_only_the_newest_is_kept_and_only_here(front, ws):
    first = await made(ws, "one", store=False)
    await made(ws, "two", store=False)

    await ask(ws, "three", previous_response_id=first["id"])
    error = (await ended(ws))[-1]
    assert error["error"]["code"] == "previous_response_not_found"
    assert error["error"]["param"] == "previous_response_id"
    assert error["status"] == 400

    newest = await made(ws, "four", store=False)
    async with front.client.ws_connect("/v1/responses") as other:
        await ask(other, "five", previous_response_id=newest["id"])
        assert (await ended(other))[-1]["error"]["code"] == "previous_response_not_found"


async def test_a_stored_response_behind_one_that_is_not_has_all_that_was_said(front, ws):
    first = await made(ws, "one", store=False)
    second = await made(ws, "two", previous_response_id=first["id"])

    texts = [item["content"][0]["text"] for item in second["input"]]
    assert texts == ["one", "Hello", "two"]
    assert (await front.call("GET", f"/v1/responses/{second['id']}"))[0] == 200


@pytest.mark.parametrize(("lane", "is_there"), [(None, False), ("other", True)])
async def test_a_failed_continuation_evicts_its_parent_and_a_failed_fork_does_not(
    ws, lane, is_there
):
    first = await made(ws, "one", store=False)
    await ask(ws, "x" * 9000, store=False, previous_response_id=first["id"], stream_id=lane)
    assert (await ended(ws))[-1]["error"]["code"] == "context_length_exceeded"

    await ask(ws, "two", store=False, previous_response_id=first["id"])
    assert ((await ended(ws))[-1]["type"] == "response.completed") is is_there


async def test_the_loss_of_the_socket_ends_what_runs_and_keeps_what_it_said(front):
    front.engine.default = FakeReply(pieces=("a", "b"), holds_after=1)
    async with front.client.ws_connect("/v1/responses") as ws:
        await ask(ws, store=False, stream_id="a")
        await ask(ws, stream_id="b")
        await ask(ws, stream_id="c", background=True)
        ids = {}
        while len(ids) < 3:
            frame = await receive(ws)
            if frame["type"] == "response.created":
                ids[frame["stream_id"]] = frame["response"]["id"]
        for response_id in ids.values():
            await front.engine.held(response_id)

    async with asyncio.timeout(5):
        attached = await _read(front, ids["b"])
        front.engine.let_go()
        detached = await _read(front, ids["c"])
    assert (attached["status"], attached["output"][0]["content"][0]["text"]) == ("cancelled", "a")
    assert (detached["status"], detached["output"][0]["content"][0]["text"]) == ("completed", "ab")


async def _read(front, response_id):
    """The stored response, when it has ended."""
    path = f"/v1/responses/{response_id}?stream=true"
    async with front.client.get(path) as answer:
        await answer.read()
    return (await front.call("GET", f"/v1/responses/{response_id}"))[1]


@pytest.mark.parametrize("is_stored", [True, False])
async def test_a_response_is_cancelled_by_a_frame(front, ws, is_stored):
    front.engine.default = FakeReply(pieces=("a", "b"), holds_after=1)
    await ask(ws, store=is_stored)
    created = await receive(ws)
    response_id = created["response"]["id"]
    await front.engine.held(response_id)

    await ws.send_json({"type": "response.cancel", "response_id": response_id})

    last = (await ended(ws))[-1]
    assert (last["type"], last["response"]["status"]) == ("response.incomplete", "cancelled")


async def test_steering_is_answered_as_not_supported(ws):
    steer = {"type": "response.steer", "previous_response_id": "resp_1", "input": "stop"}
    await ws.send_json({**steer, "stream_id": "a"})

    answer = await receive(ws)
    assert answer["type"] == "response.steer.failed"
    assert answer["error"]["code"] == "steering_not_supported"
    assert answer["steer"] == {"input": "stop", "previous_response_id": "resp_1"}
    assert answer["stream_id"] == "a"


async def test_a_socket_has_so_many_named_lanes(ws):
    for number in range(lanes.MAX_LANES):
        assert (await made(ws, stream_id=f"lane-{number}"))["status"] == "completed"

    await ask(ws, stream_id="one-more")
    error = (await ended(ws))[-1]
    assert error["error"]["code"] == "websocket_stream_limit_reached"
    assert error["stream_id"] == "one-more"
    assert (await made(ws, stream_id="lane-0"))["status"] == "completed"
    assert (await made(ws))["status"] == "completed"


@pytest.mark.parametrize("name", ["", "a b", "x" * 257, "ä"])
async def test_a_lanes_name_that_is_none_is_refused(ws, name):
    await ask(ws, stream_id=name)

    assert (await ended(ws))[-1]["error"]["code"] == "invalid_stream_id"


async def test_so_many_responses_run_and_the_others_wait(front, ws):
    front.engine.default = FakeReply(pieces=("a", "b"), holds_after=1)
    for number in range(lanes.MAX_ACTIVE + 1):
        await ask(ws, stream_id=f"lane-{number}")
    created = []
    while len(created) < lanes.MAX_ACTIVE:
        frame = await receive(ws)
        if frame["type"] == "response.created":
            created.append(frame["response"]["id"])
    for response_id in created:
        await front.engine.held(response_id)
    assert len(front.engine.requests) == lanes.MAX_ACTIVE

    front.engine.let_go()
    num_ended = 0
    while num_ended < lanes.MAX_ACTIVE + 1:
        num_ended += (await receive(ws))["type"] == "response.completed"


async def test_a_socket_that_is_too_old_takes_nothing_more_and_is_closed(tmp_path):
    async with (
        serving_whole(tmp_path, response_socket_s=0.0) as front,
        front.client.ws_connect("/v1/responses") as ws,
    ):
        error = await receive(ws)
        assert error["error"]["code"] == "websocket_connection_limit_reached"
        await ws.receive()
        assert ws.close_code == 1001


@pytest.mark.parametrize(
    ("frame", "param"),
    [
        ({"type": "response.create", "input": "x", "modalities": ["audio"]}, "modalities"),
        ({"type": "response.create", "input": "x", "temperature": "hot"}, "temperature"),
        ({"type": "nothing"}, "type"),
        ({"type": "response.cancel"}, "response_id"),
    ],
)
async def test_a_frame_that_cannot_be_honoured_is_answered_and_the_socket_stays(ws, frame, param):
    await ws.send_json(frame)

    error = await receive(ws)
    assert (error["type"], error["status"], error["error"]["param"]) == ("error", 400, param)
    assert (await made(ws))["status"] == "completed"


async def test_without_an_upgrade_the_address_takes_only_posts(front):
    async with front.client.get("/v1/responses") as answer:
        assert answer.status == 405
        assert "POST" in answer.headers["Allow"]
