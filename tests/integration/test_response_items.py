"""Calls, reasoning and forms in responses, by OpenAI's own client."""

import pytest

from tests.integration.test_openapi import read, schema_of
from tests.support.fake_engine import FakeReply
from tests.support.front_end import receive

WEATHER = {
    "type": "function",
    "name": "weather",
    "description": "Says the weather.",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
}
CALL = '<tool_call>\n{"name": "weather", "arguments": {"city": "Oslo"}}\n</tool_call>'


def calling(*pieces):
    return FakeReply(pieces=pieces)


async def test_a_call_is_streamed_and_its_result_put_in_again(front, client):
    front.engine.replies.append(calling("Let me see.\n", CALL[:40], CALL[40:60], CALL[60:]))
    async with client.responses.stream(
        model="default", input="How is Oslo?", tools=[WEATHER]
    ) as stream:
        events = [event async for event in stream]
        first = await stream.get_final_response()

    message, call = first.output
    assert message.content[0].text.strip() == "Let me see."
    assert (call.type, call.name, call.arguments) == (
        "function_call",
        "weather",
        '{"city": "Oslo"}',
    )
    numbers = [e.sequence_number for e in events if e.type.startswith("response.")]
    assert numbers == sorted(numbers)
    said = "".join(e.delta for e in events if e.type == "response.function_call_arguments.delta")
    assert said == call.arguments

    result = {"type": "function_call_output", "call_id": call.call_id, "output": "Rain."}
    second = await client.responses.create(
        input=[result], previous_response_id=first.id, tools=[WEATHER]
    )
    one, two = (request.token_ids for request in front.engine.requests)
    assert two[: len(one)] == one
    assert second.usage.input_tokens_details.cached_tokens > 0

    items = (await client.conversations.items.list(first.conversation.id, order="asc")).data
    assert [item.type for item in items] == [
        "message",
        "message",
        "function_call",
        "function_call_output",
        "message",
    ]
    assert items[3].output == "Rain."
    assert (items[2].id, items[2].call_id) == (call.id, call.call_id)


async def test_reasoning_is_an_item_of_its_own_and_counted(front, client):
    front.engine.default = FakeReply(pieces=("<think>", "hm, ", "so", "</think>\n\n", "Oslo."))
    made = await client.responses.create(input="Where?")

    reasoning, message = made.output
    assert (reasoning.type, reasoning.content[0].text) == ("reasoning", "hm, so")
    assert message.content[0].text == "Oslo."
    assert made.usage.output_tokens_details.reasoning_tokens > 0
    replayed = [e async for e in await client.responses.retrieve(made.id, stream=True)]
    assert [e.sequence_number for e in replayed] == list(range(len(replayed)))
    assert "response.reasoning_text.delta" in [e.type for e in replayed]


async def test_a_whole_stateless_loop_gives_the_same_prompt_as_the_chain(front, client):
    front.engine.replies.append(calling(CALL))
    first = await client.responses.create(input="How is Oslo?", tools=[WEATHER])
    (call,) = first.output
    result = {"type": "function_call_output", "call_id": call.call_id, "output": "Rain."}
    await client.responses.create(input=[result], previous_response_id=first.id, tools=[WEATHER])
    await client.responses.create(
        input=[{"role": "user", "content": "How is Oslo?"}, call.to_dict(), result],
        tools=[WEATHER],
        store=False,
    )

    _, chained, whole = (request.token_ids for request in front.engine.requests)
    assert chained[-20:] == whole[-20:]


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"tools": [{"type": "web_search"}]}, "tools[0].type"),
        ({"tools": [{"type": "function"}]}, "tools[0].name"),
        ({"tools": [WEATHER, WEATHER]}, "tools[1].name"),
        ({"tools": [WEATHER], "tool_choice": "maybe"}, "tool_choice"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"tools": [WEATHER], "tool_choice": {"type": "function", "name": "x"}}, "tool_choice"),
        ({"tool_choice": {"type": "file_search"}}, "tool_choice.type"),
        ({"text": {"format": {"type": "json_schema"}}}, "text.format.schema"),
        ({"text": {"format": {"type": "xml"}}}, "text.format.type"),
        ({"input": [{"type": "function_call"}]}, "input[0].call_id"),
        ({"input": [{"type": "compaction", "encrypted_content": "!"}]}, None),
    ],
)
async def test_tools_that_cannot_be_offered_are_refused_by_name(front, fields, param):
    status, answer = await front.call("POST", "/v1/responses", json={"input": "x", **fields})

    assert status == 400
    assert answer["error"]["param"] == param or "encrypted_content" in answer["error"]["param"]


