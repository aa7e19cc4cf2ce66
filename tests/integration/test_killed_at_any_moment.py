"""kill -9 of the whole server and of its engine alone, with turns in every state, on the embedded
model: after a restart on the same folder each turn is whole or interrupted, and goes on."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from weakref import WeakKeyDictionary

import aiohttp
import pytest
import pytest_asyncio
from transformers import AutoTokenizer

from model.provision import DEFAULT_SHA256
from sessions.database import Database
from sessions.store import Store
from sessions.token_log import unroll
from splice import AsyncClient
from tests.support.live_server import MODELS, LiveServer
from tests.support.wire import Json, events_of, reply_of, wired

pytestmark = pytest.mark.timeout(300)

LONG = {"ignore_eos": True, "max_output_tokens": 1500}
SHORT = {"temperature": 0, "max_output_tokens": 8}


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """One reply at a time, so that a second one waits."""
    flags = ("--max-running", "1", "--cache-bytes", "128MiB", "--check-books")
    with LiveServer(tmp_path_factory.mktemp("killed"), *flags) as server:
        yield server


def text_of(events):
    return "".join(event.get("delta", "") for event in events)


def numbers_of(events):
    return [event["sequence_number"] for event in events]


_STREAMS: WeakKeyDictionary[aiohttp.ClientResponse, AsyncIterator[Json]] = WeakKeyDictionary()


async def read_until(answer, num_deltas):
    """A stream's events up to so many deltas; the next call goes on behind them, also within what
    came in one piece."""
    stream = _STREAMS.setdefault(answer, events_of(answer))
    events = []
    async for event in stream:
        events.append(event)
        num_deltas -= event["type"] == "response.output_text.delta"
        if num_deltas <= 0:
            break
    return events


def stream_of(wire, session, body):
    """A new turn's answer that streams."""
    return wire.http.post(f"/v1/sessions/{session}/turns", json={**body, "stream": True})


@asynccontextmanager
async def stored(server):
    """The store on the server's own database, to see what was written."""
    database = Database(f"sqlite+aiosqlite:///{server.database}")
    yield Store(database)
    await database.close()


def decoded(token_ids):
    """Ids as text, control tokens included."""
    folder = next(MODELS.glob(f"prepared/{DEFAULT_SHA256[:16]}-*/tokenizer.json")).parent
    return AutoTokenizer.from_pretrained(folder, local_files_only=True).decode(token_ids)


async def log_of(server, turn_id):
    """All token ids of a conversation up to a turn, from the database."""
    async with stored(server) as store:
        return unroll(await store.spans(turn_id))


@dataclass
class Cut:
    """What there was when the server was killed: a turn that had ended, one in mid-reply with the
    events that a reader had seen, and one that had not begun."""

    complete: Json
    before: Json
    request: Json
    seen: list[Json]
    queued: Json

    @property
    def session(self) -> str:
        return str(self.seen[0]["response"]["conversation"]["id"])

    @property
    def turn_id(self) -> str:
        return str(self.seen[0]["response"]["id"])

    @property
    def path(self) -> str:
        return f"/v1/sessions/{self.session}/turns"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def cut(server):
    """The server is killed in mid-reply, and started again."""
    async with wired(server.url) as wire:
        whole, story, waiting = [await wire.new_session() for _ in range(3)]
        complete = await wire.say(whole, "What is the capital of Norway?", **SHORT)
        before = await wire.say(story, "My name is Ann.", **SHORT)
        request = {"input": "Tell me a long story.", "client_turn_id": "story", **LONG}
        async with (
            stream_of(wire, story, request) as answer,
            stream_of(wire, waiting, {"input": "Are you there?"}) as waiting_answer,
        ):
            queued = (await read_until(waiting_answer, 0))[0]["response"]
            seen = await read_until(answer, 40)
            server.kill()
            with pytest.raises(aiohttp.ClientError):
                seen += await read_until(answer, 10_000)
    server.start()
    return Cut(complete, before, request, seen, queued)


