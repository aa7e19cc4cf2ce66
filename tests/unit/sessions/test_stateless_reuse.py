"""Ten turns of a client that resends its history: of that history nothing is computed again, with
every kind of template, with reasoning, calls and results, counted in the model's rows."""

import asyncio

import pytest

from model.config import SamplingParams
from model.errors import ContextLengthError
from sessions.chat_index import ChatIndex
from sessions.completion_events import CompletionRequest
from sessions.messages import InputMessage
from sessions.tools import Tool
from sessions.truncation import Truncation
from tests.support.chat import ANN
from tests.support.core_engine import BLOCK_SIZE
from tests.support.stateless_chat import StatelessChat
from tests.support.templates import FAMILIES

TOOLS = (
    Tool(name="weather", parameters='{"type": "object", "properties": {"city": {}}}'),
    Tool(name="time"),
)
CALLS = {
    "llama_tools": '{"name": "weather", "parameters": {"city":"Oslo"}}',
    "mistral_tools": '[TOOL_CALLS][{"name":"weather","arguments":{"city":"Oslo"}},'
    '{"name": "time","arguments": {}}]',
}
CALL = (
    'Let me see.\n<tool_call>\n{"name":"weather","arguments":{"city":"Oslo"}}\n</tool_call>\n'
    '<tool_call>\n{"name": "time", "arguments": { }}\n</tool_call>'
)
WORDS = ("One", "Two", "Three", "Four", "Five", "Six", "Seven", "Eight", "Nine", "Ten")
ANSWERS = ("fine", "I do  ", "\n a, b", "well", "x", "5", "yes", "see below:\n\n- a", "no", "y")
every_family = pytest.mark.parametrize("name", FAMILIES)


def user(text: str) -> InputMessage:
    return InputMessage(role="user", text=text)


def reasoned(name: str, reply: str) -> str:
    opening = "" if name == "qwen3_thinking" else "<think>\n"
    return f"{opening}let me think about it\n</think>\n\n{reply}"


@pytest.mark.parametrize("reasons", [False, True], ids=["plain", "reasoning"])
@every_family
async def test_ten_turns_compute_hardly_a_token_twice(name, reasons):
    chat = StatelessChat(name)
    if not reasons:
        chat.messages.append(InputMessage(role="system", text="Be brief."))
    for number, (word, answer) in enumerate(zip(WORDS, ANSWERS, strict=True)):
        reply = reasoned(name, answer) if reasons or name == "qwen3_thinking" else answer

        turn = await chat.ask(reply, user(f"{word}, and what then?"))

        assert turn.finished.reply.text.strip() == answer.strip()
        assert bool(turn.finished.num_reasoning_tokens) == (reply != answer)
        if number:
            assert turn.share >= 0.95, (number, turn.num_history, turn.num_reused_rows)
            assert turn.started.claim.reason is None


@pytest.mark.parametrize("reasons", [False, True], ids=["plain", "reasoning"])
@every_family
async def test_ten_turns_with_calls_and_results_compute_hardly_a_token_twice(name, reasons):
    chat = StatelessChat(name, TOOLS)
    new: tuple[InputMessage, ...] = (user("What is the weather?"),)
    for number in range(10):
        is_call = number % 2 == 0
        said = CALLS.get(name, CALL) if is_call else "It rains."
        reply = reasoned(name, said) if reasons or name == "qwen3_thinking" else said

        turn = await chat.ask(reply, *new)

        assert bool(turn.finished.reply.calls) == is_call
        if number:
            assert turn.share >= 0.95, (number, turn.num_history, turn.num_reused_rows)
        new = chat.results("rain") if is_call else (user("And tomorrow?"),)


@every_family
async def test_an_answer_that_is_asked_for_again_reuses_its_question(name):
    chat = StatelessChat(name)
    await chat.ask(reasoned(name, "fine"), user("How are you?"))
    first = await chat.ask(reasoned(name, "one"), user("And now?"))
    chat.messages.pop()

    again = await chat.ask(reasoned(name, "two"))

    assert again.num_prompt == first.num_prompt
    assert again.num_reused_rows == first.num_prompt - 1


