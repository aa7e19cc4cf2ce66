"""OpenAI's agents: runs with tools over every way that the framework knows to keep a conversation.

`tool_choice="required"` makes the model call, and behind its first result it may only answer.
A reply that reaches its limit is an error to the framework, so answers are held to one sentence.
"""

from itertools import pairwise
from typing import Literal

import pytest
from agents import (
    Agent,
    ModelSettings,
    OpenAIChatCompletionsModel,
    OpenAIConversationsSession,
    OpenAIResponsesCompactionSession,
    OpenAIResponsesModel,
    Runner,
    SQLiteSession,
    handoff,
    responses_websocket_session,
)
from pydantic import BaseModel

from tests.clients.reporter import CALLING, ONCE, SENTENCE, TALKING, reporter
from tests.support.open_responses import as_sent, judge_stream


@pytest.fixture
def model(client):
    return OpenAIResponsesModel(model="gpt-local", openai_client=client)


def kinds(result):
    return [item.type for item in result.new_items]


CALLED = ["tool_call_item", "tool_call_output_item"]


async def test_a_run_calls_a_tool_and_answers(model):
    result = await Runner.run(reporter(model), "How is Oslo?")

    assert kinds(result)[:2] == CALLED
    assert result.new_items[1].output.startswith("It rains in ")
    assert result.final_output
    usage = result.context_wrapper.usage
    assert usage.requests == len(result.raw_responses)
    assert usage.input_tokens_details.cached_tokens > 0


async def test_a_conversations_session_keeps_what_was_said(model, client):
    session = OpenAIConversationsSession(openai_client=client)
    first = await Runner.run(reporter(model), "How is Oslo?", session=session)
    second = await Runner.run(reporter(model, TALKING), "And tomorrow?", session=session)

    items = await session.get_items()
    shown = [item.get("role", item["type"]) for item in items]
    assert shown[:3] == ["user", "function_call", "function_call_output"]
    assert shown[-2:] == ["user", "assistant"]
    assert items[-1]["content"][0]["text"] == second.final_output
    assert items[1]["call_id"] == first.new_items[0].raw_item.call_id
    assert await session.get_items(limit=2) == items[-2:]
    cached = second.context_wrapper.usage.input_tokens_details.cached_tokens
    assert cached > first.raw_responses[0].usage.input_tokens / 2


async def test_a_conversations_session_loses_an_item_and_is_cleared(client):
    session = OpenAIConversationsSession(openai_client=client)
    said = [{"role": "user", "content": str(number)} for number in range(45)]
    await session.add_items(said)

    assert [item["content"][0]["text"] for item in await session.get_items()] == [
        item["content"] for item in said
    ]
    assert (await session.pop_item())["content"][0]["text"] == "44"
    assert len(await session.get_items()) == 44
    gone = session.session_id
    await session.clear_session()
    assert await session.get_items() == []
    assert session.session_id != gone


async def test_a_run_sends_only_what_is_new_behind_the_previous_response(model, client):
    result = await Runner.run(reporter(model), "How is Oslo?", auto_previous_response_id=True)
    goes_on = await Runner.run(
        reporter(model, TALKING), "And Bergen?", previous_response_id=result.last_response_id
    )

    first, *others = [r.response_id for r in result.raw_responses]
    for response_id in others:
        stored = await client.responses.retrieve(response_id)
        assert stored.previous_response_id == first
        assert [item["type"] for item in stored.input] == ["function_call_output"]
        first = response_id
    last = await client.responses.retrieve(goes_on.last_response_id)
    assert last.previous_response_id == result.last_response_id
    assert len(last.input) == 1
    for before, after in pairwise(result.raw_responses):
        reusable = before.usage.input_tokens + before.usage.output_tokens - 1
        assert after.usage.input_tokens_details.cached_tokens >= 0.95 * reusable


async def test_runs_in_a_conversation_leave_everything_to_the_server(model, client):
    conversation = await client.conversations.create()
    await Runner.run(reporter(model), "How is Oslo?", conversation_id=conversation.id)
    await Runner.run(reporter(model, TALKING), "Thanks!", conversation_id=conversation.id)

    page = await client.conversations.items.list(conversation.id, order="asc")
    said = [getattr(item, "role", item.type) async for item in page]
    assert said[:3] == ["user", "function_call", "function_call_output"]
    assert said[-2:] == ["user", "assistant"]


