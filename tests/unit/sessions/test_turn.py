"""A turn: what its readers see, how it ends, and what is durable when."""

import asyncio
from contextlib import asynccontextmanager

import pytest

from model.errors import EngineBusyError, EngineDiedError
from model.messages import FinishReason
from sessions.errors import StoreUnavailableError
from sessions.manager import ManagerConfig, SessionManager
from sessions.replay import replay
from sessions.store import Store
from sessions.types import ReplyDelta, TurnEnded, TurnMetrics, TurnStatus
from tests.support.chat import ANN, Chat
from tests.support.fake_engine import EOS, FakeReply, encode


@asynccontextmanager
async def make_manager(store, engine, clock, renderer, **options):
    config = ManagerConfig(runner_id="runner-1", **options)
    async with SessionManager(store=store, engine=engine, clock=clock, config=config) as manager:
        manager.use_renderer(renderer)
        yield manager


class FlakyStore(Store):
    """Can't write a turn's end the first few times."""

    def __init__(self, database, *, num_failures: int) -> None:
        super().__init__(database)
        self.num_failures = num_failures

    async def end_turn(self, lease, turn, ids):
        if self.num_failures:
            self.num_failures -= 1
            raise StoreUnavailableError("the disk is full")
        return await super().end_turn(lease, turn, ids)


async def test_a_turns_reply_is_streamed_and_kept(manager):
    chat = await Chat.open(manager)

    submitted = await chat.submit("hello")
    events = await chat.read(submitted)

    assert [n for n, _ in events] == list(range(len(events)))
    assert [e.text for _, e in events if isinstance(e, ReplyDelta)] == ["Hel", "lo"]
    ended = events[-1][1].turn
    assert (ended.status, ended.reply_text) == (TurnStatus.COMPLETED, "Hello")
    assert ended.input_items[0].text == "hello"
    assert await manager.turn(ANN, submitted.id) == ended


async def test_a_turn_read_again_has_the_same_events_under_the_same_numbers(manager):
    chat = await Chat.open(manager)
    turn = await chat.submit()
    live = await chat.read(turn)

    stored = await chat.read(turn)

    assert manager.num_active == 0
    assert stored == live
    assert await chat.read(turn, after=4) == live[5:]
    assert await chat.read(turn, after=1000) == live[-1:]


async def test_a_reader_may_come_in_mid_reply_with_a_cursor(manager, engine):
    engine.replies.append(FakeReply(pieces=("a", "b", "c"), holds_after=2))
    chat = await Chat.open(manager)
    turn = await chat.submit()
    await engine.held(turn.id)

    reader = manager.read(ANN, turn.id, after=4)
    number, event = await anext(reader)
    engine.let_go()

    assert (number, event.text) == (5, "b")
    rest = [n async for n, _ in reader]
    assert rest == list(range(6, 6 + len(rest)))


async def test_a_running_turn_shows_its_reply_so_far(manager, engine):
    engine.replies.append(FakeReply(pieces=("a", "b"), holds_after=1))
    chat = await Chat.open(manager)
    turn = await chat.submit()
    await engine.held(turn.id)

    shown = await manager.turn(ANN, turn.id)

    assert (shown.status, shown.reply_text) == (TurnStatus.RUNNING, "a")
    assert (await chat.turns())[0].reply_text == "a"


async def test_the_input_is_durable_before_the_engine_sees_it(manager, engine, store):
    seen = []
    engine.on_start = lambda request: seen.append(
        asyncio.ensure_future(store.any_turn(request.request_id))
    )
    chat = await Chat.open(manager)

    await chat.say("remember me")

    stored = await seen[0]
    assert stored.input_items[0].text == "remember me"


async def test_the_reply_is_durable_before_its_end_is_shown(manager, store):
    chat = await Chat.open(manager)
    turn = await chat.submit()

    async for _, event in manager.read(ANN, turn.id):
        if isinstance(event, TurnEnded):
            stored = await store.any_turn(turn.id)

    assert (stored.status, stored.reply_text) == (TurnStatus.COMPLETED, "Hello")


