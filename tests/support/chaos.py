"""Fifty peers of one server, of whom none behaves: pages that lose their connections and come back
by cursor, pages that are reloaded, peers that send and never read, peers that talk nonsense.

Each page keeps a transcript of what it was shown. The engine behind is `scripted_worker`: the only
reply of n tokens is the numbers below n, so a token lost or shown twice is seen at once.

Chats are as long as people's, so that what the server keeps of each is soon as much as
it will ever be, and memory that still grows then is memory that is lost.
"""

import asyncio
import random
from dataclasses import dataclass

import aiohttp

from tests.support.scripted_server import ScriptedServer
from tests.support.scripted_worker import text_of
from tests.support.stuck_peer import stuck_peer
from tests.support.wire import Json, Wire, reply_of, wired

MAX_TOKENS = 80
MAX_TURNS = 30
# Refusals of a server that is starting, stopping or busy.
COMES_BACK = {"engine_unavailable", "draining", "session_busy", "turn_not_ended", "engine_busy"}


@dataclass
class Transcript:
    """A reply as one page was shown it."""

    session: str
    frame: Json
    num_kills: int
    turn_id: str | None = None
    cursor: int = -1
    text: str = ""
    ended: Json | None = None

    def begin_again(self) -> None:
        """Forget what was shown, as a reload does."""
        self.cursor, self.text = -1, ""

    def take(self, event: Json) -> None:
        number = event["sequence_number"]
        if event["type"] in ("response.completed", "response.incomplete", "response.failed"):
            # Behind a kill the end may come before what was shown already.
            assert number == self.cursor + 1 or number <= self.cursor, (self, event)
            self.ended = event["response"]
            return
        assert number == self.cursor + 1, (self, event)
        self.cursor = number
        self.text += event.get("delta", "")


class Counts:
    """What happened, for the report; and how often the server was killed."""

    def __init__(self) -> None:
        self.num_turns = 0
        self.num_kills = 0
        self.num_drops = 0
        self.num_reloads = 0
        self.num_cut = 0
        self.num_taken_back = 0
        self.is_over = asyncio.Event()


