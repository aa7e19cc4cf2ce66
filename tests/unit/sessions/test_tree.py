"""The tree: going back to any branch of it, and replies that go on where they were cut."""

from dataclasses import replace

import pytest

from model.config import SamplingParams
from model.errors import ContextLengthError
from model.messages import FinishReason
from sessions.errors import (
    ConflictError,
    RevisionConflictError,
    SessionNotFoundError,
    TurnNotEndedError,
    TurnNotFoundError,
)
from sessions.manager import ManagerConfig, SessionManager
from sessions.rendering import Renderer
from sessions.reply import partial_reply
from sessions.types import TurnStatus
from tests.support.chat import ANN, BOB, Chat
from tests.support.fake_engine import EOS, INFO, FakeReply, encode
from tests.support.postgres import DATABASES
from tests.support.turns import make_turn


@pytest.fixture(params=DATABASES)
def database_kind(request):
    return request.param


CUT = FakeReply(pieces=("Once ", "upon"), reason=FinishReason.LENGTH)
REST = FakeReply(pieces=(" a ", "time"))


async def go_on(chat: Chat, turn, more: int | None = None, **options):
    begun = await chat.manager.go_on(chat.owner, turn.id, max_more_tokens=more, **options)
    return await chat.end(begun)


@pytest.fixture
async def chat(manager):
    return await Chat.open(manager)


async def test_a_moved_head_is_what_the_next_turn_follows(manager, chat):
    first, second = await chat.say("one"), await chat.say("two")

    moved = await manager.move_head(ANN, chat.id, first.id)
    third = await chat.say("three")

    assert moved.head_turn_id == first.id
    assert third.parent_id == first.id
    await manager.move_head(ANN, chat.id, second.id)
    assert [t.id for t in await chat.turns()] == [first.id, second.id]


async def test_a_head_that_is_nowhere_is_a_new_beginning(manager, chat):
    await chat.say("one")

    await manager.move_head(ANN, chat.id, None)

    assert (await chat.say("again")).parent_id is None


async def test_of_two_who_move_a_head_the_second_is_told(manager, chat):
    turn = await chat.say("one")
    revision = (await manager.get(ANN, chat.id)).revision
    await manager.move_head(ANN, chat.id, None, expected_revision=revision)

    with pytest.raises(RevisionConflictError):
        await manager.move_head(ANN, chat.id, turn.id, expected_revision=revision)


async def test_a_head_moves_to_the_sessions_own_turns_only(manager, chat):
    turn = await chat.say("one")
    other = await Chat.open(manager)
    fork = await chat.fork()

    with pytest.raises(TurnNotFoundError):
        await manager.move_head(ANN, other.id, turn.id)
    with pytest.raises(SessionNotFoundError):
        await manager.move_head(BOB, chat.id, turn.id)
    assert (await manager.move_head(ANN, fork.id, turn.id)).head_turn_id == turn.id


async def test_a_cut_reply_goes_on_in_a_sibling(chat, engine):
    engine.replies.extend([CUT, REST])
    cut = await chat.say("tell")

    turn = await go_on(chat, cut)

    assert turn.reply_text == "Once upon a time"
    assert (turn.parent_id, turn.input_items) == (cut.parent_id, cut.input_items)
    assert turn.status is TurnStatus.COMPLETED
    before, request = engine.requests
    assert request.token_ids == before.token_ids
    assert request.resumed_ids == encode("Once upon")
    assert request.parent_turn_id == cut.id
    assert (await chat.turns())[-1].id == turn.id


async def test_what_was_there_is_the_first_delta_live_and_replayed(chat, engine, manager):
    engine.replies.extend([CUT, replace(REST, holds_after=1)])
    cut = await chat.say("tell")
    begun = await manager.go_on(ANN, cut.id, max_more_tokens=None)
    await engine.held(begun.id)
    engine.let_go()

    live = await chat.read(begun)

    assert (await manager.turn(ANN, begun.id)).delta_lengths == (9, 3, 4)
    assert await chat.read(begun) == live


async def test_the_next_turn_is_built_on_the_whole_reply(chat, engine):
    engine.replies.extend([CUT, REST])
    cut = await chat.say("tell")
    await go_on(chat, cut)

    await chat.say("and then?")

    ids = engine.requests[-1].token_ids
    whole = (*engine.requests[0].token_ids, *encode("Once upon a time"), EOS)
    assert tuple(ids[: len(whole)]) == whole