async def test_the_turn_goes_on_when_whoever_submitted_it_is_cancelled(manager, engine, store):
    chat = await Chat.open(manager)
    submitting = asyncio.ensure_future(chat.submit("hello"))
    await asyncio.sleep(0)  # it has begun
    assert manager.num_active == 1

    submitting.cancel()
    await manager.drain(timeout_s=30)

    assert submitting.cancelled()
    (turn,) = await chat.turns()
    assert (turn.status, turn.reply_text) == (TurnStatus.COMPLETED, "Hello")


async def test_usage_and_timing_are_the_engines_seen_from_submission(manager):
    chat = await Chat.open(manager)

    turn = await chat.say()
    events = await chat.read(turn)

    usage, timing = turn.usage, turn.timing
    assert usage.cached_tokens + usage.cache_write_tokens == usage.input_tokens
    assert usage.output_tokens == len("Hello") + 1
    assert usage.num_rows_computed == usage.claim.computed + usage.output_tokens - 1
    assert timing.first_token_s - timing.queue_s == pytest.approx(0.25)
    assert timing.queue_s > 0.25
    assert timing.tokens_per_s == pytest.approx(5.0)
    assert isinstance(events[-2][1], TurnMetrics)


async def test_a_reply_cut_by_the_limit_is_incomplete(manager, engine):
    engine.replies.append(FakeReply(reason=FinishReason.LENGTH))

    turn = await (await Chat.open(manager)).say()

    assert (turn.status, turn.incomplete_reason) == (TurnStatus.INCOMPLETE, "max_output_tokens")


async def test_text_the_engine_held_back_comes_as_one_last_delta(manager, engine):
    engine.replies.append(FakeReply(pieces=("ab",), final_text="abcd"))
    chat = await Chat.open(manager)

    turn = await chat.say()

    assert (turn.reply_text, turn.delta_lengths) == ("abcd", (2, 2))
    assert await chat.read(turn) == list(enumerate(replay(turn)))


async def test_a_reply_less_than_was_shown_fails_the_turn_and_keeps_what_was_shown(manager, engine):
    engine.replies.append(FakeReply(pieces=("abcd",), final_text="ab"))

    turn = await (await Chat.open(manager)).say()

    assert (turn.status, turn.reply_text) == (TurnStatus.FAILED, "abcd")
    assert turn.error.code == "internal"


async def test_an_empty_reply_is_a_reply(manager, engine):
    engine.replies.append(FakeReply(pieces=()))
    chat = await Chat.open(manager)

    turn = await chat.say()

    assert (turn.status, turn.reply_text) == (TurnStatus.COMPLETED, "")
    assert await chat.read(turn) == list(enumerate(replay(turn)))


async def test_a_nul_that_the_model_wrote_is_stored_as_a_replacement(manager, engine):
    engine.replies.append(FakeReply(pieces=("a\0", "b")))

    turn = await (await Chat.open(manager)).say()

    assert turn.reply_text == "a\N{REPLACEMENT CHARACTER}b"


async def test_cancel_keeps_the_partial_reply(manager, engine):
    engine.replies.append(FakeReply(pieces=("a", "b", "c"), holds_after=2))
    chat = await Chat.open(manager)
    turn = await chat.submit()
    await engine.held(turn.id)

    cancelled = await manager.cancel(ANN, turn.id)

    assert (cancelled.status, cancelled.reply_text) == (TurnStatus.CANCELLED, "ab")
    assert cancelled.usage.output_tokens == 2
    assert await manager.turn(ANN, turn.id) == cancelled


async def test_cancelling_an_ended_turn_returns_it_as_it_is(manager):
    chat = await Chat.open(manager)
    turn = await chat.say()

    assert await manager.cancel(ANN, turn.id) == turn


async def test_a_cancel_that_comes_before_the_first_token_is_heard(manager, engine):
    engine.replies.append(FakeReply(holds_after=0))
    chat = await Chat.open(manager)
    turn = await chat.submit()

    cancelled = await manager.cancel(ANN, turn.id)

    assert (cancelled.status, cancelled.reply_text) == (TurnStatus.CANCELLED, "")