class Page:
    """One socket; says one thing after another in one session after another."""

    def __init__(self, name: str, server: ScriptedServer, counts: Counts) -> None:
        self._name = name
        self._random = random.Random(name)
        self._server = server
        self._counts = counts
        self._session = ""
        self._num_left = 0
        self.transcripts: list[Transcript] = []

    async def live(self) -> None:
        """Until all is over, and then to the end of the reply."""
        while not (self._counts.is_over.is_set() and self._is_at_rest):
            try:
                async with wired(self._server.url) as wire:
                    await self._visit(wire)
            except (aiohttp.ClientError, ConnectionError):
                await asyncio.sleep(self._random.uniform(0.02, 0.2))

    @property
    def _is_at_rest(self) -> bool:
        return not self.transcripts or self.transcripts[-1].ended is not None

    async def _visit(self, wire: Wire) -> None:
        async with wire.http.ws_connect("/v1/ws") as ws:
            while not (self._counts.is_over.is_set() and self._is_at_rest):
                if self._is_at_rest:
                    if self._num_left == 0 and not await self._begin(wire):
                        return
                    self.transcripts.append(self._next())
                await ws.send_json(_request(self.transcripts[-1]))
                if not await self._read(wire, ws, self.transcripts[-1]):
                    return

    async def _begin(self, wire: Wire) -> bool:
        """Open a session, unless there is no server to do it."""
        async with wire.http.post("/v1/sessions", json={"title": self._name}) as answer:
            if answer.status == 503:
                return False
            self._session = (await answer.json())["id"]
        self._num_left = self._random.randint(1, MAX_TURNS)
        return True

    def _next(self) -> Transcript:
        self._num_left -= 1
        number = len(self.transcripts)
        frame = {
            "client_turn_id": f"{number}",
            "max_output_tokens": self._random.randint(5, MAX_TOKENS),
        }
        before = self.transcripts[-1] if self.transcripts else None
        last = before.ended if before is not None and before.session == self._session else None
        if last is not None and last["status"] == "incomplete" and self._random.random() < 0.5:
            frame |= {"type": "response.continue", "response_id": last["id"]}
        else:
            text = f"{self._name}: {number}"
            frame |= {"type": "response.create", "conversation": self._session, "input": text}
        return Transcript(self._session, frame, self._counts.num_kills)

    async def _read(
        self, wire: Wire, ws: aiohttp.ClientWebSocketResponse, transcript: Transcript
    ) -> bool:
        """Take a reply's events; whether the connection is still there."""
        length = self._random.choice([10, 40, 80, 100_000])
        async for message in ws:
            if message.type is not aiohttp.WSMsgType.TEXT:
                return False
            event = message.json()
            if event["type"] == "error":
                assert event["error"]["code"] in COMES_BACK, (event, transcript)
                await asyncio.sleep(self._random.uniform(0.02, 0.2))
                return False
            if event.get("response_id") != transcript.turn_id:
                if transcript.turn_id is not None:
                    continue  # the rest of what another request of this socket had asked for
                transcript.turn_id = event["response_id"]
            transcript.take(event)
            if transcript.ended is not None:
                self._compare(transcript)
                return True
            length -= 1
            if length == 0:
                return await self._lose(wire, transcript)
        return False

    async def _lose(self, wire: Wire, transcript: Transcript) -> bool:
        if self._random.random() < 0.3:
            self._counts.num_reloads += 1
            transcript.begin_again()
        self._counts.num_drops += 1
        if self._random.random() < 0.7:  # else the socket says goodbye
            assert wire.http.connector is not None
            await wire.http.connector.close()
        return False

    def _compare(self, transcript: Transcript) -> None:
        assert transcript.ended is not None
        kept = reply_of(transcript.ended)
        assert kept == text_of(len(kept.split())), transcript
        if transcript.ended["status"] == "completed":
            assert len(kept.split()) >= transcript.frame["max_output_tokens"], transcript
        is_cut = transcript.ended["incomplete_details"] == {"reason": "interrupted"}
        self._counts.num_cut += is_cut
        if is_cut and transcript.num_kills < self._counts.num_kills:
            # A server that is killed may have kept less than it showed, and never anything else.
            assert transcript.text.startswith(kept), transcript
            self._counts.num_taken_back += len(transcript.text) - len(kept)
            transcript.text = kept
        assert transcript.text == kept, transcript

    async def check(self, wire: Wire) -> None:
        """What is stored is what was shown."""
        stored_by_id: dict[str, Json] = {}
        for session in {transcript.session for transcript in self.transcripts}:
            turns = (await wire.call("GET", f"/v1/sessions/{session}/turns?all=true"))["data"]
            stored_by_id |= {turn["id"]: turn for turn in turns}
        assert len(stored_by_id) == len(self.transcripts)
        for transcript in self.transcripts:
            assert transcript.turn_id is not None
            stored = stored_by_id[transcript.turn_id]
            assert stored == transcript.ended
            assert reply_of(stored) == transcript.text


def _request(transcript: Transcript) -> Json:
    if transcript.turn_id is None:
        return transcript.frame
    return {
        "type": "response.resume",
        "response_id": transcript.turn_id,
        "starting_after": transcript.cursor,
    }


async def ballast(wire: Wire, num_turns: int) -> list[str]:
    """Turns whose events are more together than any buffer holds."""

    async def one() -> str:
        turn = await wire.say(await wire.new_session(), "x" * 60_000, max_output_tokens=1)
        return str(turn["id"])

    return await asyncio.gather(*(one() for _ in range(num_turns)))


async def never_read(name: str, server: ScriptedServer, counts: Counts, turns: list[str]) -> None:
    """Ask for all these turns, take none of them, and come back for more."""
    chance = random.Random(name)
    while not counts.is_over.is_set():
        try:
            async with asyncio.timeout(chance.uniform(2, 4)), stuck_peer(server.port) as peer:
                for turn_id in turns:
                    await peer.send({"type": "response.resume", "response_id": turn_id})
                await counts.is_over.wait()
        except (TimeoutError, ConnectionError):
            await asyncio.sleep(chance.uniform(0.02, 0.2))


async def talk_nonsense(name: str, server: ScriptedServer, counts: Counts) -> None:
    """Connect, say what nobody understands, hear so, and hang up in the middle of a frame."""
    chance = random.Random(name)
    while not counts.is_over.is_set():
        try:
            async with wired(server.url) as wire, wire.http.ws_connect("/v1/ws") as ws:
                for text in ("{", "[]", '{"type":"response.cancel","response_id":"resp_0"}'):
                    await ws.send_str(text)
                    answer = await ws.receive_json()
                    assert answer["type"] == "error"
                    assert answer["status"] in (400, 404)
        except (aiohttp.ClientError, ConnectionError, TypeError):
            pass
        await asyncio.sleep(chance.uniform(0.02, 0.2))
