"""Results of calls that nobody made are refused, wherever their call might be."""

import pytest

from sessions.call_results import check_results
from sessions.errors import InvalidInputError
from sessions.messages import InputMessage, ToolCall
from tests.support.chat import Chat

CALLS = InputMessage(
    role="assistant", text="", calls=(ToolCall(id="call_1", name="look", arguments="{}"),)
)


def result_of(call_id: str) -> InputMessage:
    return InputMessage(role="tool", text="42", call_id=call_id)


@pytest.fixture
async def chat(manager):
    return await Chat.open(manager)


async def test_a_call_may_stand_before_its_result(store):
    await check_results((CALLS, result_of("call_1")), None, store)


@pytest.mark.parametrize("given", [(result_of("call_1"),), (result_of("call_1"), CALLS)])
async def test_a_result_before_its_call_or_of_none_is_refused(store, given):
    with pytest.raises(InvalidInputError, match="no call has the id 'call_1'") as caught:
        await check_results(given, None, store)
    assert caught.value.param == "input"


async def test_a_call_may_be_the_turns_before_or_any_before_that(chat, store):
    calling = await chat.say(input=(InputMessage(role="user", text="hi"), CALLS))
    later = await chat.say("later")

    for parent in (calling, later):
        await check_results((result_of("call_1"),), parent, store)
        with pytest.raises(InvalidInputError, match="call_2"):
            await check_results((result_of("call_1"), result_of("call_2")), parent, store)


async def test_a_turn_with_such_a_result_leaves_nothing_behind(chat):
    with pytest.raises(InvalidInputError, match="call_7"):
        await chat.submit(input=(result_of("call_7"),))

    assert await chat.turns() == ()