async def test_a_history_that_was_altered_is_used_up_to_there():
    chat = StatelessChat("chatml")
    await chat.ask("fine", user("How are you?"))
    await chat.ask("one", user("And now?"))
    chat.messages[-1] = InputMessage(role="assistant", text="something else")

    turn = await chat.ask("two", user("Really?"))

    assert 20 < turn.num_reused_rows < turn.num_history


async def test_another_owners_or_other_tools_find_nothing():
    chat = StatelessChat("chatml")
    await chat.ask("fine", user("How are you?"))
    chat.tools = TOOLS

    turn = await chat.ask("one", user("And now?"))

    assert turn.num_reused_rows < turn.num_history // 2


async def test_what_the_index_forgets_the_engine_forgets_too():
    index = ChatIndex(max_chats=1)
    chat = StatelessChat("chatml", options={"index": index})
    await chat.ask("fine", user("How are you?"))
    first = chat.engine.requests[-1].conversation_id
    chat.messages.clear()

    await chat.ask("other", user("Something else?"))

    assert await chat.engine.tables(first) == ()
    assert await chat.engine.tables(chat.engine.requests[-1].conversation_id)


async def test_a_hint_says_where_a_chat_lies():
    chat = StatelessChat("chatml")
    await chat.ask("fine", user("How are you?"), hint="a")
    await chat.ask("fine", user("And now?"), hint="a")
    one, two = (request.conversation_id for request in chat.engine.requests)

    assert one == two
    chat.messages.clear()
    await chat.ask("fine", user("How are you?"), hint="b")
    assert chat.engine.requests[-1].conversation_id != one


async def test_a_chat_that_is_too_long_is_refused_or_loses_its_beginning():
    chat = StatelessChat("chatml")
    chat.messages.append(InputMessage(role="system", text="Be brief."))
    for number in range(6):
        chat.messages += [user(f"{number} " * 400), InputMessage(role="assistant", text="fine")]
    with pytest.raises(ContextLengthError) as caught:
        await chat.ask("no", user("x"))
    assert caught.value.num_tokens > chat.engine.info.max_context_tokens

    chat.messages.pop()
    turn = await chat.ask("yes", user("x"), truncation=Truncation.AUTO)

    num_dropped = turn.started.num_dropped_messages
    assert num_dropped in (2, 4, 6)
    assert turn.num_prompt < chat.engine.info.max_context_tokens
    for _ in range(3):  # what follows goes on behind what was left
        turn = await chat.ask("yes", user("And now?"), truncation=Truncation.AUTO)
        assert turn.started.num_dropped_messages == num_dropped
        assert turn.share >= 0.95
    with pytest.raises(ContextLengthError):
        await chat.ask("no", user("x"))


async def test_reasoning_that_was_kept_gives_way_when_the_context_is_full():
    chat = StatelessChat("chatml")
    thought = f"<think>{'hm ' * 600}</think>fine"
    for number in range(2):
        turn = await chat.ask(thought, user(f"{number}?"))
    assert turn.share >= 0.95

    turn = await chat.ask("done", user("And now? " * 60))

    assert turn.num_prompt < 1000
    assert turn.started.num_dropped_messages == 0


async def test_several_replies_to_one_chat_compute_its_prompt_once():
    chat = StatelessChat("chatml")
    for number in range(4):
        chat.engine.runner.replies[number] = [*b"abc", chat.engine.info.eos_token_ids[0]]
    messages = (user("What shall we do with all of these words? " * 3),)

    async def reply(number: int) -> int:
        asked = CompletionRequest(
            messages=messages, params=SamplingParams(seed=number, temperature=0.0), group="g"
        )
        generated = chat.completions.stream(ANN, asked, request_id=f"c{number}")
        events = [event async for event in generated]
        return len(events)

    async with asyncio.TaskGroup() as tasks:
        for number in range(4):
            tasks.create_task(reply(number))

    num_prompt = len(chat.engine.requests[0].token_ids)
    num_replies = 4 * 3  # each reply's last token is never fed
    assert chat.engine.runner.num_rows - num_replies <= num_prompt + 3 * BLOCK_SIZE
