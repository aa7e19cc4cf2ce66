"""What goes when a conversation is too long, and what never does."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from model.errors import ContextLengthError
from sessions.messages import InputMessage, ToolCall
from sessions.truncation import Truncation, truncate, turn_starts


def say(role: str, text: str = "x", **fields) -> InputMessage:
    return InputMessage(role=role, text=text, **fields)


def call(call_id: str) -> InputMessage:
    return say("assistant", calls=(ToolCall(id=call_id, name="f", arguments="{}"),))


CHAT = (
    say("system", "sys"),
    say("user", "one"),
    call("c1"),
    say("tool", "r1", call_id="c1"),
    say("assistant", "done"),
    say("user", "two"),
    say("assistant", "fine"),
    say("user", "three"),
)


def cut(messages, max_tokens, truncation=Truncation.AUTO):
    return truncate(messages, len, max_tokens, truncation)


def test_what_fits_is_left_as_it_is():
    assert cut(CHAT, 9).messages == CHAT
    assert cut(CHAT, 9, Truncation.DISABLED).num_dropped_messages == 0


def test_nothing_is_dropped_unless_that_is_asked_for():
    with pytest.raises(ContextLengthError) as caught:
        cut(CHAT, 8, Truncation.DISABLED)

    assert (caught.value.num_tokens, caught.value.max_context_tokens) == (8, 8)


def test_the_oldest_turns_go_whole_and_the_system_prompt_stays():
    left = cut(CHAT, 8)

    assert left.messages == (CHAT[0], *CHAT[5:])
    assert (left.num_dropped_turns, left.num_dropped_messages, left.first) == (1, 4, 1)
    assert cut(CHAT, 4).messages == (CHAT[0], CHAT[7])


def test_the_last_turn_is_never_dropped():
    with pytest.raises(ContextLengthError) as caught:
        cut(CHAT, 2)

    assert caught.value.num_tokens == 2


def test_the_results_of_a_call_that_is_not_answered_yet_stay_with_it():
    chat = (say("user"), say("assistant"), say("user"), call("c"), say("tool", call_id="c"))

    assert cut(chat, 5).messages == chat[2:]
    with pytest.raises(ContextLengthError):
        cut(chat, 3)


def test_users_that_speak_in_a_row_are_one_turn():
    assert turn_starts((say("user"), say("user"), say("assistant"), say("user"))) == [0, 3]


def test_a_conversation_of_system_messages_alone_can_only_be_refused():
    with pytest.raises(ContextLengthError):
        cut((say("system"),) * 3, 3)


ROLES = st.sampled_from(["system", "user", "assistant", "call"])


@st.composite
def chats(draw):
    messages = []
    for number, role in enumerate(draw(st.lists(ROLES, min_size=1, max_size=30))):
        if role == "call":
            messages += [call(f"c{number}"), say("tool", call_id=f"c{number}")]
        else:
            messages.append(say(role, str(number)))
    return tuple(messages)


@given(chats(), st.integers(1, 40))
def test_as_little_goes_as_must_and_no_pair_is_torn(chat, max_tokens):
    try:
        left = cut(chat, max_tokens)
    except ContextLengthError:
        starts = turn_starts(chat)
        kept = len(chat) - (starts[-1] - starts[0]) if starts else len(chat)
        assert kept >= max_tokens
        return

    lead = left.first
    assert len(left.messages) < max_tokens
    if left.num_dropped_messages:
        assert left.messages == chat[:lead] + chat[lead + left.num_dropped_messages :]
        starts = turn_starts(chat)
        before = starts[left.num_dropped_turns - 1]
        assert len(chat) - (before - lead) >= max_tokens
    made = {c.id for m in left.messages for c in m.calls}
    assert {m.call_id for m in left.messages if m.role == "tool"} == made
