"""Tools, forms, choices and log probabilities, asked for by OpenAI's own unmodified client."""

import json

import openai
import pytest

from model.messages import (
    FinishReason,
    GenerationDelta,
    GenerationFinished,
    SampledLogprobs,
    TokenLogprob,
)
from sessions.tools import ToolMode
from tests.support.fake_completions import make_script
from tests.support.front_end import serving

HI = [{"role": "user", "content": "Where?"}]
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "weather",
            "parameters": {"type": "object", "properties": {"city": {"type": "string"}}},
        },
    }
]
CALL = '<tool_call>\n{"name": "weather", "arguments": {"city": "Oslo"}}\n</tool_call>'


def _client(front, **kwargs):
    return openai.AsyncOpenAI(base_url=front.base_url, api_key="any", max_retries=0, **kwargs)


async def test_the_client_gets_calls_and_sends_their_results():
    async with serving() as front, _client(front) as client:
        front.completions.script = make_script("Let me see.\n", CALL, "\n", CALL)
        answer = await client.chat.completions.create(model="default", messages=HI, tools=TOOLS)

        (choice,) = answer.choices
        assert choice.finish_reason == "tool_calls"
        assert choice.message.content == "Let me see."
        one, other = choice.message.tool_calls
        assert json.loads(one.function.arguments) == {"city": "Oslo"}
        assert one.id != other.id
        results = [{"role": "tool", "tool_call_id": c.id, "content": "rain"} for c in (one, other)]
        front.completions.script = make_script("It rains.")
        history = [*HI, choice.message.model_dump(exclude_none=True), *results]
        await client.chat.completions.create(model="default", messages=history, tools=TOOLS)

        _, asked, _ = front.completions.calls[-1]
        assert [call.id for call in asked.messages[1].calls] == [one.id, other.id]
        assert [m.call_id for m in asked.messages[2:]] == [one.id, other.id]


async def test_the_client_streams_calls():
    async with serving() as front, _client(front) as client:
        front.completions.script = make_script(*CALL)
        async with client.chat.completions.stream(
            model="default", messages=HI, tools=TOOLS
        ) as stream:
            kinds = [event.type async for event in stream]
            final = await stream.get_final_completion()

    assert "tool_calls.function.arguments.done" in kinds
    (call,) = final.choices[0].message.tool_calls
    assert (call.function.name, call.function.arguments) == ("weather", '{"city": "Oslo"}')
    assert final.choices[0].finish_reason == "tool_calls"


async def test_the_chunks_of_a_call_come_in_openais_order():
    async with serving() as front, _client(front) as client:
        front.completions.script = make_script(CALL)
        chunks = [
            chunk.choices[0]
            async for chunk in await client.chat.completions.create(
                model="default", messages=HI, tools=TOOLS, stream=True
            )
        ]

    first, begun, *deltas, last = chunks
    assert (first.delta.role, first.delta.content) == ("assistant", None)
    (call,) = begun.delta.tool_calls
    assert (call.index, call.type, call.function.name) == (0, "function", "weather")
    assert call.id.startswith("call_")
    assert call.function.arguments == ""
    arguments = [chunk.delta.tool_calls[0].function.arguments for chunk in deltas]
    assert "".join(arguments) == '{"city": "Oslo"}'
    assert all(chunk.delta.tool_calls[0].id is None for chunk in deltas)
    assert last.finish_reason == "tool_calls"


async def test_a_call_that_is_cut_ends_for_its_length():
    async with serving() as front, _client(front) as client:
        front.completions.script = make_script(CALL[:50], reason=FinishReason.LENGTH)
        answer = await client.chat.completions.create(model="default", messages=HI, tools=TOOLS)

    assert answer.choices[0].finish_reason == "length"
    assert answer.choices[0].message.tool_calls[0].function.arguments.startswith('{"c')


async def test_reasoning_comes_beside_the_answer():
    async with serving() as front, _client(front) as client:
        front.completions.script = make_script("<think>", "hm", "</think>", "Oslo.")
        answer = await client.chat.completions.create(model="default", messages=HI)
        message = answer.choices[0].message
        assert (message.reasoning_content, message.content) == ("hm", "Oslo.")
        assert answer.usage.completion_tokens_details.reasoning_tokens == 3

        stream = await client.chat.completions.create(model="default", messages=HI, stream=True)
        deltas = [chunk.choices[0].delta async for chunk in stream]
        assert [getattr(d, "reasoning_content", None) for d in deltas][1] == "hm"
        assert "".join(d.content or "" for d in deltas) == "Oslo."


