"""OpenAI's own unmodified client at work with the real server and the real model.

The other clients run in an environment of their own (`tests/clients`, `make clients`).
"""

import json
from typing import Literal

import openai
import pytest
from pydantic import BaseModel

from tests.support.open_responses import as_sent, judge_response, judge_stream

pytestmark = pytest.mark.timeout(300)

SCHEMA = {
    "type": "object",
    "properties": {"city": {"type": "string", "enum": ["Oslo", "Bergen"]}},
    "required": ["city"],
    "additionalProperties": False,
}
WEATHER = {
    "name": "weather",
    "description": "Says what the weather is like.",
    "parameters": SCHEMA,
    "strict": True,
}
TOOLS = [{"type": "function", **WEATHER}]
FORM = {"type": "json_schema", "name": "weather", "schema": SCHEMA}
GREEDY = {"model": "default", "temperature": 0}
ASKED = [{"role": "user", "content": "How is the weather in Oslo today?"}]


class Report(BaseModel):
    city: Literal["Oslo", "Bergen"]
    degrees: Literal[1, 2, 3]


@pytest.fixture
async def client(live_server):
    async with openai.AsyncOpenAI(
        base_url=f"{live_server}/v1", api_key="any", max_retries=0
    ) as client:
        yield client


def result_of(call):
    assert json.loads(call.arguments)["city"] in ("Oslo", "Bergen")
    return {"type": "function_call_output", "call_id": call.call_id, "output": "It rains."}


async def test_a_chat_calls_streams_and_answers(client):
    tools = [{"type": "function", "function": WEATHER}]
    async with client.chat.completions.stream(
        **GREEDY,
        messages=ASKED,
        tools=tools,
        tool_choice="required",
        parallel_tool_calls=False,
        max_tokens=64,
        stream_options={"include_usage": True},
    ) as stream:
        kinds = {event.type async for event in stream}
        first = await stream.get_final_completion()
    message = first.choices[0].message
    results = [
        {"role": "tool", "tool_call_id": call.id, "content": "It rains."}
        for call in message.tool_calls
    ]
    last = await client.chat.completions.create(
        **GREEDY,
        messages=[*ASKED, message.to_dict(), *results],
        tools=tools,
        tool_choice="none",
        max_tokens=12,
    )

    assert "tool_calls.function.arguments.done" in kinds
    assert message.tool_calls[0].function.parsed_arguments["city"] in ("Oslo", "Bergen")
    assert last.choices[0].message.content
    assert last.usage.prompt_tokens_details.cached_tokens >= 0.95 * first.usage.prompt_tokens


async def test_an_answer_has_the_type_that_was_asked_for(client):
    chat = await client.chat.completions.parse(
        **GREEDY, messages=ASKED, response_format=Report, max_tokens=64
    )
    response = await client.responses.parse(
        **GREEDY, input="How warm is Oslo?", text_format=Report, max_output_tokens=64
    )

    assert isinstance(chat.choices[0].message.parsed, Report)
    assert isinstance(response.output_parsed, Report)


async def test_a_form_that_cannot_be_compiled_is_a_bad_request(client):
    conversation = await client.conversations.create()
    for syntax, definition in (("regex", "["), ("lark", "start: missing")):
        form = {"type": "grammar", "syntax": syntax, "definition": definition}
        with pytest.raises(openai.BadRequestError) as caught:
            await client.responses.create(
                **GREEDY,
                input="x",
                conversation=conversation.id,
                extra_body={"text": {"format": form}},
            )
        assert (caught.value.code, caught.value.param) == ("invalid_request", "text.format")

    assert not (await client.conversations.items.list(conversation.id)).data


async def test_a_loop_of_responses_computes_only_what_is_new(client):
    given, previous, before, rows = ASKED, None, 0, 0
    for number in range(4):
        stream = await client.responses.create(
            **GREEDY,
            input=given,
            previous_response_id=previous,
            instructions="Ask for the weather.",
            tools=TOOLS,
            tool_choice="required",
            parallel_tool_calls=False,
            max_output_tokens=48,
            stream=True,
        )
        events = [event async for event in stream]
        judge_stream([as_sent(event.to_dict()) for event in events])
        made = events[-1].response
        (call,) = made.output
        given, previous = [result_of(call)], made.id
        details = made.usage.input_tokens_details
        assert details.cached_tokens == (before - 1 if number else details.cached_tokens)
        before = made.usage.total_tokens
        rows += made.splice["metrics"]["rows_computed"]

    assert rows <= 1.01 * before


