"""Prompts: the log goes on id for id, whatever happened to the turn before."""

import pytest

from model.config import SamplingParams
from model.errors import EngineDiedError
from model.messages import FinishReason
from sessions.manager import ManagerConfig, SessionManager
from sessions.prompt import PromptComposer
from sessions.types import InputMessage, TurnStatus
from tests.support import tiny_tokenizer as tiny
from tests.support.chat import ANN, Chat
from tests.support.fake_engine import EOS, FakeEngine, FakeReply, encode

DEAD = FakeReply(pieces=(), error=EngineDiedError("gone"))


def fed(engine: FakeEngine, number: int = -1) -> tuple[int, ...]:
    return engine.requests[number].token_ids


@pytest.fixture
def with_template(store, engine, clock):
    """A manager whose model has another chat template."""

    def make(template: str | None) -> SessionManager:
        config = ManagerConfig(runner_id="runner-1")
        made = SessionManager(store=store, engine=engine, clock=clock, config=config)
        made.use_renderer(tiny.make_renderer(template))
        return made

    return make


async def test_each_prompt_is_the_log_before_it_and_more(manager, engine):
    chat = await Chat.open(manager)
    for text in ("one", "two", "three"):
        await chat.say(text)

    for number in (1, 2):
        before = fed(engine, number - 1) + encode("Hello") + (EOS,)
        request = engine.requests[number]
        assert request.token_ids[: len(before)] == before
        assert request.num_known_tokens == len(before)
        assert request.parent_turn_id == engine.requests[number - 1].request_id
        assert request.conversation_id == chat.id
        assert request.diverged_at is None


async def test_from_the_second_turn_on_only_what_is_new_is_computed(manager, engine):
    chat = await Chat.open(manager)
    first = await chat.say("one")
    second = await chat.say("two")

    new = len(fed(engine, 1)) - len(fed(engine, 0)) - first.usage.output_tokens
    # The reply's last sampled token was never fed.
    assert second.usage.claim.computed == new + 1


async def test_what_is_stored_gives_the_same_prompt_as_what_is_in_memory(
    manager, engine, store, renderer
):
    chat = await Chat.open(manager, instructions="Be brief.")
    await chat.say("one")
    last = await chat.say("two")

    forgetful = PromptComposer(store, engine)
    forgetful.use_renderer(renderer)
    message = InputMessage(role="user", text="three")
    session = await manager.get(ANN, chat.id)
    prompt = await forgetful.compose(session, last, (message,))
    await chat.say("three")

    assert fed(engine) == prompt.token_ids


async def test_instructions_are_said_once_at_the_beginning(manager, engine):
    tokenizer = tiny.make_tokenizer(tiny.SMOLLM2)
    chat = await Chat.open(manager, instructions="Be brief.")
    await chat.say("one")
    start = len(fed(engine))
    await chat.say("two")

    first, added = tokenizer.decode(fed(engine)[:start]), tokenizer.decode(fed(engine)[start:])
    assert first.startswith("<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\none")
    assert "system" not in added


async def test_a_cut_reply_is_closed_before_the_next_turn(manager, engine):
    engine.replies.append(FakeReply(reason=FinishReason.LENGTH))
    chat = await Chat.open(manager)
    await chat.say("one")
    await chat.say("two")

    before = fed(engine, 0) + encode("Hello")
    assert fed(engine)[: len(before) + 1] == (*before, EOS)


async def test_a_cancelled_reply_is_part_of_the_conversation(manager, engine):
    engine.replies.append(FakeReply(pieces=("a", "b"), holds_after=1))
    chat = await Chat.open(manager)
    turn = await chat.submit("one")
    await engine.held(turn.id)
    await manager.cancel(ANN, turn.id)

    await chat.say("two")

    before = fed(engine, 0) + encode("a")
    assert fed(engine)[: len(before)] == before


