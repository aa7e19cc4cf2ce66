"""OpenAI's older completions, asked by OpenAI's own unmodified client."""

import openai
import pytest

from model.errors import ContextLengthError
from model.messages import FinishReason
from tests.integration.test_chat_tools import FINISHED, LIKELY
from tests.support.fake_completions import make_script
from tests.support.front_end import serving


def _client(front):
    return openai.AsyncOpenAI(base_url=front.base_url, api_key="any", max_retries=0)


async def test_a_text_is_gone_on_with():
    async with serving() as front, _client(front) as client:
        front.completions.script = make_script("<think>", "Oslo", reason=FinishReason.LENGTH)
        answer = await client.completions.create(model="default", prompt="The capital is")

        assert answer.object == "text_completion"
        assert answer.id.startswith("cmpl-")
        assert answer.choices[0].text == "<think>Oslo"  # no reply, so nothing is reasoning
        assert answer.choices[0].finish_reason == "length"
        assert answer.usage.total_tokens == 122
        _, prompt, params, _ = front.completions.calls[0]
        assert (prompt, params.max_output_tokens) == ("The capital is", 16)


async def test_it_streams():
    async with serving() as front, _client(front) as client:
        front.completions.script = make_script("Os", "lo")
        stream = await client.completions.create(
            model="default", prompt=[1, 2], stream=True, stream_options={"include_usage": True}
        )
        chunks = [chunk async for chunk in stream]

    assert [c.choices[0].text for c in chunks[:-1]] == ["Os", "lo", ""]
    assert chunks[-2].choices[0].finish_reason == "stop"
    assert chunks[-1].usage.completion_tokens == 2
    assert front.completions.calls[0][1] == [1, 2]


@pytest.mark.parametrize(
    ("prompt", "n", "asked"),
    [
        (["a", "b"], 1, ["a", "b"]),
        (["a", "b"], 2, ["a", "a", "b", "b"]),
        ([[1], [2, 3]], 1, [[1], [2, 3]]),
    ],
)
async def test_several_prompts_have_choices_in_their_order(prompt, n, asked):
    async with serving() as front, _client(front) as client:
        front.completions.script = make_script("x")
        answer = await client.completions.create(model="default", prompt=prompt, n=n)

        assert [choice.index for choice in answer.choices] == list(range(len(asked)))
        assert [call[1] for call in front.completions.calls] == asked
        assert answer.usage.prompt_tokens == 120 * len(prompt)
        assert answer.usage.completion_tokens == len(asked)


async def test_a_prompt_is_said_again_on_request():
    async with serving() as front, _client(front) as client:
        front.completions.script = make_script("x")
        answer = await client.completions.create(model="default", prompt="ab", echo=True)
        assert answer.choices[0].text == "abx"

        answer = await client.completions.create(model="default", prompt=[1, 2], echo=True)
        assert answer.choices[0].text == "<1><2>x"


async def test_log_probabilities_come_with_their_tokens():
    async with serving() as front, _client(front) as client:
        front.completions.script = [make_script()[0], *LIKELY, FINISHED]
        answer = await client.completions.create(model="default", prompt="ab", logprobs=2)

    logprobs = answer.choices[0].logprobs
    assert logprobs.tokens == ["<5>", "<6>"]
    assert logprobs.token_logprobs == [-0.5, -0.5]
    assert logprobs.top_logprobs[0] == {"<5>": -0.5, "<9>": -9999.0}
    assert logprobs.text_offset == [0, 3]


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"suffix": "x"}, "suffix"),
        ({"guided_regex": "a"}, "guided_regex"),
        ({"min_tokens": 3}, "min_tokens"),
        ({"n_predict": 3}, "n_predict"),
        ({"response_format": {"type": "json_object"}}, "response_format"),
        ({"best_of": 3}, "best_of"),
        ({"echo": True, "logprobs": 1}, "echo"),
        ({"prompt": ""}, "prompt"),
        ({"prompt": []}, "prompt"),
        ({"prompt": ["a"] * 9, "n": 2}, "prompt"),
    ],
)
async def test_what_is_not_supported_is_refused_by_name(fields, param):
    async with serving() as front, _client(front) as client:
        with pytest.raises(openai.BadRequestError) as caught:
            await client.completions.create(model="default", prompt="a", extra_body=fields)
        assert caught.value.param == param


@pytest.mark.parametrize("num_prompts", [1, 2])
async def test_an_error_about_the_input_is_one_about_the_prompt_here(num_prompts):
    async with serving() as front, _client(front) as client:
        front.completions.script = [ContextLengthError(900, 512)]
        with pytest.raises(openai.BadRequestError) as caught:
            await client.completions.create(model="default", prompt=["a"] * num_prompts)

    assert (caught.value.code, caught.value.param) == ("context_length_exceeded", "prompt")