async def test_a_limit_counts_what_comes_behind(chat, engine):
    engine.replies.extend([CUT, REST])
    cut = await chat.say("tell", params=SamplingParams(seed=3, max_output_tokens=9))

    turn = await go_on(chat, cut, 5)

    assert (turn.params.seed, turn.params.max_output_tokens) == (3, 14)


async def test_a_reply_can_go_on_more_than_once(chat, engine):
    engine.replies.extend(
        [CUT, replace(REST, reason=FinishReason.LENGTH), FakeReply(pieces=(".",))]
    )

    turn = await go_on(chat, await go_on(chat, await chat.say("tell")))

    assert turn.reply_text == "Once upon a time."


async def test_a_cancelled_and_an_interrupted_reply_go_on(store, engine, clock, renderer):
    config = ManagerConfig(runner_id="runner-1")
    async with SessionManager(store=store, engine=engine, clock=clock, config=config) as manager:
        manager.use_renderer(renderer)
        chat = await Chat.open(manager)
        engine.replies.extend([replace(CUT, holds_after=1), REST, replace(CUT, holds_after=1)])
        cancelled = await chat.submit("tell")
        await engine.held(cancelled.id)
        cancelled = await manager.cancel(ANN, cancelled.id)

        turn = await go_on(chat, cancelled)

        assert (cancelled.status, turn.reply_text) == (TurnStatus.CANCELLED, "Once  a time")
        dying = await chat.submit("tell again")
        await engine.held(dying.id)
        await chat.kept(dying)
        await store.interrupt_abandoned("runner-1", clock(), spare=())
        engine.let_go()
        await chat.end(dying)

        turn = await go_on(chat, await store.any_turn(dying.id))

        assert turn.reply_text == "Once Hello"


async def test_a_reply_that_had_not_begun_is_begun(chat, engine, manager):
    engine.replies.append(FakeReply(holds_after=0))
    turn = await chat.submit("tell")
    await engine.held(turn.id)
    cancelled = await manager.cancel(ANN, turn.id)

    assert (await go_on(chat, cancelled)).reply_text == "Hello"
    assert engine.requests[-1].resumed_ids is None


async def test_what_cannot_go_on_is_refused(chat, engine, manager, monkeypatch):
    complete = await chat.say("one")
    with pytest.raises(ConflictError, match="complete"):
        await go_on(chat, complete)
    with pytest.raises(TurnNotFoundError):
        await manager.go_on(BOB, complete.id, max_more_tokens=1)
    engine.replies.extend([CUT, FakeReply(holds_after=1)])
    cut = await chat.say("two")
    running = await chat.submit("three")
    with pytest.raises(TurnNotEndedError):
        await go_on(chat, running)
    await engine.held(running.id)
    engine.let_go()
    await chat.end(running)
    engine.becomes(fingerprint="another")
    monkeypatch.setattr(Renderer, "reply", lambda self, text: None)
    with pytest.raises(ConflictError, match="another model"):
        await go_on(chat, cut)


async def test_a_reply_that_filled_the_context_has_no_room_to_go_on(chat, engine):
    engine.replies.append(CUT)
    cut = await chat.say("tell")
    engine.becomes(max_context_tokens=len(engine.requests[0].token_ids) + 9)

    with pytest.raises(ContextLengthError):
        await go_on(chat, cut)
    assert INFO.max_context_tokens == 4096


async def test_asking_twice_under_one_id_goes_on_once(chat, engine):
    engine.replies.extend([CUT, REST])
    cut = await chat.say("tell")

    first = await go_on(chat, cut, client_turn_id="c")
    again = await go_on(chat, cut, client_turn_id="c")

    assert first.id == again.id


def test_what_may_become_a_stop_string_is_left_to_the_engine():
    cut = make_turn(reply_text="so long##", params=SamplingParams(stop=("###", "long#!")))

    assert partial_reply(cut, (1, 2)).text == "so long"
    assert partial_reply(replace(cut, params=SamplingParams()), (1, 2)).text == "so long##"


@pytest.mark.parametrize("name", ["chatml", "llama3", "mistral"])
async def test_going_on_computes_nothing_of_what_was_there(chatting, name):
    async with chatting(name) as chat:
        await chat.say("One", "fine")
        params = replace(chat.script("once upon a time"), max_output_tokens=4)
        cut = await chat.chat.say("Two", params=params)
        assert cut.status is TurnStatus.INCOMPLETE

        turn = await go_on(chat.chat, cut)

        assert turn.reply_text == "once upon a time"
        assert turn.usage.claim.computed == 0
        # The last token of what was there, and all behind it but the end.
        assert turn.usage.num_rows_computed == 1 + len("once upon a time") - 4
