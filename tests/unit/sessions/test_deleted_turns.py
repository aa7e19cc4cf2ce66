"""Turns that are deleted by themselves: what is built on them goes on, whatever else is deleted,
and whoever writes at the same time."""

import asyncio

import pytest

from sessions.errors import TurnNotFoundError
from sessions.store import _turns_of
from sessions.types import SessionChange
from tests.support.chat import ANN, Chat
from tests.support.postgres import DATABASES


@pytest.fixture(params=DATABASES)
def database_kind(request):
    return request.param


@pytest.fixture
async def chat(manager):
    return await Chat.open(manager)


async def delete(store, clock, *turns):
    for turn in turns:
        await store.delete_turn(ANN, turn.id, clock())


async def test_a_head_goes_back_to_the_last_turn_that_is_there(chat, store, clock):
    first, second, third = [await chat.say(text) for text in ("one", "two", "three")]

    await delete(store, clock, second, third)

    assert (await chat.manager.get(ANN, chat.id)).head_turn_id == first.id
    assert (await chat.say("four")).parent_id == first.id


async def test_a_session_all_of_whose_turns_are_deleted_begins_anew(chat, store, clock):
    turns = [await chat.say(text) for text in ("one", "two")]

    await delete(store, clock, *turns)

    assert (await chat.say("three")).parent_id is None


async def test_a_fork_goes_on_from_a_turn_that_was_deleted_in_its_origin(chat, store, clock):
    last = [await chat.say(text) for text in ("one", "two")][-1]
    fork = await chat.fork()

    await delete(store, clock, last)

    forked_again = await fork.fork()
    for one in (fork, forked_again):
        assert (await one.say("three")).parent_id == last.id
        assert "two" in [turn.input_items[0].text for turn in await one.turns()]


async def test_what_follows_a_deleted_turn_can_be_said_again(chat, store, clock):
    first, second = [await chat.say(text) for text in ("one", "two")]
    await delete(store, clock, first)

    again = await chat.regenerate(second)
    edited = await chat.say("not two", parent=first.id, parent_given=True)

    assert again.parent_id == edited.parent_id == first.id


async def test_a_deleted_turn_that_nothing_follows_can_not_be_gone_on_from(chat, store, clock):
    last = [await chat.say(text) for text in ("one", "two")][-1]
    await delete(store, clock, last)

    with pytest.raises(TurnNotFoundError):
        await chat.say("three", parent=last.id, parent_given=True)
    with pytest.raises(TurnNotFoundError):
        await chat.fork(last.id)


async def test_deletions_and_changes_at_the_same_time_all_come_through(chat, store, clock):
    turns = [await chat.say(str(n), parent=None, parent_given=True) for n in range(6)]
    before = (await chat.manager.get(ANN, chat.id)).revision

    async def rename(number: int) -> None:
        change = SessionChange(named=frozenset({"title"}), title=str(number))
        await store.change_session(ANN, chat.id, change, expected_revision=None)

    await asyncio.gather(
        *(store.delete_turn(ANN, turn.id, clock()) for turn in turns[:4]),
        *(rename(number) for number in range(3)),
    )

    assert (await chat.manager.get(ANN, chat.id)).revision == before + 7


async def test_a_repetition_never_waits_for_the_end_of_its_own_turn_and_that_for_it(chat):
    async def repeat(number: int) -> str:
        await asyncio.sleep(number * 0.004)
        turn = await chat.submit("hello", parent=None, parent_given=True, client_turn_id="once")
        return turn.id

    for _ in range(5):
        chat = await Chat.open(chat.manager)
        assert len(set(await asyncio.gather(*map(repeat, range(12))))) == 1


async def test_a_turn_that_was_purged_between_two_statements_is_left_out(chat, database):
    turn = await chat.say("one")

    async with database.reading() as tx:
        found = await _turns_of(tx, ["resp_gone", turn.id])

    assert [one.id for one in found] == [turn.id]
