"""Admission: which turns there may be, and what they follow."""

import asyncio

import pytest

from model.config import SamplingParams
from model.errors import ContextLengthError, InvalidGenerationError
from sessions.errors import (
    IdempotencyConflictError,
    InvalidInputError,
    SessionBusyError,
    TurnNotEndedError,
    TurnNotFoundError,
    UnsupportedInputError,
)
from sessions.types import InputMessage, TurnStatus
from tests.support.chat import ANN, Chat
from tests.support.fake_engine import FakeReply


async def test_a_turn_follows_the_head(manager):
    chat = await Chat.open(manager)

    first = await chat.say("one")
    second = await chat.say("two")

    assert (first.parent_id, second.parent_id) == (None, first.id)
    assert (await manager.get(ANN, chat.id)).head_turn_id == second.id


async def test_every_turn_moves_the_sessions_revision(manager):
    chat = await Chat.open(manager)
    await chat.say()

    after = await manager.get(ANN, chat.id)

    assert after.revision == chat.session.revision + 2
    assert after.updated_at > chat.session.updated_at


async def test_a_turn_may_follow_any_ended_turn(manager):
    chat = await Chat.open(manager)
    first = await chat.say("one")
    await chat.say("two")

    sibling = await chat.say("two, differently", parent=first.id, parent_given=True)

    assert sibling.parent_id == first.id
    assert [t.id for t in await chat.turns()] == [first.id, sibling.id]
    assert len(await chat.turns(whole_tree=True)) == 3


async def test_an_explicit_nothing_begins_anew(manager):
    chat = await Chat.open(manager)
    await chat.say("one")

    root = await chat.say("again", parent=None, parent_given=True)

    assert root.parent_id is None
    assert [t.id for t in await chat.turns()] == [root.id]


async def test_a_busy_branch_takes_no_second_turn(manager, engine):
    engine.replies.append(FakeReply(holds_after=0))
    chat = await Chat.open(manager)
    running = await chat.submit()

    with pytest.raises(SessionBusyError):
        await chat.submit("too soon")
    with pytest.raises(TurnNotEndedError):
        await chat.submit("too soon", parent=running.id, parent_given=True)
    with pytest.raises(TurnNotEndedError):
        await manager.regenerate(ANN, running.id, params=SamplingParams())

    assert len(await chat.turns(whole_tree=True)) == 1


async def test_of_two_turns_at_the_same_time_one_is_refused(manager, engine):
    engine.default = FakeReply(holds_after=0)
    chat = await Chat.open(manager)

    results = await asyncio.gather(chat.submit("one"), chat.submit("two"), return_exceptions=True)

    assert [type(r) for r in results].count(SessionBusyError) == 1
    assert len(await chat.turns(whole_tree=True)) == 1


async def test_a_parent_of_another_session_is_not_found(manager):
    stranger = await (await Chat.open(manager)).say()
    chat = await Chat.open(manager)

    for unknown in (stranger.id, "resp_nobody"):
        with pytest.raises(TurnNotFoundError):
            await chat.submit(parent=unknown, parent_given=True)


async def test_a_fork_may_go_back_behind_where_it_was_made(manager):
    chat = await Chat.open(manager)
    first = await chat.say("one")
    second = await chat.say("two")
    third = await chat.say("three")
    fork = await chat.fork(at=second.id)

    turn = await fork.say("earlier", parent=first.id, parent_given=True)

    assert turn.parent_id == first.id
    with pytest.raises(TurnNotFoundError):
        await fork.submit(parent=third.id, parent_given=True)


async def test_a_request_sent_twice_is_one_turn(manager):
    chat = await Chat.open(manager)

    first = await chat.say("hello", client_turn_id="c-1")
    again = await chat.submit("hello", client_turn_id="c-1")

    assert again == first
    assert len(await chat.turns(whole_tree=True)) == 1


async def test_a_request_sent_twice_at_the_same_time_is_one_turn(manager):
    chat = await Chat.open(manager)

    turns = await asyncio.gather(*(chat.submit("x", client_turn_id="c-1") for _ in range(4)))

    assert len({turn.id for turn in turns}) == 1
    assert len(await chat.turns(whole_tree=True)) == 1


@pytest.mark.parametrize(
    "other",
    [
        {"text": "another"},
        {"params": SamplingParams(seed=9)},
        {"metadata": {"a": "b"}},
        {"parent": None, "parent_given": True},
    ],
)
async def test_the_same_id_for_another_request_is_a_conflict(manager, other):
    chat = await Chat.open(manager)
    await chat.say("hello", client_turn_id="c-1")

    with pytest.raises(IdempotencyConflictError):
        await chat.submit(**{"text": "hello", "client_turn_id": "c-1", **other})


