"""Conversations outlive their server: after a stop, and after kill -9, they come back from disk, go
on exactly, and compute their new turns only. What is deleted is in no file any more."""

import asyncio
import sqlite3
from contextlib import closing

import aiohttp
import pytest
import torch
from transformers import AutoModelForCausalLM

from sessions.database import Database
from sessions.store import Store
from sessions.token_log import unroll
from tests.support.live_server import LiveServer
from tests.support.tiny_folder import save_tiny_model

pytestmark = pytest.mark.timeout(600)

GREEDY = {"temperature": 0, "max_output_tokens": 12, "ignore_eos": True}
CLOSE = 1e-4
WORDS = "the cat sat on the mat and looked at the moon"


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return save_tiny_model(tmp_path_factory.mktemp("tiny") / "model")


def server_on(folder, model, *flags):
    folder.mkdir(exist_ok=True)
    return LiveServer(
        folder,
        *("--model", str(model), "--mode", "exact", "--device", "cpu", "--check-books"),
        *("--cache-bytes", "64MiB", "--spill-to-disk-after-s", "0.2", "--warm-up-s", "0"),
        *flags,
    )


class Talk:
    """What a client does."""

    def __init__(self, http: aiohttp.ClientSession, url: str) -> None:
        self._http = http
        self._url = f"{url}/v1"

    async def ask(self, method: str, path: str, **body):
        async with self._http.request(method, f"{self._url}{path}", json=body or None) as answer:
            assert answer.status in (200, 201), await answer.text()
            return await answer.json()

    async def open(self, number: int) -> str:
        session = await self.ask("POST", "/sessions", instructions=f"You are brief. {WORDS}")
        await self.say(session["id"], f"{number} says: {WORDS}")
        return session["id"]

    async def say(self, session: str, text: str):
        turn = await self.ask("POST", f"/sessions/{session}/turns", input=text, **GREEDY)
        assert turn["status"] == "incomplete", turn  # as long as it may be
        return turn

    async def sessions(self):
        """All there are, page by page."""
        page = await self.ask("GET", "/sessions?limit=100")
        found = page["data"]
        while page["has_more"]:
            page = await self.ask("GET", f"/sessions?limit=100&after={page['last_id']}")
            found += page["data"]
        return found

    async def stored(self, num_conversations: int) -> None:
        """Wait until so many are on the disk, each with its newest turn."""
        async with asyncio.timeout(60 + num_conversations):
            while True:
                places = [(s["kv"] or {}).get("stored_in") for s in await self.sessions()]
                if places.count(["disk"]) == num_conversations:
                    return
                await asyncio.sleep(0.2)


def assert_came_back(before, turns):
    """At least 95 % of the tokens that there were, with an engine that began with nothing; and only
    what is new was computed."""
    num_known = sum(turn["usage"]["total_tokens"] - 1 for turn in before)
    metrics = [turn["splice"]["metrics"] for turn in turns]
    num_reused = sum(m["kv"]["reused"] for m in metrics)
    print(f"{len(turns)} conversations: {num_reused:,} of {num_known:,} tokens came back")
    assert num_reused >= 0.95 * num_known
    for turn, m in zip(turns, metrics, strict=True):
        # The first to come back brings what all share with it.
        assert m["kv"]["disk"] > 0, m
        assert m["kv"]["reason"] is None, m
        assert m["rows_computed"] == m["kv"]["computed"] + turn["usage"]["output_tokens"] - 1


async def assert_exact(database, model, turns):
    """What was said is what one plain forward over all ids says, but for near ties."""
    dense = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32)
    opened = Database(f"sqlite:///{database}")
    for turn in turns:
        spans = await Store(opened).spans(turn["id"])
        ids, start = unroll(spans), spans[-1].num_prompt_tokens
        with torch.no_grad():
            (logits,) = dense(torch.tensor([ids])).logits
        best = logits[start - 1 : -1].topk(2)
        for sampled, likeliest, values in zip(ids[start:], best.indices, best.values, strict=True):
            is_close = values[0] - values[1] < CLOSE
            assert sampled == likeliest[0] or (is_close and sampled == likeliest[1])
    await opened.close()


async def say_to_all(url, sessions, text):
    async with aiohttp.ClientSession() as http:
        talk = Talk(http, url)
        return [await talk.say(session, text) for session in sessions]


async def live_twice(folder, model, num_conversations):
    """A server is stopped, started, killed and started; what was said at each time."""
    server = server_on(folder, model)
    server.start()
    async with aiohttp.ClientSession() as http:
        talk = Talk(http, server.url)
        sessions = [await talk.open(number) for number in range(num_conversations)]
        first = [
            (await talk.ask("GET", f"/sessions/{name}/turns"))["data"][-1] for name in sessions
        ]
    server.stop()
    server.start()
    second = await say_to_all(server.url, sessions, f"And then? {WORDS}")
    async with aiohttp.ClientSession() as http:
        await Talk(http, server.url).stored(num_conversations)
    server.kill()
    server.start()
    third = await say_to_all(server.url, sessions, "Why?")
    server.stop()
    await assert_exact(server.database, model, [*second, *third])
    return first, second, third


@pytest.mark.parametrize(
    "num_conversations",
    [8, pytest.param(200, marks=[pytest.mark.full, pytest.mark.timeout(2400)])],
    ids=["few", "200"],
)
async def test_all_come_back_and_go_on_as_if_nothing_had_happened(
    tmp_path, model, num_conversations
):
    first, second, third = await live_twice(tmp_path / "with", model, num_conversations)

    assert_came_back(first, second)
    assert_came_back(second, third)


def bytes_in(folder):
    return b"".join(path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file())


def pieces_of(data: bytes, size: int = 48, step: int = 512):
    """Samples that say something."""
    found = (data[start : start + size] for start in range(0, len(data) - size, step))
    return {piece for piece in found if len(set(piece)) > size // 4}


async def gone(folder, name: str):
    async with asyncio.timeout(60):
        while name.encode() in bytes_in(folder):  # noqa: ASYNC110 - another process writes it
            await asyncio.sleep(0.1)


async def test_what_is_deleted_is_in_no_file_also_when_the_server_died_in_between(tmp_path, model):
    folder = tmp_path / "deleting"
    kv = folder / "kv"
    server = server_on(folder, model, "--delete-grace-s", "0")
    server.start()
    async with aiohttp.ClientSession() as http:
        talk = Talk(http, server.url)
        kept = await talk.open(1)
        await talk.stored(1)
        before = bytes_in(kv)
        deleted = await talk.open(2)
        await talk.stored(2)
        own = {piece for piece in pieces_of(bytes_in(kv)) if piece not in before}
        assert own
        await talk.ask("DELETE", f"/sessions/{deleted}")
        await gone(kv, deleted)
        left = bytes_in(kv)
        assert not [piece for piece in own if piece in left]

        purged = await talk.open(3)
        await talk.stored(2)
    server.kill()
    # As if it had been killed behind the purge, before its bytes were erased.
    with closing(sqlite3.connect(server.database)) as database, database:
        database.execute("UPDATE sessions SET deleted_at = created_at WHERE id = ?", [purged])
    assert purged.encode() in bytes_in(kv)

    server.start()
    await gone(kv, purged)
    (turn,) = await say_to_all(server.url, [kept], "Still there?")
    server.stop()

    assert turn["splice"]["metrics"]["kv"]["disk"] > 0
