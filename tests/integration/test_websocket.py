"""Conversations over the websocket, on a real socket."""

import asyncio

import pytest
from aiohttp import WSMsgType
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from model.errors import EngineBusyError
from sessions.types import TurnStatus
from tests.support.front_end import receive, receive_until, serving
from tests.support.stuck_peer import stuck_peer


def _create(session, **fields):
    return {"type": "response.create", "conversation": session.id, "input": "hi", **fields}


async def test_a_turn_is_streamed_with_its_place_on_every_event():
    async with serving() as front, front.client.ws_connect("/v1/ws") as ws:
        front.manager.auto_reply = "a b c"
        session = await front.session()
        await ws.send_json(_create(session, temperature=0.2, client_turn_id="c1"))
        frames = await receive_until(ws, "response.completed")

    turn = next(iter(front.manager.turns_by_id))
    assert [f["sequence_number"] for f in frames] == list(range(len(frames)))
    assert {(f["conversation"], f["response_id"]) for f in frames} == {(session.id, turn)}
    assert "".join(f.get("delta", "") for f in frames) == "abc"
    assert frames[-2]["type"] == "splice:metrics"
    assert front.manager.requests[0].params.temperature == 0.2


async def test_several_conversations_share_one_socket():
    async with serving() as front, front.client.ws_connect("/v1/ws") as ws:
        first, second = await front.session(), await front.session()
        await ws.send_json(_create(first))
        await receive_until(ws, "response.content_part.added")
        await ws.send_json(_create(second))
        await receive_until(ws, "response.content_part.added")
        one, two = front.manager.turns_by_id
        front.manager.say(one, "x")
        front.manager.say(two, "y")
        front.manager.say(one, "z")
        deltas = [await receive(ws) for _ in range(3)]

    text = {first.id: "", second.id: ""}
    for frame in deltas:
        text[frame["conversation"]] += frame["delta"]
    assert text == {first.id: "xz", second.id: "y"}


async def test_a_reply_is_resumed_in_its_middle_without_loss_or_repeat():
    async with serving() as front:
        session = await front.session()
        async with front.client.ws_connect("/v1/ws") as ws:
            await ws.send_json(_create(session))
            await receive_until(ws, "response.content_part.added")
            turn = next(iter(front.manager.turns_by_id))
            front.manager.say(turn, "one ")
            seen = [await receive(ws)]
        feed = front.manager.feeds[turn]
        await asyncio.wait_for(feed.unread.wait(), 5)
        assert front.manager.turns_by_id[turn].status is TurnStatus.RUNNING
        front.manager.say(turn, "two ")

        async with front.client.ws_connect("/v1/ws") as ws:
            cursor = seen[-1]["sequence_number"]
            await ws.send_json(
                {"type": "response.resume", "response_id": turn, "starting_after": cursor}
            )
            seen.append(await receive(ws))
            front.manager.say(turn, "three")
            front.manager.end(turn)
            seen += await receive_until(ws, "response.completed")

    assert "".join(f.get("delta", "") for f in seen) == "one two three"
    assert [f["sequence_number"] for f in seen] == list(range(4, 4 + len(seen)))


async def test_resuming_again_moves_the_cursor_and_leaves_one_reader():
    async with serving() as front, front.client.ws_connect("/v1/ws") as ws:
        session = await front.session()
        await ws.send_json(_create(session))
        await receive_until(ws, "response.content_part.added")
        turn = next(iter(front.manager.turns_by_id))
        for _ in range(3):
            await ws.send_json({"type": "response.resume", "response_id": turn})
            frames = await receive_until(ws, "response.content_part.added")
            assert frames[0]["sequence_number"] == 0
        front.manager.say(turn, "once")
        front.manager.end(turn)
        rest = await receive_until(ws, "response.completed")
        await ws.send_json({"type": "ping", "nonce": 1})
        after = await receive(ws)

    assert [f.get("delta") for f in rest].count("once") == 1
    assert after == {"type": "pong", "nonce": 1}


async def test_a_cancelled_turn_ends_on_whoever_reads_it():
    async with serving() as front:
        session = await front.session()
        async with (
            front.client.ws_connect("/v1/ws") as reader,
            front.client.ws_connect("/v1/ws") as other,
        ):
            await reader.send_json(_create(session))
            await receive_until(reader, "response.content_part.added")
            turn = next(iter(front.manager.turns_by_id))
            await other.send_json({"type": "response.cancel", "response_id": turn})
            frames = await receive_until(reader, "response.incomplete")

    assert frames[-1]["response"]["status"] == "cancelled"


