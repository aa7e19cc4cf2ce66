"""Oracle 3 on the embedded model: everything dropped between turns, the answers stay the same.

The real sessions, store and engine process, without the front end, which has no way to drop
anything. `exact` mode; half of the turns are drawn at random with a seed.
"""

from datetime import UTC, datetime

import pytest
import pytest_asyncio

from model.config import Device, EngineConfig, Mode, SamplingParams
from model.engine import Engine
from model.messages import MissReason
from sessions.database import Database
from sessions.manager import ManagerConfig, SessionManager
from sessions.rendering import Renderer
from sessions.store import Store
from tests.support.chat import Chat
from tests.support.live_server import MODELS

pytestmark = [pytest.mark.timeout(300), pytest.mark.asyncio(loop_scope="module")]

QUESTIONS = ("What is rain?", "And snow, 雪?", "Which is colder?", "Thanks!")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def engine():
    config = EngineConfig(
        models_dir=MODELS,
        device=Device.CPU,
        mode=Mode.EXACT,
        num_blocks=40,
        check_books=True,
        poison_blocks=True,
    )
    engine = Engine(config)
    await engine.start()
    yield engine
    await engine.close()


@pytest_asyncio.fixture(loop_scope="module")
async def manager(engine, tmp_path):
    database = Database(f"sqlite+aiosqlite:///{tmp_path / 'splice.db'}")
    await database.migrate()
    config = ManagerConfig(runner_id="only")
    store = Store(database)

    def clock():
        return datetime.now(UTC)

    async with SessionManager(store=store, engine=engine, clock=clock, config=config) as manager:
        manager.use_renderer(Renderer.load(engine.info.tokenizer_path))
        yield manager
    await database.close()


def drawn(number):
    warm = 0.9 if number % 2 else 0.0
    return SamplingParams(temperature=warm, seed=number, max_output_tokens=10, ignore_eos=True)


async def chat(manager, before_turn):
    """A conversation, a second reply to its last question, and a fork that goes on."""
    chat = await Chat.open(manager, instructions="You are brief.")
    turns = []
    for number, question in enumerate(QUESTIONS):
        await before_turn(chat.id)
        turns.append(await chat.say(question, params=drawn(number)))
    await before_turn(chat.id)
    turns.append(await chat.regenerate(turns[-1], params=drawn(7)))
    await before_turn(chat.id)
    fork = await chat.fork(turns[1].id)
    turns.append(await fork.say("And hail?", params=drawn(8)))
    return turns


async def test_answers_stay_the_same_when_everything_is_dropped_between_turns(manager, engine):
    async def keep(_):
        pass

    async def drop(_):
        await engine.evict()

    async def drop_one(session_id):
        await engine.evict(session_id)

    kept = await chat(manager, keep)
    await engine.evict()
    dropped = await chat(manager, drop)
    released = await chat(manager, drop_one)

    replies = [turn.reply_text for turn in kept]
    assert all(replies)
    assert [turn.reply_text for turn in dropped] == replies
    assert [turn.reply_text for turn in released] == replies
    for turn in dropped[1:]:
        assert turn.usage.claim.reason is MissReason.EVICTED
        assert turn.usage.claim.num_reused == 0
        assert turn.usage.num_rows_computed == turn.usage.input_tokens + 10 - 1
    for turn in kept[1:]:
        assert turn.usage.claim.reason is None
        assert turn.usage.cached_tokens > 0
    rows = [sum(t.usage.num_rows_computed for t in turns) for turns in (kept, dropped, released)]
    print(f"rows with the cache {rows[0]}, with nothing {rows[1]}, own dropped {rows[2]}")
    assert rows[0] < rows[1] / 2


async def test_a_conversation_goes_on_exactly_after_its_blocks_went_to_others(manager, engine):
    first = await Chat.open(manager)
    await first.say("Tell me about the moon.", params=drawn(1))
    undisturbed = await first.say("Is it far?", params=drawn(2))

    again = await Chat.open(manager)
    await again.say("Tell me about the moon.", params=drawn(1))
    for number in range(4):
        other = await Chat.open(manager, instructions=f"You are number {number}. " * 30)
        await other.say("Hello.", params=drawn(number))
    disturbed = await again.say("Is it far?", params=drawn(2))

    assert disturbed.usage.claim.reason is MissReason.EVICTED
    assert disturbed.reply_text == undisturbed.reply_text
    stats = await engine.stats()
    assert stats.evicted_blocks_total > 0
    assert stats.books_failures_total == 0
