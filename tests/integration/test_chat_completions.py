"""OpenAI's chat endpoint, asked by OpenAI's own unmodified client."""

import asyncio

import openai
import orjson
import pytest

from model.errors import ContextLengthError, EngineBusyError, EngineDiedError
from model.messages import FinishReason
from tests.support.fake_completions import make_script
from tests.support.front_end import serving

HI = [{"role": "user", "content": "Where?"}]


def _client(front, **kwargs):
    return openai.AsyncOpenAI(base_url=front.base_url, api_key="any", max_retries=0, **kwargs)


async def test_the_client_completes_a_chat():
    async with serving() as front, _client(front) as client:
        front.completions.script = make_script("Os", "lo", ".")
        answer = await client.chat.completions.create(
            model="default", messages=HI, temperature=0, seed=4, stop=["\n"], max_tokens=9
        )

        assert answer.choices[0].message.content == "Oslo."
        assert answer.choices[0].finish_reason == "stop"
        assert answer.model == "org/tiny"
        assert answer.usage.prompt_tokens == 120
        assert answer.usage.completion_tokens == 3
        assert answer.usage.total_tokens == 123
        assert answer.usage.prompt_tokens_details.cached_tokens == 112
        _, asked, request_id = front.completions.calls[0]
        params = asked.params
        assert asked.messages[0].text == "Where?"
        assert (params.seed, params.stop, params.max_output_tokens) == (4, ("\n",), 9)
        assert request_id == answer.id


async def test_the_client_streams_a_chat():
    async with serving() as front, _client(front) as client:
        front.completions.script = make_script("Os", "", "lo", reason=FinishReason.LENGTH)
        chunks = [
            chunk
            async for chunk in await client.chat.completions.create(
                model="org/tiny",
                messages=HI,
                stream=True,
                stream_options={"include_usage": True},
                extra_body={"ignore_eos": True, "top_k": 5, "repetition_penalty": 1.1},
            )
        ]

        text = [c.choices[0].delta.content for c in chunks if c.choices]
        assert text == ["", "Os", "lo", None]
        assert [c.usage is not None for c in chunks] == [False] * 4 + [True]
        params = front.completions.calls[0][1].params
        assert (params.ignore_eos, params.top_k, params.repetition_penalty) == (True, 5, 1.1)


@pytest.mark.parametrize("includes_usage", [False, True])
async def test_the_chunks_come_in_openais_order(includes_usage):
    async with serving() as front:
        front.completions.script = make_script("Oslo")
        body = {"messages": HI, "stream": True, "stream_options": {"include_usage": includes_usage}}
        async with front.client.post("/v1/chat/completions", json=body) as answer:
            lines = [line for line in (await answer.text()).split("\n\n") if line]

    assert lines[-1] == "data: [DONE]"
    chunks = [orjson.loads(line.removeprefix("data: ")) for line in lines[:-1]]
    choices = [chunk["choices"] for chunk in chunks]
    assert choices[0][0]["delta"] == {"role": "assistant", "content": "", "refusal": None}
    assert choices[1][0]["delta"] == {"content": "Oslo"}
    assert (choices[2][0]["delta"], choices[2][0]["finish_reason"]) == ({}, "stop")
    assert len({chunk["id"] for chunk in chunks}) == 1
    if includes_usage:
        assert choices[3] == []
        assert chunks[3]["usage"]["total_tokens"] == 121
        assert [chunk["usage"] for chunk in chunks[:3]] == [None] * 3
    else:
        assert len(chunks) == 3
        assert all("usage" not in chunk for chunk in chunks)


@pytest.mark.parametrize("is_streamed", [False, True])
async def test_an_error_before_the_first_token_has_its_status(is_streamed):
    async with serving() as front, _client(front) as client:
        front.completions.script = [ContextLengthError(3000, 2048)]
        with pytest.raises(openai.BadRequestError, match="953 too many") as caught:
            await client.chat.completions.create(model="default", messages=HI, stream=is_streamed)
        assert (caught.value.code, caught.value.param) == ("context_length_exceeded", "messages")
        assert caught.value.request_id

        front.completions.script = [EngineBusyError("too many wait")]
        with pytest.raises(openai.RateLimitError):
            await client.chat.completions.create(model="default", messages=HI, stream=is_streamed)


async def test_an_error_in_the_middle_ends_the_stream_as_the_client_expects():
    async with serving() as front, _client(front) as client:
        script = make_script("Os", "lo")
        front.completions.script = [*script[:2], EngineDiedError("the engine died")]
        stream = await client.chat.completions.create(model="default", messages=HI, stream=True)
        text: list[str] = []
        with pytest.raises(openai.APIError, match="the engine died"):
            await _read(stream, text)

    assert text == ["", "Os"]


async def _read(stream, text):
    async for chunk in stream:
        text.append(chunk.choices[0].delta.content)


@pytest.mark.parametrize("is_streamed", [False, True])
async def test_a_client_that_leaves_ends_its_generation(is_streamed):
    async with serving() as front:
        front.completions.script = make_script("Os", "lo")
        front.completions.gate = asyncio.Semaphore(0)  # no token ever comes
        body = {"messages": HI, "stream": is_streamed}
        async with asyncio.TaskGroup() as tasks:
            asking = tasks.create_task(_ask(front, body))
            await asyncio.wait_for(front.completions.began.wait(), 5)
            assert not front.completions.was_closed.is_set()
            asking.cancel()
        await asyncio.wait_for(front.completions.was_closed.wait(), 5)


async def _ask(front, body):
    async with front.client.post("/v1/chat/completions", json=body) as answer:
        await answer.read()


async def test_a_silent_prefill_is_kept_alive():
    async with serving(sse_keepalive_s=0.05) as front:
        front.completions.script = make_script("Oslo")[1:]
        front.completions.gate = asyncio.Semaphore(0)
        body = {"messages": HI, "stream": True}
        async with front.client.post("/v1/chat/completions", json=body) as answer:
            assert (await answer.content.readline()) == b": keep-alive\n"
            for _ in range(9):
                front.completions.gate.release()
            assert (await answer.text()).endswith("data: [DONE]\n\n")


async def test_an_unknown_model_is_not_silently_another_one():
    async with serving() as front, _client(front) as client:
        with pytest.raises(openai.NotFoundError) as caught:
            await client.chat.completions.create(model="gpt-9", messages=HI)
        assert (caught.value.code, caught.value.param) == ("model_not_found", "model")
        assert "there is no model 'gpt-9' here" in caught.value.message


async def test_what_is_not_supported_is_refused_by_name():
    async with serving() as front, _client(front) as client:
        with pytest.raises(openai.BadRequestError) as caught:
            await client.chat.completions.create(
                model="default", messages=HI, functions=[{"name": "f"}]
            )
        assert (caught.value.code, caught.value.param) == ("unsupported_input", "functions")


async def test_the_client_lists_models():
    async with serving() as front, _client(front) as client:
        names = [model.id async for model in client.models.list()]

    assert names == ["org/tiny", "default"]


async def test_a_draining_server_completes_no_chat():
    async with serving() as front, _client(front) as client:
        front.readiness.draining()
        with pytest.raises(openai.InternalServerError) as caught:
            await client.chat.completions.create(model="default", messages=HI)
        assert caught.value.status_code == 503
