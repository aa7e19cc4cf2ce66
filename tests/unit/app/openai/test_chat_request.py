"""A chat body is taken leniently, but nothing that matters is dropped in silence."""

import pytest

from app.openai.chat_request import parse_chat
from sessions.errors import InvalidInputError, UnsupportedInputError
from sessions.types import InputMessage, SamplingParams

HI = [{"role": "user", "content": "hi"}]


def _parse(**fields):
    return parse_chat({"model": "m", "messages": HI, **fields})


def test_unknown_fields_are_ignored():
    assert _parse(verbosity="low", moderation={"x": 1}, user="u", store=True).to_messages() == (
        InputMessage(role="user", text="hi"),
    )


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("tools", [{"type": "function"}]),
        ("functions", [{"name": "f"}]),
        ("tool_choice", "required"),
        ("tool_choice", {"type": "function"}),
        ("response_format", {"type": "json_object"}),
        ("response_format", "text"),
        ("n", 2),
        ("n", [1]),
        ("logprobs", True),
        ("top_logprobs", 3),
        ("modalities", ["text", "audio"]),
        ("audio", {"voice": "x"}),
        ("web_search_options", {}),
    ],
)
def test_a_field_whose_loss_would_change_the_answer_is_refused_by_name(name, value):
    with pytest.raises(UnsupportedInputError) as caught:
        _parse(**{name: value})
    assert caught.value.param == name


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("tools", []),
        ("tool_choice", "auto"),
        ("response_format", {"type": "text"}),
        ("n", 1),
        ("logprobs", False),
        ("top_logprobs", 0),
        ("modalities", ["text"]),
        ("stop", None),
        ("stream", None),
        ("stream_options", None),
        ("stream_options", {"include_obfuscation": False}),
        ("max_tokens", None),
    ],
)
def test_a_way_to_say_no_is_taken(name, value):
    assert _parse(**{name: value}).to_messages()


@pytest.mark.parametrize(
    ("message", "param"),
    [
        ({"role": "tool", "content": "x"}, "messages[0].role"),
        ({"role": "assistant", "content": None, "tool_calls": [{}]}, "messages[0].tool_calls"),
        ({"role": "user", "content": [{"type": "image_url"}]}, "messages[0].content[0]"),
        (
            {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "input_audio"}]},
            "messages[0].content[1]",
        ),
    ],
)
def test_a_message_that_is_no_text_is_refused_by_place(message, param):
    with pytest.raises(UnsupportedInputError) as caught:
        parse_chat({"messages": [message]})
    assert caught.value.param == param


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({}, "messages"),
        ({"messages": []}, "messages"),
        ({"messages": "hi"}, "messages"),
        ({"messages": ["hi"]}, "messages[0]"),
        ({"messages": [{"role": "user"}]}, "messages[0].content"),
        ({"messages": [{"role": ["user"], "content": "x"}]}, "messages[0].role"),
        ({"messages": HI, "temperature": 3}, "temperature"),
        ({"messages": HI, "stop": list("abcde")}, "stop"),
        ({"messages": HI, "max_tokens": 0}, "max_tokens"),
        (
            {"messages": HI, "stream_options": {"include_usage": "yes"}},
            "stream_options.include_usage",
        ),
    ],
)
def test_what_is_wrong_is_named(body, param):
    with pytest.raises(InvalidInputError) as caught:
        parse_chat(body)
    assert caught.value.param == param


def test_the_newer_name_of_the_limit_wins():
    params = _parse(max_tokens=5, max_completion_tokens=9).to_params(SamplingParams())

    assert params.max_output_tokens == 9


def test_parts_are_joined_and_an_assistant_may_have_said_nothing():
    content = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    body = parse_chat(
        {"messages": [{"role": "developer", "content": content}, {"role": "assistant"}]}
    )

    assert [m.text for m in body.to_messages()] == ["ab", ""]
