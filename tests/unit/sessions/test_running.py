"""What runs here: its leases, and the end of what nobody runs."""

import asyncio
from contextlib import asynccontextmanager
from datetime import timedelta

import pytest

from model.errors import EngineBusyError
from model.messages import FinishReason
from sessions import running
from sessions.errors import DrainingError, IdempotencyConflictError, StoreUnavailableError
from sessions.manager import ManagerConfig, SessionManager
from sessions.places import Places
from sessions.store import Store
from sessions.types import TurnStatus
from tests.support.chat import ANN, Chat
from tests.support.fake_engine import FakeReply
from tests.support.postgres import DATABASES


@pytest.fixture(params=DATABASES)
def database_kind(request):
    return request.param


SOON = 0.01


class WatchedStore(Store):
    """Says when leases were renewed; fails to as often as it is told to."""

    def __init__(self, database, *, num_failures: int = 0) -> None:
        super().__init__(database)
        self.num_failures = num_failures
        self.renewed: asyncio.Queue = asyncio.Queue()
        self.tended: asyncio.Queue = asyncio.Queue()

    async def renew(self, runner_id, turn_ids, until):
        if self.num_failures:
            self.num_failures -= 1
            raise StoreUnavailableError("not now")
        await super().renew(runner_id, turn_ids, until)
        self.renewed.put_nowait((runner_id, turn_ids, until))

    async def interrupt_abandoned(self, runner_id, now, *, spare):
        ended = await super().interrupt_abandoned(runner_id, now, spare=spare)
        self.tended.put_nowait(ended)
        return ended


@asynccontextmanager
async def serve(store, engine, clock, renderer, *, runner_id="runner-1", lease_s=30.0, **limits):
    config = ManagerConfig(runner_id=runner_id, lease_s=lease_s, **limits)
    async with SessionManager(store=store, engine=engine, clock=clock, config=config) as manager:
        manager.use_renderer(renderer)
        yield manager


async def test_a_running_turns_lease_is_renewed(database, engine, clock, renderer):
    store = WatchedStore(database, num_failures=1)
    engine.replies.append(FakeReply(holds_after=1))
    async with serve(store, engine, clock, renderer, lease_s=SOON) as manager:
        turn = await (await Chat.open(manager)).submit()

        runner_id, turn_ids, until = await store.renewed.get()

        assert (runner_id, turn_ids) == ("runner-1", (turn.id,))
        assert clock() < until + timedelta(seconds=SOON)
        assert (await manager.turn(ANN, turn.id)).status.is_active


async def test_what_another_server_left_behind_is_ended_when_its_lease_is_over(
    database, engine, clock, renderer
):
    engine.replies.append(FakeReply(holds_after=1))
    store = WatchedStore(database)
    async with serve(store, engine, clock, renderer, runner_id="doomed") as doomed:
        turn = await (await Chat.open(doomed)).submit()
        await engine.held(turn.id)
        clock.advance(60)

        async with serve(store, engine, clock, renderer, lease_s=SOON) as manager:
            while await store.tended.get() != (turn.id,):
                pass
            assert (await manager.turn(ANN, turn.id)).status is TurnStatus.INTERRUPTED


async def test_leaving_the_manager_ends_what_runs(store, engine, clock, renderer):
    engine.replies.append(FakeReply(holds_after=1))
    async with serve(store, engine, clock, renderer) as manager:
        turn = await (await Chat.open(manager)).submit()
        await engine.held(turn.id)

    ended = await store.any_turn(turn.id)
    assert (ended.status, ended.reply_text) == (TurnStatus.INTERRUPTED, "Hel")


class DeafStore(Store):
    """Never takes a turn's end."""

    async def end_turn(self, lease, turn, ids):
        await asyncio.Event().wait()


@pytest.mark.parametrize("is_hurried", [False, True])
async def test_a_store_that_takes_no_end_does_not_keep_the_server(
    database, engine, clock, renderer, monkeypatch, is_hurried
):
    monkeypatch.setattr(running, "HURRIED_ENDS_WRITTEN_S", SOON)
    if not is_hurried:
        monkeypatch.setattr(running, "ENDS_WRITTEN_S", SOON)
    engine.replies.append(FakeReply(holds_after=1))
    store = DeafStore(database)
    async with asyncio.timeout(5):
        async with serve(store, engine, clock, renderer, cancel_grace_s=SOON) as manager:
            turn = await (await Chat.open(manager)).submit()
            await engine.held(turn.id)
            if is_hurried:
                manager.hurry()
            await manager.drain(0)
    assert (await store.any_turn(turn.id)).status.is_active

    async with serve(Store(database), engine, clock, renderer) as manager:
        await manager.recover()
        assert (await manager.turn(ANN, turn.id)).status is TurnStatus.INTERRUPTED


async def test_a_turn_too_many_is_refused_and_nothing_of_it_is_kept(store, engine, clock, renderer):
    engine.replies.append(FakeReply(holds_after=1))
    async with serve(store, engine, clock, renderer, max_turns=1) as manager:
        chat, other = await Chat.open(manager), await Chat.open(manager)
        running = await chat.submit()

        with pytest.raises(EngineBusyError):
            await other.submit()

        assert await other.turns(whole_tree=True) == ()
        await manager.cancel(ANN, running.id)
        assert (await other.say()).status is TurnStatus.COMPLETED


async def test_a_repetition_is_found_however_full_it_is(store, engine, clock, renderer):
    config = ManagerConfig(runner_id="runner-1", max_turns=2)
    places = Places(2)
    async with SessionManager(
        store=store, engine=engine, clock=clock, config=config, places=places
    ) as manager:
        manager.use_renderer(renderer)
        chat, other = await Chat.open(manager), await Chat.open(manager)
        first = await chat.say("one", client_turn_id="a")
        again = await chat.regenerate(first, client_turn_id="b")
        engine.replies.append(FakeReply(reason=FinishReason.LENGTH))
        cut = await chat.say("cut")
        rest = await chat.end(
            await manager.go_on(ANN, cut.id, max_more_tokens=3, client_turn_id="c")
        )
        engine.default = FakeReply(holds_after=1)
        running = [await chat.submit("d", client_turn_id="d"), await other.submit("e")]

        assert (await chat.submit("one", client_turn_id="a")).id == first.id
        assert (await chat.submit("d", client_turn_id="d")).id == running[0].id
        assert (await chat.regenerate(first, client_turn_id="b")).id == again.id
        assert (
            await manager.go_on(ANN, cut.id, max_more_tokens=3, client_turn_id="c")
        ).id == rest.id
        with pytest.raises(IdempotencyConflictError):
            await chat.submit("another", client_turn_id="a")
        for options in ({}, {"client_turn_id": "new"}):
            with pytest.raises(EngineBusyError):
                await chat.submit("more", **options)
        for turn in running:
            await manager.cancel(ANN, turn.id)
        await manager.drain(0)
        assert (await chat.submit("one", client_turn_id="a")).id == first.id
        with pytest.raises(DrainingError):
            await chat.submit("more")