async def test_after_a_kill_every_turn_is_whole_or_interrupted_and_goes_on(server, cut):
    async with wired(server.url) as wire:
        whole = f"/v1/sessions/{cut.complete['conversation']['id']}/turns"
        assert (await wire.call("GET", whole))["data"] == [cut.complete]
        interrupted = await wire.call("GET", f"{cut.path}/{cut.turn_id}")
        waiting = cut.queued["conversation"]["id"]
        never = await wire.call("GET", f"/v1/sessions/{waiting}/turns/{cut.queued['id']}")
        for turn in (interrupted, never):
            assert turn["status"] == "incomplete"
            assert turn["incomplete_details"] == {"reason": "interrupted"}
        partial, shown = reply_of(interrupted), text_of(cut.seen)
        print(f"kept {len(partial)} of {len(shown)} characters that were shown")
        assert partial
        assert shown.startswith(partial)
        assert never["output"] == []

        # The same submission is the same turn still; every conversation goes on.
        repeated = await wire.call("POST", cut.path, cut.request)
        assert repeated == interrupted
        following = await wire.say(cut.session, "Go on.", **SHORT)
        assert following["previous_response_id"] == cut.turn_id
        for session in (waiting, cut.complete["conversation"]["id"]):
            assert (await wire.say(session, "And now?", **SHORT))["status"] != "failed"

    log, longer = [await log_of(server, t) for t in (cut.turn_id, following["id"])]
    assert longer[: len(log)] == log
    text = decoded(longer)
    assert f"My name is Ann.<|im_end|>\n<|im_start|>assistant\n{reply_of(cut.before)}" in text
    assert f"Tell me a long story.<|im_end|>\n<|im_start|>assistant\n{partial}<|im_end|>" in text
    assert following["usage"]["total_tokens"] == len(longer)


async def test_whoever_read_an_interrupted_reply_resumes_to_its_end(server, cut):
    async with wired(server.url) as wire:
        turn = await wire.call("GET", f"{cut.path}/{cut.turn_id}")
        address = f"{cut.path}/{cut.turn_id}?stream=true"
        cursor = numbers_of(cut.seen)[-1]
        async with wire.http.get(f"{address}&starting_after={cursor}") as answer:
            rest = await read_until(answer, 10_000)
        async with wire.http.get(address) as answer:
            replayed = await read_until(answer, 10_000)

    # Behind the last number seen there is the end and nothing else.
    assert [(e["type"], e["response"]) for e in rest] == [("response.incomplete", turn)]
    assert numbers_of(replayed) == list(range(len(replayed)))
    assert text_of(replayed) == reply_of(turn)
    deltas = [e for e in replayed if "delta" in e]
    assert deltas == [e for e in cut.seen if "delta" in e][: len(deltas)]


async def test_a_client_of_ours_rides_through_a_kill_of_the_server(server):
    async with AsyncClient(server.url, max_retries=40) as client:
        session = await client.sessions.create()
        seen = []
        async with session.stream("Tell me a long story.", **LONG) as stream:
            async for event in stream:
                seen.append(event)
                if len(seen) == 30:
                    await asyncio.to_thread(server.kill)
                    await asyncio.to_thread(server.start, server.port)

        assert stream.turn is not None
        assert stream.turn.status == "incomplete"
        assert "".join(getattr(e, "delta", "") for e in seen).startswith(stream.turn.text)
        assert [e.sequence_number for e in seen[:-1]] == list(range(len(seen) - 1))
        assert (await session.send("Go on.", **SHORT)).status != "failed"


async def test_a_reply_goes_on_when_only_the_engine_is_killed(server):
    async with wired(server.url) as wire:
        session = await wire.new_session()
        pid = server.pid
        num_restarts = await wire.count("splice_engine_restarts_total")
        body = {"input": "Count to forty.", "ignore_eos": True, "max_output_tokens": 60}
        async with stream_of(wire, session, body) as answer:
            events = await read_until(answer, 20)
            first = server.engine()
            first.kill()
            events += await read_until(answer, 10_000)
        turn = events[-1]["response"]

        assert turn["usage"]["output_tokens"] == 60
        assert numbers_of(events) == list(range(len(events)))
        assert text_of(events) == reply_of(turn)
        assert server.pid == pid
        assert server.engine().pid != first.pid
        assert await wire.count("splice_engine_restarts_total") == num_restarts + 1
        following = await wire.say(session, "Thanks.", **SHORT)
        assert following["usage"]["input_tokens_details"]["cached_tokens"] > 60


async def test_a_reply_that_meets_two_crashes_fails_and_the_next_one_works(server):
    async with wired(server.url) as wire:
        session = await wire.new_session()
        async with stream_of(wire, session, {"input": "Count to a thousand.", **LONG}) as answer:
            events = await read_until(answer, 5)
            server.engine().kill()
            events += await read_until(answer, 5)
            server.engine().kill()
            events += await read_until(answer, 10_000)
        failed = events[-1]

        assert failed["type"] == "response.failed"
        assert failed["response"]["error"]["retryable"] is False
        assert numbers_of(events) == list(range(len(events)))
        assert reply_of(failed["response"]) == text_of(events)
        following = await wire.say(session, "Go on.", **SHORT)
        assert following["status"] != "failed"
        assert following["previous_response_id"] == failed["response"]["id"]
        cache = await wire.call("GET", "/v1/cache")
        assert sum(cache["blocks"].values()) == cache["num_blocks"]
