"""A reply is kept while it grows, beside its stream and never in its way."""

import asyncio
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from sessions.checkpoints import Checkpoints, LeaseLostError
from sessions.errors import StoreUnavailableError
from sessions.manager import ManagerConfig, SessionManager
from sessions.store import Store
from sessions.turn_writes import Checkpoint
from sessions.types import ReplyDelta, TurnStatus
from tests.support.chat import Chat
from tests.support.clock import FakeClock
from tests.support.fake_engine import FakeReply, encode
from tests.support.postgres import DATABASES
from tests.support.turns import make_turn

CHECKPOINT = Checkpoint(text="a", delta_lengths=(1,), ids=(1,))


@pytest.fixture(params=DATABASES)
def database_kind(request):
    return request.param


class SlowStore(Store):
    """Writes a checkpoint when it may; `ending` is what comes of it, if not the usual."""

    def __init__(self, database) -> None:
        super().__init__(database)
        self.begun: asyncio.Queue[str] = asyncio.Queue()
        self.written: asyncio.Queue[str] = asyncio.Queue()
        self.may_write = asyncio.Event()
        self.ending: Exception | bool | None = None

    async def checkpoint(self, lease, checkpoint):
        self.begun.put_nowait(checkpoint.text)
        await self.may_write.wait()
        if isinstance(self.ending, Exception):
            raise self.ending
        is_ours = await super().checkpoint(lease, checkpoint)
        self.written.put_nowait(checkpoint.text)
        return is_ours if self.ending is None else self.ending


@pytest.fixture
def slow(database):
    return SlowStore(database)


@pytest.fixture
def serving(slow, engine, clock, renderer):
    @asynccontextmanager
    async def start(**options):
        config = ManagerConfig(runner_id="runner-1", **options)
        async with SessionManager(store=slow, engine=engine, clock=clock, config=config) as manager:
            manager.use_renderer(renderer)
            try:
                yield manager
            finally:
                slow.may_write.set()

    return start


async def test_a_checkpoint_has_the_reply_so_far_and_its_ids(serving, engine, slow):
    slow.may_write.set()
    engine.replies.append(FakeReply(pieces=("a", "b", "c"), holds_after=3))
    async with serving() as manager:
        turn = await (await Chat.open(manager)).submit()
        await engine.held(turn.id)
        # The first delta is kept at once; the others came within the second behind it.
        assert await slow.written.get() == "a"

        stored, span = await slow.any_turn(turn.id), (await slow.spans(turn.id))[-1]

        assert (stored.status, stored.reply_text) == (TurnStatus.RUNNING, "a")
        assert stored.delta_lengths == (1,)
        assert span.reply_ids == encode("a")


async def test_a_slow_disk_delays_no_token_but_the_end_waits_for_it(serving, engine, slow):
    engine.replies.append(FakeReply(pieces=("a", "b", "c")))
    async with serving(checkpoint_s=0) as manager:
        chat = await Chat.open(manager)
        turn = await chat.submit()
        shown = []
        async for _, event in manager.read(chat.owner, turn.id):
            if isinstance(event, ReplyDelta):
                shown.append(event.text)
            if len(shown) == 3:
                break
        assert shown == ["a", "b", "c"]
        # Nobody waited between them, so the newest of them is the first that is written.
        assert await slow.begun.get() == "abc"
        assert (await slow.any_turn(turn.id)).status is TurnStatus.PENDING

        slow.may_write.set()

        assert (await chat.end(turn)).reply_text == "abc"
        assert slow.begun.empty()
        assert (await slow.any_turn(turn.id)).status is TurnStatus.COMPLETED


@pytest.mark.parametrize(
    ("ending", "status", "code"),
    [
        (StoreUnavailableError("full"), TurnStatus.COMPLETED, None),
        (ValueError("a bug"), TurnStatus.FAILED, "internal"),
    ],
)
async def test_what_comes_of_a_checkpoint_comes_out(serving, engine, slow, ending, status, code):
    slow.ending = ending
    slow.may_write.set()
    async with serving() as manager:
        turn = await (await Chat.open(manager)).say()

    assert turn.status is status
    assert (turn.error.code if turn.error is not None else None) == code
    assert (await slow.any_turn(turn.id)).status is status


async def test_who_lost_the_lease_hears_of_it_and_writes_nothing_more(serving, engine, slow, clock):
    engine.replies.append(FakeReply(pieces=("a", "b"), holds_after=1))
    async with serving() as manager:
        chat = await Chat.open(manager)
        turn = await chat.submit()
        await engine.held(turn.id)
        await slow.interrupt_abandoned("runner-1", clock(), spare=())
        slow.may_write.set()
        await slow.written.get()
        engine.let_go()

        ended = await chat.end(turn)

    assert (ended.status, ended.reply_text) == (TurnStatus.INTERRUPTED, "")


async def test_there_is_one_at_a_time_and_the_newest_follows(slow, monkeypatch):
    written = []

    async def write(self, lease, checkpoint):
        written.append(checkpoint.text)
        return True

    monkeypatch.setattr(Store, "checkpoint", write)
    clock = FakeClock()
    kept = Checkpoints(slow, make_turn(), every_s=1.0)
    assert kept.is_due(clock())
    kept.take(None, CHECKPOINT, clock())
    assert not kept.is_due(clock())
    assert await slow.begun.get() == "a"
    for text in ("ab", "abc"):
        clock.advance(1)
        assert kept.is_due(clock())
        kept.take(None, replace(CHECKPOINT, text=text), clock())
    assert written == []
    kept.check()

    slow.may_write.set()
    await kept.settle()

    assert written == ["a", "abc"]


async def test_a_lost_lease_is_raised_once_it_is_known(slow, monkeypatch):
    async def lost(self, lease, checkpoint):
        return False

    monkeypatch.setattr(Store, "checkpoint", lost)
    slow.may_write.set()
    kept = Checkpoints(slow, make_turn(), every_s=0)
    kept.take(None, CHECKPOINT, FakeClock()())

    await kept.over()

    with pytest.raises(LeaseLostError):
        kept.check()
    with pytest.raises(LeaseLostError):
        await kept.settle()