async def test_a_streamed_run_with_a_tool_is_told_in_whole_streams(model):
    result = Runner.run_streamed(reporter(model), "How is Oslo?")
    streams, told = [], []
    async for event in result.stream_events():
        if event.type == "run_item_stream_event":
            told.append(event.name)
        if event.type != "raw_response_event":
            continue
        if event.data.type in ("response.created", "response.queued"):
            streams.append([])
        streams[-1].append(as_sent(event.data.to_dict()))

    responses = [judge_stream(stream) for stream in streams]
    assert [item["type"] for item in responses[0]["output"]] == ["function_call"]
    assert told[:2] == ["tool_called", "tool_output"]
    assert result.final_output
    deltas = [e["delta"] for e in streams[-1] if e["type"] == "response.output_text.delta"]
    assert "".join(deltas) == result.final_output


async def test_a_streamed_run_that_is_cancelled_leaves_nothing_running(model, client):
    settings = ModelSettings(max_tokens=400, extra_body={"ignore_eos": True})
    result = Runner.run_streamed(reporter(model, settings), "Tell me a long story.")
    async for event in result.stream_events():
        if event.type == "raw_response_event" and event.data.type == "response.created":
            response_id = event.data.response.id
        if event.type == "raw_response_event" and event.data.type.endswith("text.delta"):
            result.cancel()

    left = await client.responses.retrieve(response_id, stream=True)
    last = [event async for event in left][-1]
    assert (last.type, last.response.status) == ("response.incomplete", "cancelled")
    assert 0 < last.response.usage.output_tokens < 400


@pytest.mark.parametrize("mode", ["previous_response_id", "input"])
async def test_a_session_that_grows_is_compacted(model, client, mode):
    kept = SQLiteSession("compacted")
    session = OpenAIResponsesCompactionSession(
        "compacted",
        kept,
        client=client,
        model="gpt-local",
        compaction_mode=mode,
        should_trigger_compaction=lambda context: len(context["session_items"]) >= 4,
    )
    agent = reporter(model, TALKING)
    await Runner.run(agent, "How is Oslo?", session=session)
    assert len(await kept.get_items()) == 2
    await Runner.run(agent, "And Bergen?", session=session)

    (short,) = await kept.get_items()
    assert short["type"] == "compaction"
    third = await Runner.run(agent, "What did I ask about?", session=session)
    assert third.final_output
    assert (await kept.get_items())[0]["type"] == "compaction"


async def test_runs_share_a_websocket(base_url, client):
    async with responses_websocket_session(base_url=base_url, api_key="any") as ws:
        first = await ws.run(reporter("gpt-local"), "How is Oslo?", auto_previous_response_id=True)
        streamed = ws.run_streamed(
            reporter("gpt-local", TALKING),
            "And tomorrow?",
            previous_response_id=first.last_response_id,
        )
        events = [event async for event in streamed.stream_events()]

    assert kinds(first)[:2] == CALLED
    raw = [as_sent(event.data.to_dict()) for event in events if event.type == "raw_response_event"]
    last = judge_stream(raw)
    assert last["previous_response_id"] == first.last_response_id
    assert last["usage"]["input_tokens_details"]["cached_tokens"] > 0
    stored = await client.responses.retrieve(streamed.last_response_id)
    assert stored.output_text == streamed.final_output


async def test_a_run_is_handed_to_another_agent(model):
    answers = reporter(model, TALKING, handoff_description="Knows the weather.")
    desk = Agent(
        name="Desk",
        instructions="Hand every question on.",
        model=model,
        model_settings=CALLING,
        handoffs=[handoff(answers)],
    )
    result = await Runner.run(desk, "How is Oslo?")

    assert kinds(result)[:2] == ["handoff_call_item", "handoff_output_item"]
    assert result.last_agent.name == "Reporter"
    assert result.final_output


class Report(BaseModel):
    """What an answer is held to."""

    city: Literal["Oslo", "Bergen"]
    degrees: Literal[1, 2, 3]


async def test_an_answer_has_the_type_that_was_asked_for(model):
    agent = reporter(model, ModelSettings(**ONCE), output_type=Report)
    result = await Runner.run(agent, "How warm is Oslo?")

    assert kinds(result)[:2] == CALLED
    assert isinstance(result.final_output, Report)


async def test_the_same_run_over_chat_completions(client):
    chat = OpenAIChatCompletionsModel(model="default", openai_client=client)
    form = {"response_format": {"type": "regex", "regex": SENTENCE}}
    settings = ModelSettings(**ONCE, extra_body=form)
    result = Runner.run_streamed(reporter(chat, settings), "How is Oslo?")
    told = [
        event.name
        async for event in result.stream_events()
        if event.type == "run_item_stream_event"
    ]

    assert told[:2] == ["tool_called", "tool_output"]
    assert result.final_output