async def test_a_turn_that_failed_without_a_word_is_skipped(manager, engine):
    chat = await Chat.open(manager)
    good = await chat.say("one")
    engine.replies += [DEAD, DEAD]
    await chat.say("lost")
    failed = await chat.say("lost too")

    after = await chat.say("two")

    assert after.parent_id == failed.id
    before = fed(engine, 0) + encode("Hello") + (EOS,)
    assert fed(engine)[: len(before)] == before
    assert engine.requests[-1].parent_turn_id == good.id
    decoded = tiny.make_tokenizer(None).decode(fed(engine)[len(before) :])
    assert "lost" not in decoded
    assert [t.id for t in await chat.turns()][-1] == after.id


async def test_a_first_turn_that_failed_leaves_a_fresh_start(manager, engine):
    chat = await Chat.open(manager, instructions="Be brief.")
    engine.replies.append(DEAD)
    await chat.say("one")

    await chat.say("one")

    assert fed(engine, 1) == fed(engine, 0)
    assert engine.requests[1].parent_turn_id is None
    assert engine.requests[1].num_known_tokens == 0


async def test_a_turn_that_failed_in_mid_reply_is_built_on(manager, engine):
    engine.replies.append(FakeReply(holds_after=1))
    chat = await Chat.open(manager)
    turn = await chat.submit("one")
    await engine.held(turn.id)
    engine.die()
    await chat.end(turn)

    await chat.say("two")

    before = fed(engine, 0) + encode("Hel")
    assert fed(engine)[: len(before)] == before


async def test_regenerate_feeds_the_same_prompt_from_the_siblings_table(manager, engine):
    chat = await Chat.open(manager)
    await chat.say("one")
    turn = await chat.say("two")

    again = await chat.regenerate(turn)

    request = engine.requests[-1]
    assert request.token_ids == fed(engine, -2)
    assert request.parent_turn_id == turn.id
    assert request.num_known_tokens == len(request.token_ids)
    assert again.usage.claim.computed == 1


async def test_regenerating_a_failed_turn_feeds_the_same_prompt(manager, engine):
    chat = await Chat.open(manager)
    good = await chat.say("one")
    engine.replies.append(DEAD)
    failed = await chat.say("two")

    again = await chat.regenerate(failed)

    assert again.status is TurnStatus.COMPLETED
    assert fed(engine) == fed(engine, -2)
    assert engine.requests[-1].parent_turn_id == good.id


async def test_what_follows_a_regenerated_turn_is_built_on_its_own_reply(manager, engine):
    chat = await Chat.open(manager)
    turn = await chat.say("one")
    engine.replies.append(FakeReply(pieces=("Other",)))
    await chat.regenerate(turn)

    await chat.say("two")

    before = fed(engine, 0) + encode("Other")
    assert fed(engine)[: len(before)] == before


async def test_a_fork_goes_on_from_its_origins_log_and_table(manager, engine):
    chat = await Chat.open(manager)
    turn = await chat.say("one")
    fork = await chat.fork()

    forked = await fork.say("two")

    before = fed(engine, 0) + encode("Hello") + (EOS,)
    assert fed(engine)[: len(before)] == before
    request = engine.requests[-1]
    assert (request.parent_turn_id, request.conversation_id) == (turn.id, fork.id)
    assert forked.usage.cached_tokens == len(before) - 1


async def test_another_model_is_told_everything_anew(manager, engine, store):
    chat = await Chat.open(manager)
    turn = await chat.say("one")
    engine.becomes(fingerprint="fake-2", model_id="other")

    await chat.say("two")
    session = await manager.get(ANN, chat.id)

    request = engine.requests[-1]
    assert request.parent_fingerprint == "fake-1"
    assert request.num_known_tokens > 0
    tokenizer = tiny.make_tokenizer(None)
    assert "assistant\nHello<|im_end|>" in tokenizer.decode(request.token_ids)
    assert (session.model, session.fingerprint) == ("other", "fake-2")
    again = await chat.regenerate(turn)
    assert again.model == "other"
    assert engine.requests[-1].token_ids == fed(engine, 0)

    await chat.say("three")
    assert engine.requests[-1].parent_fingerprint == "fake-2"