async def test_choices_of_tools_and_forms_reach_the_sessions():
    async with serving() as front, _client(front) as client:
        front.completions.script = make_script(CALL)
        await client.chat.completions.create(
            model="default",
            messages=HI,
            tools=TOOLS,
            tool_choice={"type": "function", "function": {"name": "weather"}},
        )
        assert front.completions.calls[-1][1].choice.mode is ToolMode.REQUIRED

        front.completions.script = make_script('{"a": 1}')
        await client.chat.completions.create(
            model="default", messages=HI, response_format={"type": "json_object"}
        )
        assert front.completions.calls[-1][1].params.grammar.param == "response_format"


@pytest.mark.parametrize("is_streamed", [False, True])
async def test_several_choices_are_told_apart(is_streamed):
    async with serving() as front, _client(front) as client:
        front.completions.script = make_script("Os", "lo")
        answer = await client.chat.completions.create(
            model="default",
            messages=HI,
            n=3,
            seed=7,
            stream=is_streamed,
            **({"stream_options": {"include_usage": True}} if is_streamed else {}),
        )
        texts = ["", "", ""]
        if is_streamed:
            chunks = [chunk async for chunk in answer]
            for chunk in chunks[:-1]:
                texts[chunk.choices[0].index] += chunk.choices[0].delta.content or ""
            usage = chunks[-1].usage
        else:
            texts = [choice.message.content for choice in answer.choices]
            usage = answer.usage

        assert texts == ["Oslo"] * 3
        assert (usage.prompt_tokens, usage.completion_tokens) == (120, 6)
        calls = front.completions.calls
        assert [asked.params.seed for _, asked, _ in calls] == [7, 8, 9]
        assert len({asked.group for _, asked, _ in calls}) == 1
        assert len({request_id for *_, request_id in calls}) == 3


async def test_one_choice_that_fails_ends_them_all():
    async with serving() as front, _client(front) as client:
        front.completions.script = [*make_script("Os")[:2], RuntimeError("broken")]
        with pytest.raises(openai.InternalServerError):
            await client.chat.completions.create(model="default", messages=HI, n=2)


def _likely(token_id: int, text: str) -> GenerationDelta:
    logprobs = SampledLogprobs(
        sampled=TokenLogprob(token_id, -0.5),
        likeliest=(TokenLogprob(token_id, -0.5), TokenLogprob(9, -float("inf"))),
    )
    return GenerationDelta(token_ids=(token_id,), text=text, logprobs=(logprobs,))


LIKELY = [_likely(5, ""), _likely(6, "Oslo"), _likely(2, "")]  # the last is the end token
FINISHED = GenerationFinished(
    reason=FinishReason.STOP, token_ids=(5, 6, 2), text="Oslo", num_rows_computed=3
)


@pytest.mark.parametrize("is_streamed", [False, True])
async def test_log_probabilities_come_with_their_tokens(is_streamed):
    async with serving() as front, _client(front) as client:
        front.completions.script = [make_script()[0], *LIKELY, FINISHED]
        answer = await client.chat.completions.create(
            model="default",
            messages=HI,
            logprobs=True,
            top_logprobs=2,
            stream=is_streamed,
        )
        if is_streamed:
            choices = [chunk.choices[0] async for chunk in answer]
            told = [c.logprobs.content for c in choices if c.logprobs is not None]
            (entries,) = told
        else:
            entries = answer.choices[0].logprobs.content

    assert [entry.token for entry in entries] == ["<5>", "<6>"]
    assert entries[0].bytes == list(b"<5>")
    assert [top.logprob for top in entries[0].top_logprobs] == [-0.5, -9999.0]


async def test_usage_says_what_became_of_the_cache():
    async with serving() as front, _client(front) as client:
        front.completions.script = make_script("Oslo")
        answer = await client.chat.completions.create(model="default", messages=HI)

    details = answer.usage.prompt_tokens_details
    assert (details.cached_tokens, details.cache_write_tokens) == (112, 8)
    assert answer.prompt_cache_diagnostics["splice_tiers"]["device"] >= 0
    assert answer.prompt_cache_diagnostics["comparison_reusable_tokens"] == 112


async def test_a_model_tells_its_context():
    async with serving() as front, _client(front) as client:
        model = await client.models.retrieve("org/tiny")

    assert (model.id, model.context_length, model.max_model_len) == ("org/tiny", 2048, 2048)
