"""Sixteen conversations on one websocket, with a cache too small for them all, in `exact` mode.

Each reply must be the one its conversation gets alone, whoever was preempted for whom; every block
must be accounted for at the end; and a reader may lose its connection as often as it likes.
"""

from contextlib import asynccontextmanager
from socket import SHUT_RDWR

import pytest

from tests.support.live_server import LiveServer
from tests.support.wire import reply_of, wired

NUM_BLOCKS = 20
TERMINAL = ("response.completed", "response.incomplete", "response.failed", "error")
THINGS = (
    *("a river", "the moon", "bread", "a bridge", "iron", "the number seven", "a whale", "rain"),
    *("a violin", "ice", "an old map", "the colour red", "a clock", "salt", "a lighthouse", "wind"),
)
GREEDY = {"temperature": 0, "ignore_eos": True}

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    flags = ("--mode", "exact", "--num-blocks", str(NUM_BLOCKS), "--check-books")
    with LiveServer(tmp_path_factory.mktemp("sixteen"), *flags) as server:
        yield server


@pytest.fixture
async def wire(server):
    async with wired(server.url) as wire:
        yield wire


def bodies(number):
    """The two turns of a conversation; some are drawn at random, which is as repeatable."""
    drawn = {"ignore_eos": True, "temperature": 0.9, "seed": number} if number % 3 == 0 else GREEDY
    yield {"input": f"Tell me about {THINGS[number]}.", **drawn, "max_output_tokens": 20}
    yield {"input": "What else?", **drawn, "max_output_tokens": 4}


async def chat_alone(wire, number):
    session = await wire.new_session()
    turns = [
        await wire.call("POST", f"/v1/sessions/{session}/turns", body) for body in bodies(number)
    ]
    await wire.call("DELETE", f"/v1/sessions/{session}")
    return [reply_of(turn) for turn in turns]


async def chat_together(wire, sessions):
    """The turns of all; whenever one of a conversation has ended its next is begun."""
    waiting = {session: list(bodies(number)) for number, session in enumerate(sessions)}
    turns = {session: [] for session in sessions}
    async with wire.http.ws_connect("/v1/ws") as socket:

        async def begin(session):
            body = waiting[session].pop(0)
            await socket.send_json({"type": "response.create", "conversation": session, **body})

        for session in sessions:
            await begin(session)
        num_ended = 0
        while num_ended < 2 * len(sessions):
            frame = await socket.receive_json()
            assert frame["type"] not in ("error", "response.failed"), frame
            if frame["type"] in TERMINAL:
                num_ended += 1
                turns[frame["conversation"]].append(frame["response"])
                if waiting[frame["conversation"]]:
                    await begin(frame["conversation"])
    return [turns[session] for session in sessions]


async def test_sixteen_at_once_answer_as_if_alone_and_lose_no_block(wire):
    alone = [await chat_alone(wire, number) for number in range(len(THINGS))]

    sessions = [await wire.new_session() for _ in THINGS]
    turns = await chat_together(wire, sessions)

    assert [[reply_of(t) for t in pair] for pair in turns] == alone
    assert [[t["usage"]["output_tokens"] for t in pair] for pair in turns] == [
        [body["max_output_tokens"] for body in bodies(number)] for number in range(len(THINGS))
    ]
    cache = await wire.call("GET", "/v1/cache")
    print(f"preemptions: {cache['num_preemptions']}, evicted: {cache['num_evicted_blocks']}")
    assert cache["num_preemptions"] > 0
    assert cache["num_evicted_blocks"] > 0
    assert (cache["num_blocks"], sum(cache["blocks"].values())) == (NUM_BLOCKS, NUM_BLOCKS)
    assert (cache["blocks"]["running"], cache["num_running"], cache["num_waiting"]) == (0, 0, 0)
    for session in sessions:
        await wire.call("DELETE", f"/v1/sessions/{session}")
    blocks = (await wire.call("GET", "/v1/cache"))["blocks"]
    assert (blocks["running"], blocks["parked"], sum(blocks.values())) == (0, 0, NUM_BLOCKS)
    assert await wire.count("splice_books_failures_total") == 0


async def test_a_reply_read_over_many_connections_is_whole(wire):
    session = await wire.new_session()
    body = {"input": "Tell me a story.", **GREEDY, "max_output_tokens": 60}
    frames = []
    async with _socket(wire) as socket:
        await socket.send_json({"type": "response.create", "conversation": session, **body})
        frames += [await socket.receive_json() for _ in range(7)]
    turn_id = frames[0]["response_id"]
    num_connections = 1
    while frames[-1]["type"] not in TERMINAL:
        async with _socket(wire) as socket:
            num_connections += 1
            cursor = {"starting_after": frames[-1]["sequence_number"]}
            await socket.send_json({"type": "response.resume", "response_id": turn_id, **cursor})
            for _ in range(9):
                frames.append(await socket.receive_json())
                if frames[-1]["type"] in TERMINAL:
                    break
    turn = frames[-1]["response"]
    print(f"{len(frames)} events over {num_connections} connections")

    assert num_connections > 5
    assert [f["sequence_number"] for f in frames] == list(range(len(frames)))
    assert "".join(f.get("delta", "") for f in frames) == reply_of(turn)
    assert turn["usage"]["output_tokens"] == 60
    path = f"/v1/sessions/{session}/turns/{turn_id}/regenerate"
    again = await wire.call("POST", path, {**GREEDY, "max_output_tokens": 60})
    assert reply_of(again) == reply_of(turn)


@asynccontextmanager
async def _socket(wire):
    """A websocket that is torn at the end, not closed."""
    async with wire.http.ws_connect("/v1/ws") as socket:
        yield socket
        socket.get_extra_info("socket").shutdown(SHUT_RDWR)
