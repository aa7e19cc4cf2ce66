"""What a socket may do, and how it is told that it did too much: every close code of the server."""

import asyncio
import re
from pathlib import Path

import pytest
from aiohttp import ClientSession, WSMsgType

from app import connections
from app.keys import METRICS
from sessions.key_ring import FRESH_S
from tests.support.front_end import receive, receive_until, serving
from tests.support.stuck_peer import stuck_peer

ROOT = Path(__file__).resolve().parents[2]
TOO_LARGE = 1009  # aiohttp's own


async def closed_with(ws):
    """The code that the server closes with; frames before that are passed over."""
    while True:
        message = await ws.receive(timeout=5)
        if message.type is not WSMsgType.TEXT:
            assert message.type is WSMsgType.CLOSE, message
            return message.data


async def test_a_flood_is_told_and_closed_with_1008():
    async with serving(max_frames_per_s=20) as front, front.client.ws_connect("/v1/ws") as ws:
        for nonce in range(60):
            await ws.send_json({"type": "ping", "nonce": nonce})
        frames = await receive_until(ws, "error")
        code = await closed_with(ws)

    assert len(frames) >= 20
    assert (frames[-1]["status"], frames[-1]["error"]["code"]) == (429, "too_many_frames")
    assert code == 1008


async def test_one_socket_too_many_is_refused_before_it_opens():
    async with (
        serving(max_sockets=1) as front,
        front.client.ws_connect("/v1/ws"),
        front.client.get("/v1/ws", headers=upgrade_headers()) as answer,
    ):
        body = await answer.json()

    assert (answer.status, body["error"]["code"]) == (503, "too_many_sockets")
    assert answer.headers["Retry-After"] == "5"


def upgrade_headers():
    """What a client says to open a socket."""
    return {
        "Connection": "Upgrade",
        "Upgrade": "websocket",
        "Sec-WebSocket-Key": "AAAAAAAAAAAAAAAAAAAAAA==",
        "Sec-WebSocket-Version": "13",
    }


async def test_an_owners_socket_too_many_is_told_why_and_closed_with_1013():
    async with serving(owner_max_sockets=1) as front:
        ann, bob = ({"Authorization": f"Bearer {front.keys.add(o)}"} for o in ("ann", "bob"))
        connect = front.client.ws_connect
        async with connect("/v1/ws", headers=ann), connect("/v1/ws", headers=bob) as other:
            async with connect("/v1/ws", headers=ann) as ws:
                error = await receive(ws)
                code = await closed_with(ws)
            await other.send_json({"type": "ping"})
            assert (await receive(other))["type"] == "pong"

    assert (error["status"], error["error"]["code"]) == (429, "too_many_owner_sockets")
    assert code == 1013


@pytest.mark.parametrize("how", ["revoked", "expired", "first key made"])
async def test_an_idle_socket_is_closed_with_4401_when_its_key_is_no_longer_good(how):
    async with serving(key_check_s=0.02) as front:
        headers = {}
        if how != "first key made":
            secret = front.keys.add("ann", expires_s=60)
            headers = {"Authorization": f"Bearer {secret}"}
        async with front.client.ws_connect("/v1/ws", headers=headers) as ws:
            if how == "revoked":
                front.keys.revoke(secret)
            elif how == "first key made":
                front.keys.add("ann")
            front.keys.clock.advance(60 if how == "expired" else FRESH_S)

            assert await closed_with(ws) == 4401


async def test_an_idle_socket_outlives_a_database_that_is_away_for_a_while():
    async with serving(key_check_s=0.01) as front:
        headers = {"Authorization": f"Bearer {front.keys.add('ann')}"}
        async with front.client.ws_connect("/v1/ws", headers=headers) as ws:
            num_reads = front.keys.num_reads
            front.keys.lose_reads(3)
            async with asyncio.timeout(5):
                await front.keys.lost.wait()
            front.keys.clock.advance(FRESH_S)
            await ws.send_json({"type": "ping"})
            assert (await receive(ws))["type"] == "pong"

    assert front.keys.num_reads > num_reads


async def test_a_client_that_says_goodbye_is_answered_with_1000():
    async with serving() as front, front.client.ws_connect("/v1/ws") as ws:
        await ws.close()

    assert ws.close_code == 1000


async def test_a_bug_outside_of_any_frame_closes_that_socket_with_1011(caplog):
    async with (
        serving() as front,
        front.client.ws_connect("/v1/ws") as ws,
        front.client.ws_connect("/v1/ws") as other,
    ):
        metrics = front.client.app[METRICS]
        count, metrics.frame = metrics.frame, None  # not to be called, neither by an error
        await ws.send_json({"type": "ping"})
        code = await closed_with(ws)
        metrics.frame = count
        await other.send_json({"type": "ping"})
        assert (await receive(other))["type"] == "pong"

    assert code == 1011
    assert "internal error" in caplog.text


async def test_a_peer_that_answers_no_ping_is_dropped():
    async with serving(heartbeat_s=0.2) as front:
        async with stuck_peer(front.port) as peer:
            num_bytes = await asyncio.wait_for(peer.read_to_the_end(), 5)
        async with front.client.get("/metrics") as answer:
            assert "splice_ws_connections 0.0" in await answer.text()

    assert num_bytes < 100  # pings and nothing else


async def test_a_half_open_peer_with_a_full_pipe_is_dropped_within_the_deadline():
    async with serving(heartbeat_s=0.2, send_timeout_s=0.4, outbox_size=4) as front:
        session = await front.session()
        async with stuck_peer(front.port) as peer:
            await peer.send({"type": "response.create", "conversation": session.id, "input": "hi"})
            await asyncio.wait_for(front.manager.submitted.wait(), 5)
            turn = next(iter(front.manager.turns_by_id))
            for _ in range(40):
                front.manager.say(turn, "x" * 400_000)
            await asyncio.wait_for(front.manager.feeds[turn].unread.wait(), 5)
            assert front.manager.turns_by_id[turn].status.is_active


async def test_several_sockets_read_one_conversation_and_each_event_is_the_same():
    async with serving() as front, ClientSession() as http:
        session = await front.session()
        sockets = [await http.ws_connect(f"{front.base_url}/ws") for _ in range(3)]
        await sockets[0].send_json(
            {"type": "response.create", "conversation": session.id, "input": "hi"}
        )
        head = await receive_until(sockets[0], "response.content_part.added")
        turn = head[0]["response_id"]
        front.manager.say(turn, "a")
        for ws in sockets[1:]:
            await ws.send_json({"type": "response.resume", "response_id": turn})
        front.manager.say(turn, "b")
        front.manager.end(turn)
        seen = [await receive_until(ws, "response.completed") for ws in sockets]
        for ws in sockets:
            await ws.close()

    assert head + seen[0] == seen[1] == seen[2]


def test_the_documented_close_codes_are_those_that_are_used_and_all_of_them_are_provoked():
    protocol = (ROOT / "docs" / "protocol.md").read_text(encoding="utf-8")
    documented = {int(code) for code in re.findall(r"^\| (\d{4}) \|", protocol, re.MULTILINE)}
    used = {v for v in vars(connections).values() if isinstance(v, int)} | {TOO_LARGE}
    tests = "".join(p.read_text(encoding="utf-8") for p in (ROOT / "tests").rglob("test_*.py"))

    assert documented == used
    assert not [code for code in used if not re.search(rf"(== |, ){code}\b", tests)]
