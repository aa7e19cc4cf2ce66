"""Warming: what the next turn begins with is on the device, and it is counted whether it paid."""

import pytest

from model.messages import ClaimReport
from sessions.errors import InvalidInputError, SessionNotFoundError
from sessions.types import ReasoningPolicy
from sessions.warming import WarmingLedger
from tests.support.chat import ANN, BOB, Chat
from tests.support.fake_engine import FakeReply
from tests.support.fake_presence import DISK

COME = ClaimReport(num_prompt_tokens=40, from_disk=32, computed=8)
THERE = ClaimReport(num_prompt_tokens=40, from_device=39, computed=1)


@pytest.fixture
def ledger(clock):
    return WarmingLedger(clock)


async def test_it_is_a_generation_of_no_tokens_at_the_heads_whole_log(manager, engine):
    chat = await Chat.open(manager, retain_s=60.0, priority=3)
    turn = await chat.say("one")
    engine.default = FakeReply(pieces=())

    warmed = await manager.presence.warm(ANN, chat.id, deadline_s=2.0)

    first, asked = engine.requests
    assert asked.request_id not in (turn.id, first.request_id)
    assert asked.token_ids[: len(first.token_ids)] == first.token_ids
    assert (asked.parent_turn_id, asked.conversation_id) == (turn.id, chat.id)
    assert (asked.params.max_output_tokens, asked.params.deadline_s) == (0, 2.0)
    assert (asked.retain_s, asked.priority) == (60.0, 3)
    assert warmed.turn_id == turn.id
    assert warmed.claim.num_prompt_tokens == len(asked.token_ids)


async def test_a_warmed_table_is_what_the_next_turn_claims(chatting):
    async with chatting("chatml") as chat:
        await chat.say("one")
        warmed = await chat.chat.manager.presence.warm(ANN, chat.chat.id, deadline_s=2.0)
        turn = await chat.say("two")

    assert (warmed.is_whole, warmed.claim.computed) == (True, 1)
    assert turn.usage.claim.from_device >= warmed.claim.num_prompt_tokens - 1


async def test_without_a_turn_or_in_another_models_tokens_there_is_nothing(manager, engine):
    chat = await Chat.open(manager)
    before = await manager.presence.warm(ANN, chat.id, deadline_s=2.0)
    await chat.say("one")
    engine.becomes(fingerprint="another")

    after = await manager.presence.warm(ANN, chat.id, deadline_s=2.0)

    assert (before.turn_id, after.turn_id) == (None, None)
    assert len(engine.requests) == 1


async def test_a_session_whose_head_runs_is_warm(manager, engine):
    engine.replies.append(FakeReply(holds_after=0))
    chat = await Chat.open(manager)
    turn = await chat.submit()
    await engine.held(turn.id)

    warmed = await manager.presence.warm(ANN, chat.id, deadline_s=2.0)
    engine.let_go()
    await chat.end(turn)

    assert (warmed.turn_id, warmed.is_whole) == (turn.id, True)
    assert len(engine.requests) == 1


async def test_dropped_reasoning_is_not_warmed_but_what_follows_without_it(chatting):
    async with chatting("qwen3", reasoning=ReasoningPolicy.DROP) as chat:
        await chat.say("one")
        await chat.chat.manager.presence.warm(ANN, chat.chat.id, deadline_s=2.0)
        turn = await chat.say("two")

    assert turn.usage.claim.computed < 40


async def test_anothers_session_is_not_found(manager):
    chat = await Chat.open(manager)

    with pytest.raises(SessionNotFoundError):
        await manager.presence.warm(BOB, chat.id, deadline_s=2.0)
    with pytest.raises(SessionNotFoundError):
        await manager.presence.park(BOB, chat.id, "disk")


async def test_a_session_is_parked_in_a_tier_that_there_is(manager, engine):
    chat = await Chat.open(manager)
    await chat.say("one")
    with pytest.raises(InvalidInputError, match="no tier at all"):
        await manager.presence.park(ANN, chat.id, "disk")
    engine.tiers = (DISK,)
    with pytest.raises(InvalidInputError, match="only disk"):
        await manager.presence.park(ANN, chat.id, "cpu")

    assert await manager.presence.park(ANN, chat.id, "disk")
    assert engine.parked == [(chat.id, "disk")]


def test_what_is_used_in_time_has_paid(ledger, clock):
    ledger.warmed("request", "conv_1", COME)
    clock.advance(599)
    ledger.used("request", "conv_1")
    ledger.used("request", "conv_1")

    stats = ledger.stats()

    assert dict(stats.outcomes) == {("request", "used"): 1}
    assert dict(stats.tokens) == {
        ("request", "cpu"): 0,
        ("request", "disk"): 32,
        ("request", "computed"): 8,
    }


def test_what_nobody_uses_was_in_vain_and_what_was_there_needless(ledger, clock):
    ledger.warmed("request", "conv_1", COME)
    ledger.warmed("request", "conv_2", THERE)
    clock.advance(601)
    ledger.used("request", "conv_1")

    assert dict(ledger.stats().outcomes) == {
        ("request", "in_vain"): 1,
        ("request", "needless"): 1,
    }


async def test_a_turn_behind_a_warming_counts_as_its_use(chatting, clock):
    async with chatting("chatml") as chat:
        await chat.say("one")
        await chat.engine.evict(None)
        await chat.chat.manager.presence.warm(ANN, chat.chat.id, deadline_s=2.0)
        await chat.say("two")

    assert dict(chat.chat.manager.presence.ledger.stats().outcomes) == {("request", "used"): 1}