async def test_a_reply_is_regenerated():
    async with serving() as front, front.client.ws_connect("/v1/ws") as ws:
        front.manager.auto_reply = "x"
        session = await front.session()
        await ws.send_json(_create(session, seed=5, temperature=0.4))
        first = (await receive_until(ws, "response.completed"))[-1]["response"]
        await ws.send_json({"type": "response.regenerate", "response_id": first["id"]})
        second = (await receive_until(ws, "response.completed"))[-1]["response"]

    assert second["id"] != first["id"]
    assert second["previous_response_id"] == first["previous_response_id"]
    params = front.manager.requests[-1].params
    assert (params.temperature, params.seed) == (0.4, None)


@pytest.mark.parametrize(
    ("text", "param"),
    [
        ("{", None),
        ("[" * 100_000, None),
        ("[]", None),
        ('{"type": "response.steer"}', "type"),
        ('{"type": "response.create", "conversation": "conv_1", "input": "x", "topp": 1}', "topp"),
        ('{"type": "ping", "nonce": {}}', "nonce"),
    ],
)
async def test_a_frame_that_can_not_be_read_is_answered_and_the_socket_stays(text, param):
    async with serving() as front, front.client.ws_connect("/v1/ws") as ws:
        await ws.send_str(text)
        frame = await receive(ws)
        assert (frame["type"], frame["status"]) == ("error", 400)
        assert frame["error"]["code"] == "invalid_request"
        assert frame["error"]["param"] == param
        await ws.send_json({"type": "ping", "nonce": "n"})
        assert await receive(ws) == {"type": "pong", "nonce": "n"}


async def test_a_binary_frame_is_answered_and_the_socket_stays():
    async with serving() as front, front.client.ws_connect("/v1/ws") as ws:
        await ws.send_bytes(b"{}")
        assert (await receive(ws))["error"]["message"] == "frames must be text"
        await ws.send_json({"type": "ping"})
        assert (await receive(ws))["type"] == "pong"


async def test_an_error_carries_the_event_id_of_its_frame():
    async with serving() as front, front.client.ws_connect("/v1/ws") as ws:
        session = await front.session()
        front.manager.raises = EngineBusyError("too many wait")
        await ws.send_json(_create(session, event_id="e1"))
        busy = await receive(ws)
        await ws.send_json({"type": "response.resume", "response_id": "resp_0", "event_id": "e2"})
        missing = await receive(ws)
        await ws.send_json({"type": "nonsense", "event_id": "e3"})
        unknown = await receive(ws)

    assert (busy["event_id"], busy["status"], busy["error"]["code"]) == ("e1", 429, "engine_busy")
    assert (missing["event_id"], missing["error"]["code"]) == ("e2", "turn_not_found")
    assert unknown["event_id"] == "e3"


async def test_a_bug_in_one_answer_leaves_the_others_alone():
    async with serving() as front, front.client.ws_connect("/v1/ws") as ws:
        session, other = await front.session(), await front.session()
        await ws.send_json(_create(session))
        await receive_until(ws, "response.content_part.added")
        front.manager.raises = ZeroDivisionError("secret")
        await ws.send_json(_create(other))
        frame = await receive(ws)
        turn = next(iter(front.manager.turns_by_id))
        front.manager.say(turn, "goes on")
        delta = await receive(ws)

    assert (frame["status"], frame["error"]["code"]) == (500, "internal")
    assert "secret" not in frame["error"]["message"]
    assert delta["delta"] == "goes on"


async def test_a_socket_reads_only_so_many_replies_at_once():
    async with serving(max_streams=2) as front, front.client.ws_connect("/v1/ws") as ws:
        for _ in range(2):
            await ws.send_json(_create(await front.session()))
            await receive_until(ws, "response.content_part.added")
        await ws.send_json(_create(await front.session(), event_id="e"))
        frame = await receive(ws)
        turn = next(iter(front.manager.turns_by_id))
        front.manager.end(turn)
        await receive_until(ws, "response.completed")
        await ws.send_json(_create(await front.session()))
        frames = await receive_until(ws, "response.content_part.added")

    assert (frame["error"]["code"], frame["event_id"]) == ("too_many_streams", "e")
    assert frames[0]["type"] == "response.created"


async def test_a_socket_that_reads_all_it_may_can_still_cancel():
    async with serving(max_streams=1) as front, front.client.ws_connect("/v1/ws") as ws:
        await ws.send_json(_create(await front.session()))
        await receive_until(ws, "response.content_part.added")
        turn = next(iter(front.manager.turns_by_id))
        await ws.send_json({"type": "response.cancel", "response_id": turn})
        frames = await receive_until(ws, "response.incomplete")

    assert frames[-1]["response"]["status"] == "cancelled"


async def test_a_frame_that_is_too_large_closes_with_1009():
    async with serving(max_body_bytes=1000) as front, front.client.ws_connect("/v1/ws") as ws:
        await ws.send_str('"' + "x" * 5000 + '"')
        message = await ws.receive(timeout=5)

    assert (message.type, message.data) == (WSMsgType.CLOSE, 1009)