async def test_a_conversation_is_kept_by_the_server(client):
    kept = await client.conversations.create(items=[{**ASKED[0], "type": "message"}])
    first = await client.responses.create(
        **GREEDY,
        input="Well?",
        conversation=kept.id,
        tools=TOOLS,
        tool_choice="required",
        parallel_tool_calls=False,
        max_output_tokens=64,
    )
    judge_response(as_sent(first.to_dict()))
    results = [result_of(call) for call in first.output]
    second = await client.responses.create(
        **GREEDY, input=results, conversation=kept.id, tools=TOOLS, tool_choice="none"
    )

    items = [item async for item in await client.conversations.items.list(kept.id, order="asc")]
    kinds = [item.type for item in items]
    assert kinds[:3] == ["message", "message", "function_call"]
    assert kinds[-2:] == ["function_call_output", "message"]
    assert items[-1].content[0].text == second.output_text
    judge_response(as_sent(second.to_dict()))


async def test_a_stream_that_was_lost_is_gone_on_with_by_either_of_its_ways(client):
    lost = await client.responses.create(
        **GREEDY,
        input="Count to ten.",
        background=True,
        stream=True,
        max_output_tokens=64,
        text={"format": FORM},  # a reply that is cut isn't completed
    )
    seen = []
    async for event in lost:
        seen.append(as_sent(event.to_dict()))
        if event.type == "response.output_text.delta":
            break
    await lost.close()
    response_id, cursor = seen[0]["response"]["id"], seen[-1]["sequence_number"]

    rest = await client.responses.retrieve(response_id, stream=True, starting_after=cursor)
    whole = [*seen, *[as_sent(event.to_dict()) async for event in rest]]
    response = judge_stream(whole)
    async with client.responses.stream(response_id=response_id, starting_after=cursor) as again:
        told = [event.sequence_number async for event in again]
        assert (await again.get_final_response()).output_text
    assert told == list(range(cursor + 1, len(whole)))
    stored = await client.responses.retrieve(response_id)
    assert stored.output_text == response["output"][0]["content"][0]["text"]


async def test_a_websocket_carries_a_loop_with_calls(client):
    async with client.responses.connect() as connection:

        async def made(**fields):
            await connection.response.create(**GREEDY, tools=TOOLS, **fields)
            events = [await connection.recv()]
            while events[-1].type not in ("response.completed", "response.incomplete", "error"):
                events.append(await connection.recv())
            judge_stream([as_sent(event.to_dict()) for event in events])
            return events[-1].response

        first = await made(
            input=ASKED, tool_choice="required", parallel_tool_calls=False, max_output_tokens=48
        )
        second = await made(
            input=[result_of(first.output[0])],
            previous_response_id=first.id,
            tool_choice="none",
            store=False,
            max_output_tokens=8,
        )

    assert second.output_text
    # More where another test's loop began with the same words.
    cached = second.usage.input_tokens_details.cached_tokens
    assert cached >= first.usage.total_tokens - 1


async def test_what_goes_wrong_is_raised_as_openais_own_errors(client):
    image = [{"role": "user", "content": [{"type": "input_image", "image_url": "data:,"}]}]
    with pytest.raises(openai.BadRequestError) as caught:
        await client.responses.create(**GREEDY, input=image)
    assert (caught.value.code, caught.value.param) == (
        "unsupported_input",
        "input[0].content[0]",
    )
    assert caught.value.request_id
    with pytest.raises(openai.NotFoundError):
        await client.responses.retrieve("resp_0")
    with pytest.raises(openai.NotFoundError):
        await client.models.retrieve("gpt-none")


async def test_the_models_are_listed_with_their_context(client):
    models = [model async for model in client.models.list()]

    assert {"default", "SmolLM2-135M-Instruct"} <= {model.id for model in models}
    assert all(model.context_length > 0 for model in models)
