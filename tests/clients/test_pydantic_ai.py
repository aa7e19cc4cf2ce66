"""Pydantic AI over chat completions, responses, a websocket, in the background and compacted."""

from itertools import pairwise
from typing import Literal

import pytest
from pydantic import BaseModel
from pydantic_ai import Agent, NativeOutput, ToolOutput
from pydantic_ai.messages import ModelResponse, ToolCallPart, ToolReturnPart
from pydantic_ai.models.openai import OpenAIChatModel, OpenAICompaction, OpenAIResponsesModel
from pydantic_ai.providers.openai import OpenAIProvider
from pydantic_ai.settings import ModelSettings

INSTRUCTIONS = "You are a friendly weather reporter. Answer in one short sentence, always."

# A reply that reaches its limit can't be gone on with, so answers are held to one sentence.
SENTENCE = "[A-Z][a-z ]{3,20}[.]"
SAYING = {
    OpenAIChatModel: {"response_format": {"type": "regex", "regex": SENTENCE}},
    OpenAIResponsesModel: {
        "text": {"format": {"type": "grammar", "syntax": "regex", "definition": SENTENCE}}
    },
}


class Report(BaseModel):
    """How a city is."""

    city: Literal["Oslo", "Bergen"]
    degrees: Literal[1, 2, 3]


@pytest.fixture
def provider(client):
    return OpenAIProvider(openai_client=client)


@pytest.fixture
def responses(provider):
    return OpenAIResponsesModel("default", provider=provider)


@pytest.fixture(params=["chat", "responses"])
def either(request, provider):
    of = {"chat": OpenAIChatModel, "responses": OpenAIResponsesModel}[request.param]
    return of("default", provider=provider)


def talker(model, **settings):
    given = ModelSettings(
        max_tokens=400, temperature=0.0, extra_body=SAYING[type(model)], **settings
    )
    return Agent(model, instructions=INSTRUCTIONS, model_settings=given)


def caller(model, **settings):
    """An agent whose answer is a call. It has no other: a model of this size would never end."""
    given = ModelSettings(max_tokens=1000, temperature=0.0, **settings)
    return Agent(
        model, instructions=INSTRUCTIONS, model_settings=given, output_type=ToolOutput(Report)
    )


def replies(result):
    return [m for m in result.all_messages() if isinstance(m, ModelResponse)]


async def test_it_answers_whole_and_in_pieces(either):
    agent = talker(either)
    # The second time, with its prompt cached: so it is when it is streamed, to the last bit.
    for _ in range(2):
        whole = await agent.run("Where is Oslo?")
    async with agent.run_stream("Where is Oslo?") as streamed:
        pieces = [piece async for piece in streamed.stream_text(delta=True, debounce_by=None)]

    assert "".join(pieces) == whole.output
    assert len(pieces) > 3
    usage = whole.usage
    assert usage.input_tokens > 0
    assert usage.cache_read_tokens + usage.cache_write_tokens == usage.input_tokens


async def test_an_answer_that_is_a_call_has_the_type_that_was_asked_for(either):
    result = await caller(either).run("How warm is Oslo?")

    assert isinstance(result.output, Report)
    calls = [p for m in replies(result) for p in m.parts if isinstance(p, ToolCallPart)]
    given = [p for m in result.all_messages() for p in m.parts if isinstance(p, ToolReturnPart)]
    assert {p.tool_call_id for p in given} == {p.tool_call_id for p in calls}


async def test_a_native_answer_has_the_type_that_was_asked_for(either):
    agent = Agent(
        either,
        output_type=NativeOutput(Report),
        model_settings=ModelSettings(max_tokens=1000),
    )
    async with agent.run_stream("How warm is Oslo?") as streamed:
        assert isinstance(await streamed.get_output(), Report)


async def test_only_what_is_new_is_sent_behind_the_previous_response(responses, client):
    agent = talker(responses, openai_previous_response_id="auto")
    first = await agent.run("Where is Oslo?")
    second = await agent.run("And Bergen?", message_history=first.all_messages())

    before, after = replies(second)
    stored = await client.responses.retrieve(after.provider_response_id)
    assert stored.previous_response_id == before.provider_response_id
    assert len(stored.input) == 1
    reusable = before.usage.input_tokens + before.usage.output_tokens - 1
    assert after.usage.cache_read_tokens >= 0.95 * reusable


async def test_runs_in_a_conversation_leave_everything_to_the_server(responses, client):
    conversation = await client.conversations.create()
    agent = talker(responses, openai_conversation_id=conversation.id)
    first = await agent.run("Where is Oslo?")
    await agent.run("And Bergen?", message_history=first.all_messages())

    page = await client.conversations.items.list(conversation.id, order="asc")
    assert [item.role async for item in page] == ["user", "assistant"] * 2


async def test_the_requests_of_a_run_share_a_websocket(responses):
    agent = caller(responses, openai_transport="websocket")
    async with agent:
        first = await agent.run("How warm is Oslo?")
        second = await agent.run("And Bergen?", message_history=first.all_messages())

    assert isinstance(second.output, Report)
    for before, after in pairwise(replies(second)):
        reusable = before.usage.input_tokens + before.usage.output_tokens - 1
        assert after.usage.cache_read_tokens >= 0.9 * reusable


async def test_what_is_not_stored_is_gone_on_with_on_its_websocket(responses, client):
    agent = talker(responses, openai_transport="websocket", openai_store=False)
    async with agent:
        first = await agent.run("Where is Oslo?")
        second = await agent.run("And Bergen?", message_history=first.all_messages())

    before, after = replies(second)
    reusable = before.usage.input_tokens + before.usage.output_tokens - 1
    assert after.usage.cache_read_tokens >= 0.95 * reusable


async def test_a_response_in_the_background_is_waited_for(responses):
    result = await talker(responses, openai_background=True).run("Where is Oslo?")

    (reply,) = replies(result)
    assert reply.provider_details["background"] is True
    assert result.output


async def test_a_history_is_compacted_by_the_server(responses):
    agent = Agent(
        responses,
        instructions=INSTRUCTIONS,
        model_settings=ModelSettings(max_tokens=400, extra_body=SAYING[OpenAIResponsesModel]),
        capabilities=[OpenAICompaction(message_count_threshold=3)],
    )
    first = await agent.run("Where is Oslo?")
    second = await agent.run("And Bergen?", message_history=first.all_messages())
    third = await agent.run("And now?", message_history=second.all_messages())

    assert third.output
    kinds = {type(part).__name__ for m in third.all_messages() for part in m.parts}
    assert "CompactionPart" in kinds


async def test_a_long_conversation_is_summed_up_on_the_way(responses):
    agent = Agent(
        responses,
        instructions=INSTRUCTIONS,
        model_settings=ModelSettings(max_tokens=400, extra_body=SAYING[OpenAIResponsesModel]),
        capabilities=[OpenAICompaction(token_threshold=120)],
    )
    first = await agent.run("Where is Oslo? " * 20)
    second = await agent.run("And Bergen?", message_history=first.all_messages())

    kinds = [type(part).__name__ for part in replies(second)[-1].parts]
    assert kinds == ["CompactionPart", "TextPart"]
    third = await agent.run("And now?", message_history=second.all_messages())
    assert third.output
