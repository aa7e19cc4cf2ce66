"""LiteLLM, which other programs call models through: chat completions and responses."""

import json

import litellm
import pytest

WEATHER = {
    "name": "weather",
    "description": "Says what the weather is like.",
    "parameters": {
        "type": "object",
        "properties": {"city": {"type": "string", "enum": ["Oslo", "Bergen"]}},
        "required": ["city"],
        "additionalProperties": False,
    },
}
BLOCK = 16  # tokens; what is equal is reused by whole blocks
TOOLS = [{"type": "function", "function": WEATHER}]
ASKED = [{"role": "user", "content": "How is Oslo?"}]


@pytest.fixture
def to_us(base_url):
    return {"model": "openai/default", "api_base": base_url, "api_key": "any"}


async def test_a_chat_is_answered_whole_and_in_pieces(to_us):
    # The second time, with its prompt cached: so it is when it is streamed, to the last bit.
    for _ in range(2):
        whole = await litellm.acompletion(messages=ASKED, max_tokens=12, **to_us)
    stream = await litellm.acompletion(
        messages=ASKED,
        max_tokens=12,
        stream=True,
        stream_options={"include_usage": True},
        **to_us,
    )
    chunks = [chunk async for chunk in stream]
    added = litellm.stream_chunk_builder(chunks, messages=ASKED)

    assert whole.choices[0].message.content
    assert added.choices[0].message.content == whole.choices[0].message.content
    assert added.usage.prompt_tokens == whole.usage.prompt_tokens
    assert added.usage.prompt_tokens_details.cached_tokens >= whole.usage.prompt_tokens - BLOCK


@pytest.mark.parametrize("is_streamed", [False, True])
async def test_a_call_and_its_result_go_there_and_back(to_us, is_streamed):
    answer = await litellm.acompletion(
        messages=ASKED,
        tools=TOOLS,
        tool_choice="required",
        max_tokens=1000,
        stream=is_streamed,
        **to_us,
    )
    if is_streamed:
        answer = litellm.stream_chunk_builder([c async for c in answer], messages=ASKED)
    message = answer.choices[0].message
    assert json.loads(message.tool_calls[0].function.arguments)["city"] in ("Oslo", "Bergen")
    results = [
        {"role": "tool", "tool_call_id": call.id, "content": "Rain."} for call in message.tool_calls
    ]
    said = [*ASKED, message.model_dump(), *results]

    last = await litellm.acompletion(
        messages=said, tools=TOOLS, tool_choice="none", max_tokens=12, **to_us
    )
    assert last.choices[0].message.content
    assert last.usage.prompt_tokens_details.cached_tokens >= answer.usage.prompt_tokens


async def test_a_chain_of_responses_is_made_read_streamed_and_deleted(to_us, client):
    at = {"custom_llm_provider": "openai", "api_base": to_us["api_base"], "api_key": "any"}
    first = await litellm.aresponses(input="How is Oslo?", max_output_tokens=12, **to_us)
    stream = await litellm.aresponses(
        input="And Bergen?",
        previous_response_id=first.id,
        max_output_tokens=12,
        stream=True,
        **to_us,
    )
    events = [event async for event in stream]
    second = events[-1].response

    text = "".join(e.delta for e in events if e.type == "response.output_text.delta")
    assert text == second.output[0].content[0].text
    assert second.usage.input_tokens_details.cached_tokens > 0
    read = await litellm.aget_responses(response_id=second.id, **at)
    assert read.output[0].content[0].text == text
    items = await litellm.alist_input_items(response_id=second.id, **at)
    (item,) = items["data"]
    assert item["content"][0]["text"] == "And Bergen?"
    await litellm.adelete_responses(response_id=second.id, **at)
    with pytest.raises(litellm.NotFoundError):
        await litellm.aget_responses(response_id=second.id, **at)


async def test_a_response_calls_and_takes_the_result(to_us):
    tools = [{"type": "function", **WEATHER, "strict": True}]
    first = await litellm.aresponses(
        input="How is Oslo?", tools=tools, tool_choice="required", max_output_tokens=1000, **to_us
    )
    call = first.output[0]
    result = {"type": "function_call_output", "call_id": call.call_id, "output": "Rain."}
    second = await litellm.aresponses(
        input=[result],
        previous_response_id=first.id,
        tools=tools,
        tool_choice="none",
        max_output_tokens=12,
        **to_us,
    )

    assert json.loads(call.arguments)["city"] in ("Oslo", "Bergen")
    assert second.output[0].content[0].text


async def test_a_conversation_is_compacted(to_us):
    first = await litellm.aresponses(input="How is Oslo?", max_output_tokens=12, **to_us)
    short = await litellm.acompact_responses(
        input=[{"role": "user", "content": "How is Oslo?"}],
        previous_response_id=None,
        **to_us,
    )

    assert first.id
    assert short.output[-1].type == "compaction"


async def test_an_unknown_parent_is_a_bad_request(to_us):
    with pytest.raises(litellm.BadRequestError):
        await litellm.aresponses(input="x", previous_response_id="resp_0", **to_us)
