"""Sixty-four conversations on eight sockets that keep breaking, a cache for ten of them, random
cancels, and an engine that dies twice.

Every turn that was not cancelled completes, with one gap-free sequence of events over all its
connections and the tokens it has alone (`exact`); no block is lost.
"""

import asyncio
import random
from dataclasses import dataclass, field

import pytest

from tests.support.live_server import LiveServer
from tests.support.tiny_gguf import write_tiny_gguf
from tests.support.wire import reply_of, wired

NUM_CONVERSATIONS, NUM_TURNS, NUM_SOCKETS, NUM_BLOCKS, REPLY_TOKENS = 64, 3, 8, 61, 12
TERMINAL = ("response.completed", "response.incomplete", "response.failed")

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sixty-four")
    write_tiny_gguf(folder / "Tiny.gguf")
    (folder / "models").mkdir()  # not the checkout's, where this model has no business
    flags = ("--model", str(folder / "Tiny.gguf"), "--mode", "exact", "--num-threads", "1")
    # So many at once as the pool holds, for the rest must wait: some are cancelled while they do.
    flags += ("--max-running", "10")
    with LiveServer(folder, *flags, "--num-blocks", str(NUM_BLOCKS), "--check-books") as server:
        yield server


def body(conversation: int, turn: int) -> dict:
    """One turn of a conversation: those with an odd number draw.

    They draw among four tokens. Among all of the vocabulary some draw in these thousands lies
    within rounding of the boundary between two tokens, and what it gives in company is then a
    matter of who is in the batch (docs/exactness.md, "Near ties").
    """
    drawn = {"temperature": 0.9, "top_k": 4, "seed": conversation}
    drawn = drawn if conversation % 2 else {"temperature": 0}
    words = f"{conversation} and {turn} "
    return {"input": words, **drawn, "ignore_eos": True, "max_output_tokens": REPLY_TOKENS}


@dataclass
class Reading:
    """One turn as its reader sees it, over however many connections."""

    session: str
    conversation: int
    turn: int
    will_cancel: bool
    response_id: str | None = None
    numbers: list[int] = field(default_factory=list)
    text: str = ""
    ended: dict | None = None

    def request(self) -> dict:
        """What to send on a new connection: the turn itself until it is known, then a resume."""
        if self.response_id is None:
            return {
                "type": "response.create",
                "conversation": self.session,
                "client_turn_id": f"{self.conversation}/{self.turn}",
                **body(self.conversation, self.turn),
                **({"max_output_tokens": 5 * REPLY_TOKENS} if self.will_cancel else {}),
            }
        after = self.numbers[-1] if self.numbers else -1
        return {
            "type": "response.resume",
            "response_id": self.response_id,
            "starting_after": after,
        }

    def take(self, frame: dict) -> None:
        self.response_id = frame["response_id"]
        self.numbers.append(frame["sequence_number"])
        if frame["type"] == "response.output_text.delta":
            self.text += frame["delta"]
        elif frame["type"] in TERMINAL:
            self.ended = frame["response"]


class Crowd:
    """All readings, and when the engine is killed."""

    def __init__(self, server: LiveServer) -> None:
        self.readings: list[Reading] = []
        self._server = server
        self._in_flight_at_crash: list[Reading] = []
        self._num_crashes = 0

    def after_each_end(self) -> None:
        """Kill the engine twice, the second time when nobody is in flight who was at the first."""
        num_ended = sum(r.ended is not None for r in self.readings)
        are_through = all(r.ended for r in self._in_flight_at_crash)
        in_flight = [r for r in self.readings if r.ended is None]
        engines = self._server.engines()  # none while it starts again
        if self._num_crashes < 2 and num_ended >= 20 and are_through and in_flight and engines:
            self._num_crashes += 1
            self._in_flight_at_crash = in_flight
            engines[0].kill()

    @property
    def num_crashes(self) -> int:
        return self._num_crashes


async def read_on_one_socket(wire, crowd: Crowd, conversations: list[tuple[int, str]]) -> None:
    """All turns of each conversation, over a socket that is dropped every so often."""
    ids = random.Random(conversations[0][0])
    readings = [Reading(session, c, 0, False) for c, session in conversations]
    crowd.readings += readings
    while readings:
        async with wire.http.ws_connect("/v1/ws") as socket:
            for reading in readings:
                await socket.send_json(reading.request())
            for _ in range(ids.randrange(20, 120)):
                if not readings:
                    return
                frame = await socket.receive_json()
                assert frame["type"] != "error", frame
                reading = next(r for r in readings if r.session == frame["conversation"])
                reading.take(frame)
                if reading.will_cancel and len(reading.numbers) == 1 + reading.conversation % 4:
                    cancel = {"type": "response.cancel", "response_id": reading.response_id}
                    await socket.send_json(cancel)
                if reading.ended is None:
                    continue
                crowd.after_each_end()
                readings.remove(reading)
                turn = reading.turn + 1
                if turn < NUM_TURNS:
                    will_cancel = turn == NUM_TURNS - 1 and ids.random() < 0.4
                    following = Reading(reading.session, reading.conversation, turn, will_cancel)
                    readings.append(following)
                    crowd.readings.append(following)
                    await socket.send_json(following.request())


async def chat_alone(wire, conversation: int) -> list[str]:
    session = await wire.new_session()
    path = f"/v1/sessions/{session}/turns"
    replies = [
        reply_of(await wire.call("POST", path, body(conversation, t))) for t in range(NUM_TURNS)
    ]
    await wire.call("DELETE", f"/v1/sessions/{session}")
    return replies


async def until_ready(wire) -> None:
    for _ in range(1000):
        if (await wire.http.get("/readyz")).status == 200:
            return
        await asyncio.sleep(0.05)
    raise AssertionError("the engine does not come back")


async def test_sixty_four_conversations_survive_crashes_cancels_and_broken_sockets(server):
    async with wired(server.url) as wire:
        alone = [await chat_alone(wire, c) for c in range(NUM_CONVERSATIONS)]
        sessions = [await wire.new_session() for _ in range(NUM_CONVERSATIONS)]
        crowd = Crowd(server)
        async with asyncio.TaskGroup() as readers:
            for i in range(NUM_SOCKETS):
                mine = [(c, sessions[c]) for c in range(i, NUM_CONVERSATIONS, NUM_SOCKETS)]
                readers.create_task(read_on_one_socket(wire, crowd, mine))
        await until_ready(wire)  # the second kill may have come among the last turns
        cache = await wire.call("GET", "/v1/cache")

    assert crowd.num_crashes == 2
    assert len(crowd.readings) == NUM_TURNS * NUM_CONVERSATIONS
    cancelled = [r for r in crowd.readings if r.ended["status"] == "cancelled"]
    assert cancelled
    for reading in crowd.readings:
        assert reading.numbers == list(range(len(reading.numbers)))
        assert reading.text == reply_of(reading.ended)
        expected = alone[reading.conversation][reading.turn]
        if reading.will_cancel:  # a longer one, so that there is something to cut
            num = min(len(expected), len(reading.text))
            assert reading.text[:num] == expected[:num]
        else:
            assert reading.ended["incomplete_details"] == {"reason": "max_output_tokens"}
            assert reading.text == expected
    blocks = cache["blocks"]
    assert blocks["running"] == 0
    assert sum(blocks[s] for s in ("parked", "cached", "empty")) == NUM_BLOCKS
