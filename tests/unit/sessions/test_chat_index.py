"""Chats found by what they say, and by nothing less."""

from array import array
from dataclasses import replace

from sessions.chat_index import ChatIndex, KnownChat, chain, follow
from sessions.messages import InputMessage, ToolCall
from sessions.tools import Tool
from tests.support.chat import ANN

HELLO = InputMessage(role="user", text="hello")
FINE = InputMessage(role="assistant", text="fine")
TOOL = Tool(name="f")


def key(*messages, owner=ANN, fingerprint="f", tools=()) -> bytes:
    return chain(owner, fingerprint, tools, messages)[-1]


def chat(name: str, num_tokens: int = 3) -> KnownChat:
    return KnownChat(
        token_ids=array("i", range(num_tokens)),
        num_prompt_tokens=1,
        request_id=name,
        conversation_id=f"chat_{name}",
        clock_at=None,
    )


def call(arguments: str, call_id: str = "c") -> InputMessage:
    made = ToolCall(id=call_id, name="f", arguments=arguments)
    return InputMessage(role="assistant", text="", calls=(made,))


def test_a_key_is_of_all_that_is_said_and_who_says_it_to_what():
    keys = {
        key(HELLO),
        key(HELLO, FINE),
        key(FINE, HELLO),
        key(InputMessage(role="system", text="hello")),
        key(HELLO, owner="bob"),
        key(HELLO, fingerprint="g"),
        key(HELLO, tools=(TOOL,)),
        key(HELLO, call("{}")),
        key(HELLO, call('{"a": 1}')),
    }

    assert len(keys) == 9


def test_what_clients_alter_without_meaning_it_does_not_matter():
    assert key(HELLO) == key(InputMessage(role="user", text=" hello\n"))
    assert key(InputMessage(role="system", text="x")) == key(
        InputMessage(role="developer", text="x")
    )
    assert key(call('{"a":1,"b":2}', "x")) == key(call('{"b": 2, "a": 1}', "y"))
    assert key(call('{"a"')) == key(call('{"a"'))
    assert key(FINE) == key(replace(FINE, reasoning="hm"))
    assert follow(key(HELLO), FINE) == key(HELLO, FINE)


def test_the_last_reply_that_is_followed_by_no_other_is_found():
    index, messages = ChatIndex(), (HELLO, FINE, HELLO, FINE, HELLO)
    keys = chain(ANN, "f", (), messages)
    index.put(ANN, keys[2], chat("one"))
    assert index.find(ANN, keys, messages) is None
    assert index.find_part(ANN, keys).request_id == "one"

    index.put(ANN, keys[4], chat("two"))

    assert index.find(ANN, keys, messages)[0] == 4
    assert index.find_part(ANN, keys).request_id == "two"
    assert index.find_part(ANN, keys[:2]) is None


def test_the_chat_used_last_stays():
    index = ChatIndex(max_tokens=7)
    index.put(ANN, b"a", chat("a"))
    index.put(ANN, b"b", chat("b"))
    assert index.find(ANN, (b"", b"", b"a", b""), (HELLO, FINE, HELLO)) is not None

    index.put(ANN, b"c", chat("c"))

    assert index.find_part(ANN, (b"a",)) is not None
    assert index.find_part(ANN, (b"b",)) is None
    assert index.take_released() == ["chat_b"]
    assert index.take_released() == []


def test_a_conversation_is_released_when_nothing_of_it_is_known():
    index = ChatIndex(max_chats=2)
    index.put(ANN, b"a", chat("a"))
    index.put(ANN, b"b", replace(chat("b"), conversation_id="chat_a"))
    index.put(ANN, b"c", chat("c"))
    assert index.take_released() == []

    index.put(ANN, b"d", chat("d"))

    assert index.take_released() == ["chat_a"]


def test_one_chat_may_be_larger_than_all_that_is_allowed():
    index = ChatIndex(max_tokens=2)

    index.put(ANN, b"a", chat("a", 10))

    assert index.find_part(ANN, (b"a",)) is not None


def test_whoever_has_most_gives_way():
    index = ChatIndex(max_tokens=12)
    for name in "abc":
        index.put("bob", name.encode(), chat(name))
    index.put(ANN, b"mine", chat("mine"))
    for name in "defg":
        index.put("bob", name.encode(), chat(name))

    assert index.find_part(ANN, (b"mine",)) is not None
    known = [name for name in "abcdefg" if index.find_part("bob", (name.encode(),)) is not None]
    assert known == ["e", "f", "g"]
    # A newcomer is let in, be it with more than anybody else.
    index.put("cid", b"new", chat("new", 8))
    assert index.find_part("cid", (b"new",)) is not None
    assert index.find_part(ANN, (b"mine",)) is not None
    assert [name for name in "efg" if index.find_part("bob", (name.encode(),))] == []


def test_another_owners_chat_is_not_found():
    index = ChatIndex()
    index.put(ANN, b"a", chat("a"))

    assert index.find_part("bob", (b"a",)) is None