async def test_a_stuck_reader_is_dropped_within_its_deadline_and_delays_nobody():
    async with serving(send_timeout_s=0.4, outbox_size=8) as front:
        stuck, lively = await front.session(), await front.session()
        async with (
            stuck_peer(front.port) as peer,
            front.client.ws_connect("/v1/ws") as ws,
        ):
            await peer.send(_create(stuck))
            await asyncio.wait_for(front.manager.submitted.wait(), 5)
            stuck_turn = next(iter(front.manager.turns_by_id))
            await ws.send_json(_create(lively))
            await receive_until(ws, "response.content_part.added")
            lively_turn = list(front.manager.turns_by_id)[1]
            for _ in range(40):
                front.manager.say(stuck_turn, "x" * 400_000)
            feed = front.manager.feeds[stuck_turn]

            began = asyncio.get_running_loop().time()
            num_deltas = 0
            while not feed.unread.is_set():
                front.manager.say(lively_turn, "y")
                frame = await receive(ws)
                assert frame["delta"] == "y"
                num_deltas += 1
            waited = asyncio.get_running_loop().time() - began
            num_bytes = await asyncio.wait_for(peer.read_to_the_end(), 5)

        assert num_bytes < 40 * 400_000 / 2
        assert num_deltas > 50
        assert waited < 5
        assert front.manager.turns_by_id[stuck_turn].status is TurnStatus.RUNNING
        async with front.client.get("/metrics") as answer:
            assert 'splice_slow_readers_total{transport="websocket"} 1.0' in await answer.text()


async def test_a_stuck_reader_of_a_stream_is_dropped_as_well():
    async with serving(send_timeout_s=0.3) as front:
        session = await front.session()
        path = f"/v1/sessions/{session.id}/turns"
        stream = await front.client.post(path, json={"input": "hi", "stream": True})
        turn = next(iter(front.manager.turns_by_id))
        for _ in range(40):
            front.manager.say(turn, "x" * 400_000)
        # aiohttp's client stops reading its socket when nobody takes what has come.
        await asyncio.wait_for(front.manager.feeds[turn].unread.wait(), 5)
        stream.close()
        async with front.client.get("/metrics") as answer:
            assert 'splice_slow_readers_total{transport="sse"} 1.0' in await answer.text()


async def test_a_stopping_server_says_goodbye_with_1012_after_what_was_queued():
    async with serving() as front, front.client.ws_connect("/v1/ws") as ws:
        front.manager.auto_reply = "all of it"
        session = await front.session()
        await ws.send_json(_create(session))
        await receive(ws)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(front.client.server.close())
            frames = await receive_until(ws, "response.completed")
            message = await ws.receive(timeout=5)

    assert "".join(f.get("delta", "") for f in frames) == "allofit"
    assert (message.type, message.data) == (WSMsgType.CLOSE, 1012)


async def test_a_stuck_reader_does_not_hold_up_a_stopping_server():
    async with serving(send_timeout_s=0.2, outbox_size=2) as front:
        session = await front.session()
        async with stuck_peer(front.port) as peer:
            await peer.send(_create(session))
            await asyncio.wait_for(front.manager.submitted.wait(), 5)
            turn = next(iter(front.manager.turns_by_id))
            for _ in range(40):
                front.manager.say(turn, "x" * 400_000)
            await asyncio.wait_for(front.client.server.close(), 5)
            assert await asyncio.wait_for(peer.read_to_the_end(), 5) < 40 * 400_000


async def test_a_draining_server_opens_no_socket():
    async with serving() as front:
        front.readiness.draining()
        status, body = await front.call("GET", "/v1/ws")

    assert (status, body["error"]["code"]) == (503, "draining")


WORDS = st.sampled_from(
    ["type", "conversation", "response_id", "input", "starting_after", "event_id", "nonce", "stop"]
)
VALUES = st.sampled_from(
    ["response.create", "response.cancel", "response.resume", "ping", "resp_1", "conv_1", "", -1, 7]
)
JSON = st.recursive(
    VALUES | st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=5),
    max_leaves=8,
)


async def test_whatever_json_comes_is_answered_and_the_socket_lives():
    values: list = []

    @settings(max_examples=300, database=None, suppress_health_check=list(HealthCheck))
    @given(JSON | st.dictionaries(WORDS, VALUES | JSON, min_size=1))
    def collect(value):
        values.append(value)

    collect()
    async with serving(max_frames_per_s=10**6) as front, front.client.ws_connect("/v1/ws") as ws:
        front.manager.auto_reply = "x"
        for value in values:
            await ws.send_json(value)
            await ws.send_json({"type": "ping", "nonce": "probe"})
            frame = await receive(ws)
            while frame != {"type": "pong", "nonce": "probe"}:
                assert frame["type"] in ("error", "pong") or "response_id" in frame
                if frame["type"] == "error":
                    assert frame["status"] in (400, 404), frame
                frame = await receive(ws)