async def test_what_is_nested_too_deep_is_refused_wherever_it_stands(front):
    deep = {"type": "object"}
    for _ in range(240):
        deep = {"a": deep}
    tool = {"type": "function", "name": "f", "parameters": deep}
    for path, body in (
        ("/v1/responses", {"input": "x", "tools": [tool]}),
        ("/v1/responses", {"input": "x", "text": {"format": {"schema": deep}}}),
        (
            "/v1/chat/completions",
            {"messages": [{"role": "user", "content": "x"}], "tools": [{"function": tool}]},
        ),
    ):
        status, answer = await front.call("POST", path, json=body)
        assert (status, answer["error"]["code"]) == (400, "invalid_request")
    async with front.client.ws_connect("/v1/responses") as ws:
        await ws.send_json({"type": "response.steer", "input": deep})
        assert (await receive(ws))["error"]["code"] == "invalid_request"
        await ws.send_json({"type": "response.steer"})
        assert (await receive(ws))["type"] == "response.steer.failed"


async def test_a_form_and_a_demanded_call_hold_the_reply(front, client):
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}}
    made = await client.responses.create(
        input="x",
        text={"format": {"type": "json_schema", "name": "a", "schema": schema}},
    )
    await client.responses.create(input="x", tools=[WEATHER], tool_choice="required")

    formed, bound = (request.params.grammar for request in front.engine.requests)
    assert (formed.kind, '"integer"' in formed.text) == ("json_schema", True)
    assert "weather" in bound.text
    assert made.text.format.type == "json_schema"


@pytest.mark.parametrize("tool", [WEATHER, {**WEATHER, "strict": True}], ids=["free", "strict"])
async def test_a_reply_with_tools_and_a_form_has_the_form_or_calls(front, client, tool):
    schema = {"type": "object", "properties": {"degrees": {"type": "integer"}}}
    asked = {
        "input": "x",
        "tools": [tool],
        "text": {"format": {"type": "json_schema", "name": "a", "schema": schema}},
    }
    front.engine.replies += [FakeReply(pieces=(CALL,)), FakeReply(pieces=('{"degrees": 3}',))]
    called, answered = [await client.responses.create(**asked) for _ in range(2)]

    for request in front.engine.requests:
        assert all(word in request.params.grammar.text for word in ("weather", "degrees"))
    assert [item.type for item in called.output] == ["function_call"]
    assert answered.output_text == '{"degrees": 3}'


async def test_a_tool_that_is_named_is_called_once(front, client):
    named = {"type": "function", "name": "weather"}
    await client.responses.create(input="x", tools=[WEATHER], tool_choice=named)
    await client.responses.create(input="x", tools=[WEATHER], tool_choice="required")

    once, often = (request.params.grammar.text for request in front.engine.requests)
    assert "sep call" not in once
    assert "sep call" in often


async def test_events_answers_and_frames_are_as_the_document_says(front):
    document = await read(front)
    pieces = ("<think>", "hm", "</think>\n\n", "So: ", CALL)
    front.engine.default = FakeReply(pieces=pieces)
    body = {"input": "x", "tools": [WEATHER]}
    frame = schema_of(document, "ResponseServerFrame")
    async with front.client.ws_connect("/v1/responses") as ws:
        await ws.send_json({"type": "response.create", "stream_id": "a", **body})
        while (event := await receive(ws))["type"] != "response.completed":
            frame.validate(event)
        frame.validate(event)
        for wrong in ({"type": "response.create"}, {"type": "response.steer"}):
            await ws.send_json(wrong)
            frame.validate(await receive(ws))

    response = event["response"]
    place = f"/v1/conversations/{response['conversation']['id']}"
    answers = [
        ("Turn", await front.call("GET", f"/v1/responses/{response['id']}")),
        ("ItemList", await front.call("GET", f"/v1/responses/{response['id']}/input_items")),
        ("ItemList", await front.call("GET", place + "/items")),
        ("Item", await front.call("GET", f"{place}/items/{response['output'][0]['id']}")),
        ("Conversation", await front.call("GET", place)),
        ("InputTokens", await front.call("POST", "/v1/responses/input_tokens", json=body)),
        ("Compacted", await front.call("POST", "/v1/responses/compact", json=body)),
        ("DeletedResponse", await front.call("DELETE", f"/v1/responses/{response['id']}")),
    ]
    for name, (status, answer) in answers:
        assert status == 200, (name, answer)
        schema_of(document, name).validate(answer)
