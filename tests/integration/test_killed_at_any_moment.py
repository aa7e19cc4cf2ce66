"""kill -9 of the whole server and of its engine alone, with turns in every state, on the embedded
model: after a restart on the same folder each turn is whole or interrupted, and goes on."""

import asyncio
from contextlib import asynccontextmanager

import aiohttp
import pytest
from transformers import AutoTokenizer

from sessions.database import Database
from sessions.store import Store
from sessions.token_log import unroll
from splice import AsyncClient
from tests.support.live_server import MODELS, LiveServer
from tests.support.wire import events_of, reply_of, wired

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


async def read_until(answer, num_deltas):
    """A stream's events up to so many deltas."""
    events = []
    async for event in events_of(answer):
        events.append(event)
        num_deltas -= event["type"] == "response.output_text.delta"
        if num_deltas <= 0:
            break
    return events


@asynccontextmanager
async def stored(server):
    """The store on the server's own database, to see what was written."""
    database = Database(f"sqlite+aiosqlite:///{server.database}")
    yield Store(database)
    await database.close()


async def log_of(server, turn_id):
    """All token ids of a conversation up to a turn, from the database."""
    async with stored(server) as store:
        return unroll(await store.spans(turn_id))


async def test_after_a_kill_every_turn_is_whole_or_interrupted_and_goes_on(server):
    async with wired(server.url) as wire:
        whole, cut, waiting = [await wire.new_session() for _ in range(3)]
        complete = await wire.say(whole, "What is the capital of Norway?", **SHORT)
        path = f"/v1/sessions/{cut}/turns"
        before = await wire.say(cut, "My name is Ann.", **SHORT)
        stream = {"input": "Tell me a long story.", "client_turn_id": "story", "stream": True}
        answer = await wire.http.post(path, json={**stream, **LONG})
        seen = await read_until(answer, 40)
        queued = await wire.http.post(
            f"/v1/sessions/{waiting}/turns", json={"input": "Are you there?", "stream": True}
        )
        queued_id = (await read_until(queued, 0))[0]["response"]["id"]
        turn_id = seen[0]["response"]["id"]

        server.kill()
        with pytest.raises(aiohttp.ClientError):
            seen += await read_until(answer, 10_000)
    server.start()

    async with wired(server.url) as wire:
        turns = (await wire.call("GET", f"/v1/sessions/{whole}/turns"))["data"]
        assert turns == [complete]

        interrupted = await wire.call("GET", f"{path}/{turn_id}")
        assert interrupted["status"] == "incomplete"
        assert interrupted["incomplete_details"] == {"reason": "interrupted"}
        partial = reply_of(interrupted)
        assert partial
        assert text_of(seen).startswith(partial)
        print(f"kept {len(partial)} of {len(text_of(seen))} characters that were shown")

        never = await wire.call("GET", f"/v1/sessions/{waiting}/turns/{queued_id}")
        assert (never["status"], never["output"]) == ("incomplete", [])
        assert never["incomplete_details"] == {"reason": "interrupted"}

        # A reader goes on behind what it has: it gets the end, and nothing twice.
        after = numbers_of(seen)[-1]
        async with wire.http.get(f"{path}/{turn_id}?stream=true&starting_after={after}") as answer:
            rest = await read_until(answer, 1)
        assert [event["type"] for event in rest] == ["response.incomplete"]
        assert rest[-1]["response"] == interrupted
        async with wire.http.get(f"{path}/{turn_id}?stream=true") as answer:
            replayed = await read_until(answer, 10_000)
        assert numbers_of(replayed) == list(range(len(replayed)))
        assert text_of(replayed) == partial
        assert [e for e in replayed if "delta" in e] == [e for e in seen if "delta" in e][
            : len([e for e in replayed if "delta" in e])
        ]

        # The same submission is the same turn still; the conversation goes on behind it.
        async with wire.http.post(path, json={**stream, **LONG}) as answer:
            assert (await read_until(answer, 10_000))[-1]["response"]["id"] == turn_id
        following = await wire.say(cut, "Go on.", **SHORT)
        assert following["previous_response_id"] == turn_id
        assert (await wire.say(waiting, "Again: are you there?", **SHORT))["status"] != "failed"
        assert (await wire.say(whole, "And of Sweden?", **SHORT))["previous_response_id"] == (
            complete["id"]
        )

    log, longer = [await log_of(server, t) for t in (turn_id, following["id"])]
    assert longer[: len(log)] == log
    folder = next(MODELS.glob("prepared/*/tokenizer.json")).parent
    tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    text = tokenizer.decode(longer)
    assert f"Tell me a long story.<|im_end|>\n<|im_start|>assistant\n{partial}" in text
    assert f"{partial}<|im_end|>\n<|im_start|>user\nGo on." in text
    assert reply_of(before) in text
    assert following["usage"]["input_tokens"] + following["usage"]["output_tokens"] == len(longer)


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
        path, pid = f"/v1/sessions/{session}/turns", server.pid
        num_restarts = await wire.count("splice_engine_restarts_total")
        body = {"input": "Count to forty.", "ignore_eos": True, "max_output_tokens": 60}
        async with wire.http.post(path, json={**body, "stream": True}) as answer:
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
        path = f"/v1/sessions/{session}/turns"
        async with wire.http.post(
            path, json={"input": "Count to a thousand.", "stream": True, **LONG}
        ) as answer:
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
