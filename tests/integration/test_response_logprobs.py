"""Log probabilities in responses: streamed, whole, stored and told again, by OpenAI's client."""

import pytest

from tests.support import tiny_tokenizer as tiny
from tests.support.core_engine import CoreEngine
from tests.support.whole_front import serving_whole

INCLUDE = ["message.output_text.logprobs"]
LOOK = {"type": "function", "name": "look", "parameters": {"type": "object"}}
CALL = '<tool_call>\n{"name": "look", "arguments": {}}\n</tool_call>'


@pytest.fixture
async def front(tmp_path):
    tokenizer = tiny.make_tokenizer(tiny.SMOLLM2)
    engine = CoreEngine(tokenizer)
    engine.runner.replies[1] = [
        *tokenizer.encode(f"<think>hm</think>\n\nI look. ☃ END\n{CALL}", add_special_tokens=False),
        tokenizer.eos_token_id,
    ]
    async with serving_whole(tmp_path, engine=engine) as front:
        yield front


def spelled(entries):
    return b"".join(bytes(entry["bytes"]) for entry in entries).decode()


@pytest.mark.parametrize(
    ("fields", "num_others"),
    [
        ({"include": INCLUDE}, 0),
        ({"top_logprobs": 2}, 2),
        ({"include": INCLUDE, "top_logprobs": 1}, 1),
    ],
)
async def test_each_piece_of_text_has_its_tokens_live_and_again(front, client, fields, num_others):
    asked = {"input": "x", "extra_body": {"seed": 1}, "tools": [LOOK], **fields}
    stream = await client.responses.create(stream=True, **asked)
    live = [event.to_dict() async for event in stream]
    made = live[-1]["response"]

    deltas = [e for e in live if e["type"] == "response.output_text.delta"]
    for delta in deltas:
        assert delta["delta"] in spelled(delta["logprobs"])
    told = [entry for delta in deltas for entry in delta["logprobs"]]
    (message,) = [item for item in made["output"] if item["type"] == "message"]
    (part,) = message["content"]
    assert part["logprobs"] == told
    (done,) = [e for e in live if e["type"] == "response.output_text.done"]
    assert done["logprobs"] == told
    assert spelled(told).strip() == part["text"].strip() == "I look. ☃ END"
    assert {len(entry["top_logprobs"]) for entry in told} == {num_others}
    assert {entry["logprob"] for entry in told} == {-0.5}

    kept = await client.responses.retrieve(made["id"], include=INCLUDE)
    assert kept.to_dict()["output"] == made["output"]
    again = await client.responses.retrieve(made["id"], stream=True)
    assert [event.to_dict() async for event in again] == live


async def test_a_stop_string_has_no_likelihood(client):
    made = await client.responses.create(
        input="x", include=INCLUDE, store=False, extra_body={"seed": 1, "stop": ["EN"]}
    )

    part = made.output[-1].content[0]
    assert (part.text, spelled(part.to_dict()["logprobs"])) == ("I look. ☃ ", "I look. ☃ ")


async def test_who_does_not_ask_is_told_none(client):
    made = await client.responses.create(input="x", extra_body={"seed": 1})

    assert made.output[-1].content[0].logprobs == []


async def test_chat_tells_those_of_its_content_alone(client):
    asked = {"messages": [{"role": "user", "content": "x"}], "model": "default", "seed": 1}
    chat = {"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}
    called = await client.chat.completions.create(**asked, logprobs=True, tools=[chat])
    stopped = await client.chat.completions.create(**asked, logprobs=True, stop="EN")

    for answer, text in ((called, "I look. ☃ END"), (stopped, "I look. ☃ ")):
        (choice,) = answer.choices
        entries = [entry.to_dict() for entry in choice.logprobs.content]
        assert (choice.message.content, spelled(entries).rstrip("\n")) == (text, text)
