"""A chat body is taken leniently, but nothing that matters is dropped in silence."""

import pytest

from app.openai.chat_request import parse_chat
from model.grammar import Grammar, GrammarKind
from sessions.errors import InvalidInputError, UnsupportedInputError
from sessions.messages import ToolCall
from sessions.tools import Tool, ToolChoice, ToolMode
from sessions.truncation import Truncation
from sessions.types import InputMessage, SamplingParams

HI = [{"role": "user", "content": "hi"}]


WEATHER = {"type": "function", "function": {"name": "weather", "description": "tells"}}
TIME = {"type": "function", "function": {"name": "time", "strict": True}}


def _parse(**fields):
    return parse_chat({"model": "m", "messages": HI, **fields})


def _asked(headers=None, **fields):
    return _parse(**fields).to_request(SamplingParams(), headers or {}, "chatcmpl-1")


def test_unknown_fields_are_ignored():
    asked = _asked(verbosity="low", moderation={"x": 1}, user="u", store=True)

    assert asked.messages == (InputMessage(role="user", text="hi"),)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("functions", [{"name": "f"}]),
        ("function_call", {"name": "f"}),
        ("modalities", ["text", "audio"]),
        ("audio", {"voice": "x"}),
        ("web_search_options", {}),
        ("guided_json", {"type": "object"}),
        ("structured_outputs", {"regex": "a"}),
        ("grammar", 'root ::= "a"'),
        ("text", {"format": {"type": "json_object"}}),
        ("regex", "a+"),
        ("ebnf", 'root ::= "a"'),
        ("format", "json"),
        ("n_predict", 8),
        ("repeat_penalty", 1.1),
        ("mirostat", 2),
        ("typical_p", 0.9),
        ("options", {"num_predict": 8}),
        ("continue_final_message", True),
        ("add_generation_prompt", False),
        ("chat_template", "{{ messages }}"),
        ("chat_template_kwargs", {"enable_thinking": False}),
        ("min_tokens", 3),
        ("bad_words", ["no"]),
        ("prompt_logprobs", 0),
        ("truncate_prompt_tokens", 100),
        ("use_beam_search", True),
        ("include_stop_str_in_output", True),
        ("return_token_ids", True),
        ("echo", True),
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
        ("guided_json", None),
        ("text", {"verbosity": "low"}),
        ("stop", None),
        ("stream", None),
        ("stream_options", None),
        ("stream_options", {"include_obfuscation": False}),
        ("max_tokens", None),
        ("regex", ""),
        ("n_predict", -1),
        ("mirostat", 0),
        ("typical_p", 1.0),
        ("add_generation_prompt", True),
        ("chat_template_kwargs", {}),
        ("continue_final_message", False),
        ("min_tokens", 0),
        ("bad_words", []),
        ("prompt_logprobs", None),
        ("skip_special_tokens", True),
        ("echo", False),
    ],
)
def test_a_way_to_say_no_is_taken(name, value):
    assert _asked(**{name: value}).messages


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"logit_bias": {"abc": 5}}, r"^logit_bias\.abc: keys are ids of tokens, as in"),
        ({"stop": [*"abcde"]}, r"^stop: list should have at most 4 items, not 5$"),
    ],
)
def test_what_is_wrong_with_a_field_is_said_in_plain_words(fields, said):
    with pytest.raises(InvalidInputError, match=said):
        _parse(**fields)


def test_a_limit_by_another_name_is_told_its_own():
    with pytest.raises(UnsupportedInputError, match="here it is max_completion_tokens"):
        _parse(n_predict=8)


