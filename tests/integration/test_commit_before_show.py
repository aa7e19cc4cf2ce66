"""kill -9 at random moments, also while the server starts: whatever was acknowledged is there when
it runs again, and every transcript is whole."""

import asyncio
import random
import sqlite3
import time
from contextlib import closing

import pytest

from sessions.database import Database
from sessions.store import Store
from sessions.token_log import unroll
from tests.support.journal import Journal
from tests.support.scripted_server import ScriptedServer
from tests.support.scripted_worker import FIRST_ID
from tests.support.wire import wired

NUM_CLIENTS = 6
# From the first request on; a client has then begun a handful of turns.
MAX_LIFE_S = 0.5
# Of all lives, those that are ended before the server is ready.
SHARE_STILLBORN = 0.15

pytestmark = pytest.mark.timeout(900)


@pytest.mark.parametrize("num_kills", [15, pytest.param(200, marks=pytest.mark.full)])
async def test_whatever_was_acknowledged_survives_a_kill_at_any_moment(tmp_path, num_kills):
    seed = time.time_ns()
    print(f"seed {seed}")
    chance = random.Random(seed)
    journals = [Journal(f"{seed}-{number}") for number in range(NUM_CLIENTS)]
    num_checked = [0] * NUM_CLIENTS
    server = ScriptedServer(tmp_path, step_ms=2)
    server.start()
    for _ in range(num_kills):
        if chance.random() < SHARE_STILLBORN:
            server.kill()
            server.begin()
            await asyncio.sleep(chance.uniform(0, 0.2))
            server.kill()
            server.start()
            continue
        async with wired(server.url) as wire, asyncio.TaskGroup() as tasks:
            for journal in journals:
                tasks.create_task(journal.talk(wire))
            await asyncio.sleep(chance.uniform(0, MAX_LIFE_S))
            server.kill()
        server.start()
        async with wired(server.url) as wire:
            for number, journal in enumerate(journals):
                await journal.check(wire, since=num_checked[number])
                num_checked[number] = len(journal.said)
    async with wired(server.url) as wire:
        for journal in journals:
            await journal.check(wire)
    server.stop()

    await _check_books(server)
    said = [said for journal in journals for said in journal.said]
    num_cut = sum(said.is_cut for said in said)
    print(f"{num_kills} kills: {len(said)} turns, {num_cut} of them cut")
    assert num_cut


async def _check_books(server: ScriptedServer) -> None:
    """The file itself: sound, and each token log ends with the ids of the reply's text."""
    with closing(sqlite3.connect(server.database)) as database:
        assert database.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        assert database.execute("PRAGMA foreign_key_check").fetchall() == []
        rows = database.execute("SELECT id FROM responses").fetchall()
    opened = Database(f"sqlite+aiosqlite:///{server.database}")
    store = Store(opened)
    for (turn_id,) in rows:
        turn = await store.turn("anonymous", turn_id)
        num_tokens = len(turn.reply_text.split())
        log = unroll(await store.spans(turn_id))
        expected = list(range(FIRST_ID, FIRST_ID + num_tokens))
        assert list(log[len(log) - num_tokens :]) == expected
        assert num_tokens == len(log) or log[len(log) - num_tokens - 1] < FIRST_ID
    await opened.close()
