"""Conversations that outgrow their context: summed up, or without their oldest turns."""

import openai
import pytest

from tests.support.fake_engine import FakeReply
from tests.support.front_end import receive

WEATHER = {
    "type": "function",
    "name": "weather",
    "description": "Says the weather.",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
}


async def test_a_summary_is_made_behind_the_conversation_as_it_is(front, client):
    first = await client.responses.create(input="x", instructions="Be brief.", tools=[WEATHER])
    await client.responses.compact(model="default", previous_response_id=first.id)

    said, summed = (request.token_ids for request in front.engine.requests)
    assert summed[: len(said)] == said


async def test_nothing_cannot_be_summed_up(front):
    status, answer = await front.call("POST", "/v1/responses/compact", json={"model": "default"})

    assert (status, answer["error"]["param"]) == (400, "input")


async def test_a_conversation_is_compacted_to_an_item_that_stands_for_it(front, client):
    first = await client.responses.create(input="one", instructions="Be brief.")
    front.engine.replies.append(FakeReply(pieces=("We said ", "one.")))

    short = await client.responses.compact(model="default", previous_response_id=first.id)

    (item,) = short.output
    assert (short.object, item.type) == ("response.compaction", "compaction")
    assert short.usage.input_tokens_details.cached_tokens > 0
    await client.responses.create(
        input=[item.to_dict(), {"role": "user", "content": "two"}], store=False
    )
    said = front.engine.requests[-1].token_ids
    plain = [
        {"role": "user", "content": "Summary of the conversation so far:\n\nWe said one."},
        {"role": "user", "content": "two"},
    ]
    await client.responses.create(input=plain, store=False)
    assert front.engine.requests[-1].token_ids == said


async def test_behind_a_threshold_the_conversation_goes_on_from_its_summary(front, client):
    first = await client.responses.create(input="one " * 50)
    front.engine.replies.append(FakeReply(pieces=("In short.",)))
    limit = [{"type": "compaction", "compact_threshold": 150}]
    stream = await client.responses.create(
        input="two", previous_response_id=first.id, context_management=limit, stream=True
    )
    events = [event async for event in stream]
    second = events[-1].response
    third = await client.responses.create(
        input="three", previous_response_id=second.id, context_management=limit
    )

    assert [item.type for item in second.output] == ["compaction", "message"]
    assert [e.sequence_number for e in events] == list(range(len(events)))
    replayed = [e async for e in await client.responses.retrieve(second.id, stream=True)]
    assert [e.type for e in replayed] == [e.type for e in events]
    assert [item.type for item in third.output] == ["message"]
    long, _, short, next_one = (request.token_ids for request in front.engine.requests)
    assert len(short) < len(long)
    assert next_one[: len(short)] == short


@pytest.mark.parametrize("is_stored", [True, False])
async def test_an_input_that_tells_it_all_is_summed_up_before_its_last_question(
    front, client, is_stored
):
    said = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "one " * 50},
        {"role": "assistant", "content": "two"},
        {"role": "user", "content": "three"},
    ]
    limit = [{"type": "compaction", "compact_threshold": 150}]
    front.engine.replies.append(FakeReply(pieces=("In short.",)))
    made = await client.responses.create(input=said, context_management=limit, store=is_stored)
    summing, short = front.engine.requests
    plain = [
        {"role": "user", "content": "Summary of the conversation so far:\n\nIn short."},
        {"role": "user", "content": "three"},
    ]
    await client.responses.create(input=plain, instructions="Be brief.", store=False)

    assert [item.type for item in made.output] == ["compaction", "message"]
    assert len(summing.token_ids) > 150 > len(short.token_ids)
    assert front.engine.requests[-1].token_ids == short.token_ids


async def test_one_question_is_never_summed_up(front, client):
    limit = [{"type": "compaction", "compact_threshold": 10}]
    made = await client.responses.create(input="one " * 50, context_management=limit)

    assert [item.type for item in made.output] == ["message"]


async def test_without_a_threshold_three_quarters_of_the_context_are_one(front, client):
    first = await client.responses.create(input="one " * 300)
    asked = {
        "input": "two",
        "previous_response_id": first.id,
        "context_management": [{"type": "compaction"}],
    }
    free = await client.responses.create(**asked)
    front.engine.becomes(max_context_tokens=free.usage.input_tokens)
    front.engine.replies.append(FakeReply(pieces=("In short.",)))
    with pytest.raises(openai.BadRequestError):  # there is no room left to sum it up in
        await client.responses.create(**asked)
    front.engine.becomes(max_context_tokens=free.usage.input_tokens * 4 // 3 - 2)
    full = await client.responses.create(**asked)

    assert [item.type for item in free.output] == ["message"]
    assert [item.type for item in full.output] == ["compaction", "message"]


async def test_what_was_summed_up_is_not_told_again_behind_what_is_not_stored(front):
    limit = [{"type": "compaction", "compact_threshold": 150}]
    async with front.client.ws_connect("/v1/responses") as ws:

        async def made(**body):
            await ws.send_json({"type": "response.create", **body})
            while (event := await receive(ws))["type"] != "response.completed":
                assert event["type"] != "error", event
            return event["response"]

        first = await made(input="one " * 50, store=False)
        front.engine.replies.append(FakeReply(pieces=("In short.",)))
        second = await made(input="two", previous_response_id=first["id"], context_management=limit)

    assert [item["type"] for item in second["output"]] == ["compaction", "message"]
    assert [item["content"][0]["text"] for item in second["input"]] == ["two"]
    assert len(front.engine.requests[-1].token_ids) < 150


async def test_a_conversation_that_is_too_long_is_refused_or_loses_its_oldest_turns(front, client):
    made = None
    for number in range(3):
        made = await client.responses.create(
            input=f"{number} " * 60,
            previous_response_id=made.id if made else None,
            instructions="Be brief.",
        )
    front.engine.becomes(max_context_tokens=made.usage.total_tokens)
    asked = {
        "input": "more " * 10,
        "previous_response_id": made.id,
        "instructions": "Be brief.",
    }
    with pytest.raises(openai.BadRequestError) as caught:
        await client.responses.create(**asked)
    assert caught.value.code == "context_length_exceeded"

    cut = await client.responses.create(**asked, truncation="auto")

    assert (cut.status, cut.truncation) == ("completed", "auto")
    assert cut.splice["dropped_turns"] == 2
    assert cut.usage.input_tokens < made.usage.total_tokens


async def test_a_conversation_that_lost_turns_goes_on_behind_what_was_left(front, client):
    made, asked = None, {"instructions": "Be brief.", "truncation": "auto"}
    for number in range(6):
        made = await client.responses.create(
            input=f"{number} " * 60, previous_response_id=made.id if made else None, **asked
        )
    limit = made.usage.total_tokens
    front.engine.becomes(max_context_tokens=limit)

    cut = await client.responses.create(input="x", previous_response_id=made.id, **asked)
    assert cut.usage.input_tokens < limit * 3 / 4  # there is room for a reply
    dropped = cut.splice["dropped_turns"]
    assert dropped > 0
    for _ in range(3):
        before = front.engine.requests[-1].token_ids
        cut = await client.responses.create(input="x", previous_response_id=cut.id, **asked)
        assert front.engine.requests[-1].token_ids[: len(before)] == before
        assert cut.splice["dropped_turns"] == dropped
        assert cut.usage.input_tokens_details.cached_tokens >= len(before)
    with pytest.raises(openai.BadRequestError) as caught:
        await client.responses.create(
            input="x", previous_response_id=cut.id, instructions="Be brief."
        )
    assert caught.value.code == "context_length_exceeded"