async def test_a_cancel_that_the_engine_does_not_hear_ends_the_turn_all_the_same(
    store, engine, clock, renderer
):
    engine.replies.append(FakeReply(holds_after=1))
    engine.ignores_cancel = True
    async with make_manager(store, engine, clock, renderer, cancel_grace_s=0.01) as manager:
        chat = await Chat.open(manager)
        turn = await chat.submit()
        await engine.held(turn.id)

        cancelled = await manager.cancel(ANN, turn.id)

    assert (cancelled.status, cancelled.reply_text) == (TurnStatus.CANCELLED, "Hel")
    assert cancelled.usage is None


async def test_an_engine_that_refuses_is_a_failed_turn(manager, engine):
    engine.replies.append(FakeReply(pieces=(), error=EngineBusyError("too many wait")))
    chat = await Chat.open(manager)

    turn = await chat.say()

    assert turn.status is TurnStatus.FAILED
    assert (turn.error.code, turn.error.retryable) == ("engine_busy", True)
    assert len(await chat.read(turn)) == 3


async def test_an_engine_that_dies_keeps_what_it_said(manager, engine):
    engine.replies.append(FakeReply(holds_after=1))
    chat = await Chat.open(manager)
    turn = await chat.submit()
    await engine.held(turn.id)

    engine.die()
    ended = await chat.end(turn)

    assert (ended.status, ended.reply_text) == (TurnStatus.FAILED, "Hel")
    assert ended.error.code == EngineDiedError.code
    assert await chat.read(turn) == list(enumerate(replay(ended)))


async def test_the_log_is_the_prompt_and_what_was_committed(manager, engine, store):
    chat = await Chat.open(manager)
    turn = await chat.say()

    span = (await store.spans(turn.id))[-1]

    assert span.prompt_ids == engine.requests[0].token_ids
    assert span.reply_ids == (*encode("Hello"), EOS)


async def test_a_store_that_fails_for_a_moment_delays_the_end(engine, clock, renderer, database):
    store = FlakyStore(database, num_failures=1)
    async with make_manager(store, engine, clock, renderer) as manager:
        turn = await (await Chat.open(manager)).say()

    assert turn.status is TurnStatus.COMPLETED


async def test_a_reply_that_cannot_be_stored_is_never_shown_as_complete(
    engine, clock, renderer, database, monkeypatch
):
    monkeypatch.setattr("sessions.turn.COMMIT_RETRIES_S", (0.0, 0.0))
    store = FlakyStore(database, num_failures=100)
    async with make_manager(store, engine, clock, renderer) as manager:
        chat = await Chat.open(manager)
        turn = await chat.say()

        assert (turn.status, turn.error.code) == (TurnStatus.FAILED, "store_unavailable")
        assert turn.error.retryable
        # The row is still active; it belongs to nobody, and recovery ends it.
        assert await manager.recover() == 1
        assert (await manager.turn(ANN, turn.id)).status is TurnStatus.INTERRUPTED


class BrokenStore(Store):
    """Trips over our own mistake in the end of every turn that says "broken"."""

    async def end_turn(self, lease, turn, ids):
        if turn.input_items[0].text == "broken":
            raise ValueError("a bug")
        return await super().end_turn(lease, turn, ids)


async def test_an_end_that_our_own_mistake_spoils_ends_no_other_turn(
    engine, clock, renderer, database
):
    async with make_manager(BrokenStore(database), engine, clock, renderer) as manager:
        engine.replies += [FakeReply(holds_after=1), FakeReply()]
        chat, other = await Chat.open(manager), await Chat.open(manager)
        held = await chat.submit("hello")
        await engine.held(held.id)

        broken = await other.say("broken")
        engine.let_go()

        assert (broken.status, broken.error.code) == (TurnStatus.FAILED, "internal")
        assert (await chat.end(held)).status is TurnStatus.COMPLETED
