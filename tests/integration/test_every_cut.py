"""A response that is left, cancelled or resumed at any of its events: one sequence without a gap,
one text."""

import asyncio

import orjson
import pytest

from tests.support.fake_engine import FakeReply
from tests.support.front_end import receive
from tests.support.open_responses import judge_sse, judge_stream

TOOL = {"type": "function", "name": "look", "parameters": {"type": "object"}}
PIECES = (
    "<think>",
    "hm",
    "</think>\n\n",
    "I ",
    "look.\n",
    '<tool_call>\n{"name": "look", ',
    '"arguments": {"a"',
    ": 1}}\n</tool_call>",
)


async def events_of(front, response_id, after=-1):
    path = f"/v1/responses/{response_id}?stream=true&starting_after={after}"
    async with front.client.get(path) as answer:
        return judge_sse(await answer.read())


async def begin(front, pieces=PIECES, holds_after=None):
    front.engine.replies.append(FakeReply(pieces=pieces, holds_after=holds_after))
    body = {"input": "x", "background": True, "tools": [TOOL]}
    return (await front.call("POST", "/v1/responses", json=body))[1]["id"]


def said(events):
    """The text of the deltas, by item."""
    texts = {}
    for event in events:
        if event["type"].endswith(".delta"):
            texts[event["item_id"]] = texts.get(event["item_id"], "") + event["delta"]
    return texts


def shown(response):
    """The text of the items."""
    texts = {}
    for item in response["output"]:
        text = item["arguments"] if "arguments" in item else item["content"][0]["text"]
        if text:
            texts[item["id"]] = text
    return texts


async def test_resumed_behind_any_event_it_goes_on_with_the_next(front):
    response_id = await begin(front, holds_after=4)
    await front.engine.held(response_id)
    # As many readers as there may be events so far, each behind another, live.
    readers = [asyncio.create_task(events_of(front, response_id, after)) for after in range(-1, 12)]
    await asyncio.sleep(0)
    front.engine.let_go()
    live = await asyncio.gather(*readers)

    whole = await events_of(front, response_id)
    judge_stream(whole)
    assert said(whole) == shown(whole[-1]["response"])
    assert [item["type"] for item in whole[-1]["response"]["output"]] == [
        "reasoning",
        "message",
        "function_call",
    ]
    for after, events in enumerate(live, -1):
        assert events == whole[after + 1 :]
    for after in range(-1, len(whole) - 1):
        assert await events_of(front, response_id, after) == whole[after + 1 :]


@pytest.mark.parametrize("num_pieces", range(len(PIECES) + 1))
async def test_cancelled_behind_any_piece_it_keeps_what_it_said(front, num_pieces):
    response_id = await begin(front, holds_after=num_pieces)
    await front.engine.held(response_id)
    reading = asyncio.create_task(events_of(front, response_id))
    await front.call("POST", f"/v1/responses/{response_id}/cancel")

    live, stored = await reading, await events_of(front, response_id)

    assert live == stored
    judge_stream(live)
    last = live[-1]
    assert (last["type"], last["response"]["status"]) == ("response.incomplete", "cancelled")
    assert said(live) == shown(last["response"])
    for after in range(-1, len(live) - 1):
        assert await events_of(front, response_id, after) == live[after + 1 :]


async def test_left_behind_any_event_it_ends_without_a_gap(front):
    whole = await events_of(front, await begin(front))
    for number in range(len(whole)):
        front.engine.replies.append(FakeReply(pieces=PIECES))
        body = {"input": "x", "stream": True, "tools": [TOOL]}
        async with front.client.post("/v1/responses", json=body) as answer:
            first = await answer.content.readuntil(b"\n\n")
            response_id = orjson.loads(first.partition(b"data: ")[2])["response"]["id"]
            for _ in range(number):
                await answer.content.readuntil(b"\n\n")
            answer.close()
        events = await events_of(front, response_id)
        judge_stream(events)
        assert events[-1]["type"] in ("response.completed", "response.incomplete")
        assert said(events) == shown(events[-1]["response"])


async def test_lost_behind_any_event_and_resumed_nothing_is_missing_and_nothing_told_twice(front):
    whole = await events_of(front, await begin(front))
    texts = [text for _, text in sorted(said(whole).items())]
    for number in range(len(whole) - 1):  # behind the last, it is told again
        front.engine.replies.append(FakeReply(pieces=PIECES))
        body = {"input": "x", "stream": True, "background": True, "tools": [TOOL]}
        async with front.client.post("/v1/responses", json=body) as answer:
            seen = []
            for _ in range(number + 1):
                frame = await answer.content.readuntil(b"\n\n")
                seen.append(orjson.loads(frame.partition(b"data: ")[2]))
            answer.close()
        response_id = seen[0]["response"]["id"]
        seen += await events_of(front, response_id, seen[-1]["sequence_number"])
        judge_stream(seen)
        assert sorted(said(seen).values()) == sorted(texts)


@pytest.mark.parametrize("is_background", [False, True])
async def test_a_socket_lost_behind_any_event_leaves_one_sequence(front, is_background):
    whole = await events_of(front, await begin(front))
    num_events = len(whole) - (not is_background)  # then nothing is queued
    for number in range(num_events - 1):  # behind the last, it is told again
        front.engine.replies.append(FakeReply(pieces=PIECES))
        body = {"input": "x", "background": is_background, "tools": [TOOL]}
        async with front.client.ws_connect("/v1/responses") as ws:
            await ws.send_json({"type": "response.create", **body})
            seen = [await receive(ws) for _ in range(number + 1)]
        response_id = seen[0]["response"]["id"]
        seen += await events_of(front, response_id, seen[-1]["sequence_number"])
        last = judge_stream(seen)
        assert last["status"] in (("completed",) if is_background else ("completed", "cancelled"))
        assert said(seen) == shown(last)


@pytest.mark.parametrize("num_pieces", range(len(PIECES) + 1))
async def test_cancelled_by_a_frame_behind_any_piece_it_keeps_what_it_said(front, num_pieces):
    front.engine.replies.append(FakeReply(pieces=PIECES, holds_after=num_pieces))
    async with front.client.ws_connect("/v1/responses") as ws:
        await ws.send_json({"type": "response.create", "input": "x", "tools": [TOOL]})
        seen = [await receive(ws)]
        response_id = seen[0]["response"]["id"]
        await front.engine.held(response_id)
        await ws.send_json({"type": "response.cancel", "response_id": response_id})
        while not seen[-1]["type"].startswith("response.incomplete"):
            seen.append(await receive(ws))

    assert judge_stream(seen)["status"] == "cancelled"
    assert seen == await events_of(front, response_id)