async def test_clients_ids_are_a_sessions_own(manager):
    first = await (await Chat.open(manager)).say(client_turn_id="c-1")
    second = await (await Chat.open(manager)).say(client_turn_id="c-1")

    assert first.id != second.id


async def test_regenerate_makes_a_sibling_with_the_same_input(manager):
    chat = await Chat.open(manager)
    await chat.say("one")
    turn = await chat.say("two", metadata={"a": "b"})

    again = await chat.regenerate(turn)
    once_more = await chat.regenerate(again)

    for sibling in (again, once_more):
        assert sibling.parent_id == turn.parent_id
        assert sibling.input_items == turn.input_items
        assert sibling.metadata == {"a": "b"}
        assert sibling.reply_item_id != turn.reply_item_id
    assert (await manager.get(ANN, chat.id)).head_turn_id == once_more.id
    assert await manager.turn(ANN, once_more.id) == once_more


async def test_regenerating_is_idempotent_too(manager):
    chat = await Chat.open(manager)
    turn = await chat.say()

    first = await chat.regenerate(turn, client_turn_id="c-1")

    assert await chat.regenerate(turn, client_turn_id="c-1") == first
    with pytest.raises(IdempotencyConflictError):
        await chat.regenerate(turn, client_turn_id="c-1", params=SamplingParams(seed=99))


async def test_two_regenerations_run_side_by_side(manager, engine):
    chat = await Chat.open(manager)
    turn = await chat.say()
    engine.default = FakeReply(holds_after=0)

    both = await asyncio.gather(
        *(manager.regenerate(ANN, turn.id, params=SamplingParams(seed=n)) for n in (1, 2))
    )

    assert manager.num_active == 2
    engine.let_go()
    assert [(await chat.end(t)).status for t in both] == [TurnStatus.COMPLETED] * 2


async def test_a_prompt_too_long_is_refused_and_leaves_nothing_behind(manager, engine):
    engine.becomes(max_context_tokens=90)
    chat = await Chat.open(manager)

    with pytest.raises(ContextLengthError) as caught:
        await chat.submit("long " * 50)

    assert caught.value.num_tokens_over == caught.value.num_tokens + 1 - 90
    assert await chat.turns(whole_tree=True) == ()
    assert manager.num_active == 0


async def test_a_bias_on_a_token_that_is_none_is_refused_and_nothing_is_left(manager, engine):
    engine.becomes(vocab_size=100)
    chat = await Chat.open(manager)

    with pytest.raises(InvalidGenerationError) as caught:
        await chat.submit("hi", params=SamplingParams(logit_bias=((99, 1.0), (100, 1.0))))

    assert caught.value.param == "logit_bias"
    assert await chat.turns(whole_tree=True) == ()
    assert manager.num_active == 0


@pytest.mark.parametrize(
    ("overrides", "error", "param"),
    [
        ({"input": ()}, InvalidInputError, "input"),
        ({"text": "a\0b"}, InvalidInputError, "input[0].content"),
        ({"text": "a\udfff"}, InvalidInputError, "input[0].content"),
        ({"text": "x" * 2_000_001}, InvalidInputError, "input"),
        (
            {"input": (InputMessage(role="tool", text="x"),)},
            UnsupportedInputError,
            "input[0].role",
        ),
        ({"client_turn_id": ""}, InvalidInputError, "client_turn_id"),
        ({"client_turn_id": "x" * 201}, InvalidInputError, "client_turn_id"),
        ({"client_turn_id": "\0"}, InvalidInputError, "client_turn_id"),
        ({"metadata": {"x" * 65: "y"}}, InvalidInputError, "metadata." + "x" * 64),
    ],
)
async def test_a_bad_request_names_what_is_wrong(manager, overrides, error, param):
    chat = await Chat.open(manager)

    with pytest.raises(error) as caught:
        await chat.submit(**overrides)

    assert caught.value.param == param
    assert await chat.turns(whole_tree=True) == ()


async def test_several_messages_are_several_items(manager):
    chat = await Chat.open(manager)
    messages = (
        InputMessage(role="developer", text="be brief"),
        InputMessage(role="user", text="hi"),
        InputMessage(role="assistant", text="yes?"),
        InputMessage(role="user", text="never mind"),
    )

    turn = await chat.say(input=messages)

    assert [(i.role, i.text) for i in turn.input_items] == [(m.role, m.text) for m in messages]
    assert len({i.id for i in turn.input_items}) == 4
