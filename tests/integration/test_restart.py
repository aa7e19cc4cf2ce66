"""The log is whole: whatever became of the server, each turn is ended and the next one goes on."""

import asyncio
import signal
import sys
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from sessions.database import Database
from sessions.errors import ConflictError
from sessions.manager import ManagerConfig, SessionManager
from sessions.replay import replay
from sessions.store import Store
from sessions.types import ReplyDelta, SessionId, TurnEnded, TurnId, TurnStatus
from tests.support import tiny_tokenizer as tiny
from tests.support.chat import ANN, Chat
from tests.support.clock import FakeClock
from tests.support.doomed_server import RUNNER_ID
from tests.support.fake_engine import FakeEngine, FakeReply, encode

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def url(tmp_path):
    return f"sqlite:///{tmp_path / 'splice.db'}"


@pytest.fixture
def clock():
    return FakeClock()


@pytest.fixture(scope="module")
def renderer():
    return tiny.make_renderer(tiny.SMOLLM2)


@pytest.fixture
def serve(url, clock, renderer):
    """A server's life: a manager of its own, with an engine of its own, on the one database."""

    @asynccontextmanager
    async def life(runner_id: str, engine: FakeEngine, **options):
        database = Database(url)
        await database.migrate()
        config = ManagerConfig(runner_id=runner_id, **options)
        store = Store(database)
        try:
            async with SessionManager(
                store=store, engine=engine, clock=clock, config=config
            ) as manager:
                manager.use_renderer(renderer)
                yield manager
        finally:
            await database.close()

    return life


async def test_a_killed_servers_turn_is_interrupted_and_goes_on(url, serve):
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "tests.support.doomed_server",
        url,
        cwd=ROOT,
        stdout=asyncio.subprocess.PIPE,
    )
    said = (await process.stdout.readline()).decode().split()
    process.send_signal(signal.SIGKILL)
    await process.communicate()
    session_id, first_id, second_id = SessionId(said[0]), TurnId(said[1]), TurnId(said[2])

    engine = FakeEngine()
    async with serve(RUNNER_ID, engine) as manager:
        assert await manager.recover() == 1
        assert await manager.recover() == 0
        chat = Chat(manager, await manager.get(ANN, session_id))
        first, second = await chat.turns()

        assert (first.id, first.status, first.reply_text) == (
            first_id,
            TurnStatus.COMPLETED,
            "Hello",
        )
        assert (second.id, second.status, second.reply_text) == (
            second_id,
            TurnStatus.INTERRUPTED,
            "So far",
        )
        events = await chat.read(second)
        assert [e.text for _, e in events if isinstance(e, ReplyDelta)] == ["So", " far"]
        assert events == list(enumerate(replay(second)))

        third = await chat.say("three")
        again = await chat.regenerate(second)

    assert third.parent_id == second_id
    decoded = tiny.make_tokenizer(None).decode(engine.requests[0].token_ids)
    before = encode("So far")
    ids = engine.requests[0].token_ids
    assert any(ids[n : n + len(before)] == before for n in range(len(ids)))
    assert "user\nthree<|im_end|>" in decoded
    assert again.parent_id == first_id


async def test_a_turn_killed_before_its_first_token_leaves_nothing_in_the_conversation(serve):
    engine = FakeEngine(default=FakeReply(holds_after=0))
    async with serve("other", engine) as doomed:
        chat = await Chat.open(doomed)
        turn = await chat.submit("lost")
        # Another server with the same name: to it, the first one's turns are a dead life's.
        heir = FakeEngine()
        async with serve("other", heir) as manager:
            assert await manager.recover() == 1
            mine = Chat(manager, chat.session)
            after = await mine.say("found")

            assert (await manager.turn(ANN, turn.id)).status is TurnStatus.INTERRUPTED
            assert after.parent_id == turn.id
            assert "lost" not in tiny.make_tokenizer(None).decode(heir.requests[0].token_ids)


async def test_another_servers_turn_is_left_alone_while_its_lease_runs(serve, clock):
    engine = FakeEngine(default=FakeReply(holds_after=1))
    async with serve("one", engine) as first, serve("two", FakeEngine()) as second:
        chat = await Chat.open(first)
        turn = await chat.submit()
        await engine.held(turn.id)

        assert await second.recover() == 0
        with pytest.raises(ConflictError, match="another server"):
            await second.cancel(ANN, turn.id)
        engine.let_go()
        assert (await chat.end(turn)).status is TurnStatus.COMPLETED


async def test_a_turn_taken_over_ends_for_its_first_runner_too(serve, clock):
    engine = FakeEngine(default=FakeReply(holds_after=1))
    async with serve("one", engine) as first, serve("two", FakeEngine()) as second:
        chat = await Chat.open(first)
        turn = await chat.submit()
        await engine.held(turn.id)
        await chat.kept(turn)
        clock.advance(60)

        assert await second.recover() == 1
        engine.let_go()
        ended = await chat.end(turn)

        assert (ended.status, ended.reply_text) == (TurnStatus.INTERRUPTED, "Hel")
        assert await first.turn(ANN, turn.id) == ended


async def test_another_servers_turn_can_be_read_from_here(serve):
    engine = FakeEngine(default=FakeReply(holds_after=1))
    async with (
        serve("one", engine, checkpoint_s=0) as first,
        serve("two", FakeEngine(), checkpoint_s=0.01) as second,
    ):
        chat = await Chat.open(first)
        turn = await chat.submit()
        await engine.held(turn.id)

        seen = []
        async for numbered in second.read(ANN, turn.id):
            seen.append(numbered)
            if isinstance(numbered[1], ReplyDelta):
                engine.let_go()

        assert isinstance(seen[-1][1], TurnEnded)
        assert seen[-1][1].turn.reply_text == "Hello"
        assert [n for n, _ in seen] == list(range(len(seen)))