@pytest.mark.parametrize(
    ("message", "param"),
    [
        ({"role": "function", "content": "x"}, "messages[0].role"),
        ({"role": "assistant", "function_call": {"name": "f"}}, "messages[0].function_call"),
        (
            {"role": "assistant", "tool_calls": [{"id": "c", "type": "custom"}]},
            "messages[0].tool_calls[0].type",
        ),
        ({"role": "assistant", "content": "x", "prefix": True}, "messages[0].prefix"),
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
        ({"messages": [{"role": "tool", "content": "x"}]}, "messages[0].tool_call_id"),
        (
            {"messages": [{"role": "assistant", "tool_calls": [{"id": "c", "function": {}}]}]},
            "messages[0].tool_calls[0].function.name",
        ),
        (
            {"messages": [{"role": "user", "content": "x", "tool_calls": [{}]}]},
            "messages[0].tool_calls",
        ),
        ({"messages": HI, "n": 17}, "n"),
        ({"messages": HI, "n": 0}, "n"),
        ({"messages": HI, "logprobs": True, "top_logprobs": 21}, "top_logprobs"),
        ({"messages": HI, "top_logprobs": 2}, "top_logprobs"),
        ({"messages": HI, "tools": "x"}, "tools"),
        ({"messages": HI, "response_format": "text"}, "response_format"),
        ({"messages": HI, "truncation": "some"}, "truncation"),
        ({"messages": HI, "metadata": {"k" * 65: "v"}}, f"metadata.{'k' * 64}"),
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

    asked = body.to_request(SamplingParams(), {}, "c")
    assert [m.text for m in asked.messages] == ["ab", ""]


def test_calls_results_and_reasoning_are_taken():
    call = {"id": "c1", "type": "function", "function": {"name": "time", "arguments": "{}"}}
    said = {"role": "assistant", "content": None, "tool_calls": [call], "reasoning_content": "hm"}
    result = {"role": "tool", "tool_call_id": "c1", "content": [{"type": "text", "text": "noon"}]}

    _, assistant, tool = _asked(messages=[*HI, said, result]).messages

    assert assistant.calls == (ToolCall(id="c1", name="time", arguments="{}"),)
    assert assistant.reasoning == "hm"
    assert (tool.role, tool.text, tool.call_id) == ("tool", "noon", "c1")


def test_tools_are_taken_with_their_schemas():
    parameters = {"type": "object", "properties": {"city": {"type": "string"}}}
    weather = {"type": "function", "function": {"name": "weather", "parameters": parameters}}

    asked = _asked(tools=[weather, TIME])

    assert [tool.name for tool in asked.tools] == ["weather", "time"]
    assert asked.tools[0].schema == parameters
    assert asked.tools[1] == Tool(
        name="time", strict=True, parameters='{"type":"object","properties":{}}'
    )


ONE = {"type": "function", "function": {"name": "time"}}
ALLOWED = {"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": [ONE]}}


@pytest.mark.parametrize(
    ("fields", "choice"),
    [
        ({}, ToolChoice()),
        ({"tool_choice": "auto", "parallel_tool_calls": False}, ToolChoice(is_parallel=False)),
        ({"tool_choice": "none"}, ToolChoice(mode=ToolMode.NONE)),
        ({"tool_choice": "required"}, ToolChoice(mode=ToolMode.REQUIRED)),
        (
            {"tool_choice": ONE},
            ToolChoice(mode=ToolMode.REQUIRED, names=frozenset({"time"}), is_parallel=False),
        ),
        (
            {"tool_choice": ALLOWED},
            ToolChoice(mode=ToolMode.REQUIRED, names=frozenset({"time"})),
        ),
    ],
)
def test_a_choice_of_tools_is_taken(fields, choice):
    assert _asked(tools=[WEATHER, TIME], **fields).choice == choice


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"tools": [{"type": "web_search"}]}, "tools[0].type"),
        ({"tools": [{"type": "function"}]}, "tools[0].function"),
        ({"tools": [WEATHER], "tool_choice": "sometimes"}, "tool_choice"),
        ({"tools": [WEATHER], "tool_choice": {"type": "function"}}, "tool_choice"),
        ({"tools": [WEATHER], "tool_choice": {"type": "mcp"}}, "tool_choice.type"),
        ({"response_format": {"type": "xml"}}, "response_format"),
        ({"response_format": {"type": "json_schema"}}, "response_format"),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"schema": []}}},
            "response_format.json_schema.schema",
        ),
        (
            {"response_format": {"type": "json_object", "schema": "x"}},
            "response_format.schema",
        ),
    ],
)
def test_tools_choices_and_forms_that_are_none_are_refused_by_name(fields, param):
    with pytest.raises(InvalidInputError) as caught:
        _asked(**fields)
    assert caught.value.param == param


@pytest.mark.parametrize(
    ("form", "kind", "text"),
    [
        ({"type": "json_object"}, GrammarKind.JSON_OBJECT, ""),
        (
            {"type": "json_schema", "json_schema": {"name": "W", "schema": {"type": "null"}}},
            GrammarKind.JSON_SCHEMA,
            '{"type":"null"}',
        ),
        (
            {"type": "json_object", "schema": {"type": "null"}},
            GrammarKind.JSON_SCHEMA,
            '{"type":"null"}',
        ),
        ({"type": "regex", "regex": "a+"}, GrammarKind.REGEX, "a+"),
        ({"type": "lark", "grammar": "start: /a/"}, GrammarKind.LARK, "start: /a/"),
    ],
)
def test_a_form_becomes_a_grammar(form, kind, text):
    grammar = _asked(response_format=form).params.grammar

    assert grammar == Grammar(kind=kind, text=text, param="response_format")


@pytest.mark.parametrize(
    ("fields", "headers", "hint"),
    [
        ({}, {}, None),
        ({}, {"x-openwebui-chat-id": "w", "session-id": "s"}, "w"),
        ({}, {"session-id": "s", "x-conversation-id": "c"}, "c"),
        ({}, {"x-session-id": " x "}, "x"),
        ({"prompt_cache_key": "k"}, {"x-session-id": "x"}, "k"),
    ],
)
def test_a_hint_says_which_conversation_it_is(fields, headers, hint):
    assert _asked(headers, **fields).hint == hint


def test_log_probabilities_and_truncation_are_passed_on():
    asked = _asked(logprobs=True, top_logprobs=3, truncation="auto")

    assert asked.params.num_logprobs == 3
    assert asked.truncation is Truncation.AUTO
    assert _asked(logprobs=True).params.num_logprobs == 0
    assert _asked(logprobs=False).params.num_logprobs is None