async def test_an_end_token_that_the_template_does_not_use_is_taken_off(with_template, engine):
    async with with_template(tiny.MOVING) as manager:
        chat = await Chat.open(manager)
        engine.replies.append(FakeReply(pieces=("Hi",)))
        await chat.say("one")
        await chat.say("two")

    # The reply ended with <|im_end|>; this template closes replies with </s>.
    before = fed(engine, 0) + encode("Hi")
    assert fed(engine)[: len(before) + 1] == (*before, 4)
    assert engine.requests[-1].num_known_tokens == len(before)


async def test_a_template_that_rewrites_history_is_rendered_again_up_to_where_it_differs(
    with_template, engine, store
):
    tokenizer = tiny.make_tokenizer(None)
    async with with_template(tiny.FORGETTING) as manager:
        chat = await Chat.open(manager)
        engine.replies.append(FakeReply(pieces=("<think>hm</think>Hello",)))
        first = await chat.say("one")
        second = await chat.say("two")

    request, span = engine.requests[-1], (await store.spans(second.id))[-1]
    prompt_size = len(fed(engine, 0))
    assert request.diverged_at == request.num_known_tokens == span.keep_tokens == prompt_size
    assert (span.base_id, request.parent_turn_id) == (first.id, first.id)
    decoded = tokenizer.decode(request.token_ids)
    assert "think" not in decoded
    assert "assistant\nHello<|im_end|>" in decoded


async def test_a_template_that_moves_the_system_message_is_told_if_there_is_one(
    with_template, engine
):
    async with with_template(tiny.MOVING) as manager:
        bare = await Chat.open(manager)
        await bare.say("one")
        await bare.say("two")
        assert engine.requests[-1].diverged_at is None

        instructed = await Chat.open(manager, instructions="Be brief.")
        await instructed.say("one")
        await instructed.say("two")

    assert engine.requests[-1].diverged_at is not None
    decoded = tiny.make_tokenizer(None).decode(engine.requests[-1].token_ids)
    assert "[INST] one [/INST]" in decoded
    assert "[INST] Be brief.\n\ntwo [/INST]" in decoded


async def test_the_templates_clock_is_the_sessions_own_also_in_its_forks(
    with_template, engine, clock
):
    tokenizer = tiny.make_tokenizer(None)
    async with with_template(tiny.DATED) as manager:
        chat = await Chat.open(manager)
        clock.advance(3 * 86_400)
        first = await chat.say("one")
        fork = await chat.fork()
        await fork.say("anew", parent=None, parent_given=True)

    assert first.created_at.day != chat.session.created_at.day
    for request in engine.requests:
        assert tokenizer.decode(request.token_ids).startswith("Today is 01 Mar 2026.")


async def test_a_model_without_a_template_chats_in_plain_words(with_template, engine):
    async with with_template(None) as manager:
        chat = await Chat.open(manager, instructions="Be brief.")
        await chat.say("one")
        await chat.say("two")

    first = tiny.make_tokenizer(None).decode(fed(engine, 0))
    assert first == "System:\nBe brief.\n\nUser:\none\n\nAssistant:\n"
    before = fed(engine, 0) + encode("Hello")
    assert fed(engine)[: len(before)] == before
    assert EOS not in fed(engine)


async def test_every_parameter_reaches_the_engine(manager, engine):
    params = SamplingParams(
        max_output_tokens=5, stop=("a",), stop_token_ids=(9,), logit_bias=((3, 0.5),), seed=1
    )
    chat = await Chat.open(manager)

    turn = await chat.say(params=params)

    assert engine.requests[-1].params == params
    assert engine.requests[-1].owner == ANN
    assert (await manager.turn(ANN, turn.id)).params == params
