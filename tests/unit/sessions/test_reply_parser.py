"""Replies taken apart, however they are cut into pieces, and whatever the model writes."""

import pytest

from sessions.call_formats import (
    GEMMA,
    HERMES,
    LLAMA,
    MISTRAL,
    MISTRAL_NAMED,
    QWEN_XML,
    find_format,
    own_format,
)
from sessions.call_scanner import CallBegun, CallDelta, CallDone
from sessions.reasoning import THINK
from sessions.reply_parser import (
    ParsedReply,
    ReasoningDelta,
    ReplyParser,
    ReplyShape,
    TextDelta,
)
from sessions.tools import Tool

TOOLS = (
    Tool(
        name="weather",
        parameters='{"type": "object", "properties": {"city": {"type": "string"}, '
        '"days": {"type": "integer"}}}',
    ),
    Tool(name="time"),
)
OSLO = '{"city": "Oslo", "days": 3}'
CALL = f'<tool_call>\n{{"name": "weather", "arguments": {OSLO}}}\n</tool_call>'
TIME = '<tool_call>\n{"name": "time", "arguments": {}}\n</tool_call>'
WRITTEN = {
    "hermes": (HERMES, f"Let me see.\n{CALL}\n{TIME}\n"),
    "mistral": (
        MISTRAL,
        "Let me see."
        f'[TOOL_CALLS] [{{"name": "weather", "arguments": {OSLO}}}, '
        '{"name": "time", "arguments": {}}]',
    ),
    "mistral_named": (
        MISTRAL_NAMED,
        f"Let me see.[TOOL_CALLS]weather[ARGS]{OSLO}[TOOL_CALLS]time{{}}",
    ),
    "qwen_xml": (
        QWEN_XML,
        "Let me see.\n<tool_call>\n<function=weather>\n<parameter=city>\nOslo\n</parameter>\n"
        "<parameter=days>\n3\n</parameter>\n</function>\n</tool_call>\n"
        "<tool_call>\n<function=time>\n</function>\n</tool_call>",
    ),
    "gemma": (
        GEMMA,
        'Let me see.<|tool_call>call:weather{city:<|"|>Oslo<|"|>,days:3}<tool_call|>'
        "<|tool_call>call:time{}<tool_call|>",
    ),
}
SIZES = (1, 3, 7, 1000)


def shape(form=HERMES, opening="") -> ReplyShape:
    return ReplyShape(form=form, tags=THINK, opening=opening)


def read(text, form=HERMES, *, tools=TOOLS, size=1, opening=""):
    parser = ReplyParser(shape(form, opening), tools)
    events = []
    for start in range(0, len(text), size):
        events += parser.feed(text[start : start + size])
    events += parser.finish()
    return parser.reply, events


def calls_of(reply: ParsedReply):
    return [(c.number, c.name, c.arguments, c.is_complete) for c in reply.calls]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", WRITTEN)
def test_two_calls_behind_a_text_are_found_in_every_format(name, size):
    form, text = WRITTEN[name]

    reply, events = read(text, form, size=size)

    assert reply.text == "Let me see."
    assert calls_of(reply) == [(0, "weather", OSLO, True), (1, "time", "{}", True)]
    for number in (0, 1):
        own = [e for e in events if getattr(e, "number", None) == number]
        assert isinstance(own[0], CallBegun)
        assert isinstance(own[-1], CallDone)
        told = "".join(e.text for e in own if isinstance(e, CallDelta))
        assert told == own[-1].arguments


def test_arguments_stream_as_they_are_written():
    _, events = read(CALL, size=4)

    deltas = [e.text for e in events if isinstance(e, CallDelta)]
    assert len(deltas) > 4
    assert "".join(deltas) == OSLO


@pytest.mark.parametrize("size", SIZES)
def test_calls_that_nothing_marks_are_told_by_their_names(size):
    reply, _ = read(f'{{"name": "weather", "parameters": {OSLO}}}', LLAMA, size=size)
    assert calls_of(reply) == [(0, "weather", OSLO, True)]

    text = '{"name": "Ann", "parameters": {"age": 3}}'
    reply, _ = read(text, LLAMA, size=size)
    assert (reply.text, reply.calls) == (text, ())

    reply, _ = read('Its JSON is {"name": "time", "parameters": {}}.', LLAMA, size=size)
    assert reply.text == 'Its JSON is {"name": "time", "parameters": {}}.'


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", WRITTEN)
def test_no_cut_anywhere_loses_or_invents_a_thing(name, size):
    form, text = WRITTEN[name]
    for end in range(len(text)):
        reply, _ = read(text[:end], form, size=size)

        assert "Let me see.".startswith(reply.text[:11])
        whole = [call for call in reply.calls if call.is_complete]
        assert [c.name for c in whole] == ["weather", "time"][: len(whole)]
        assert len(reply.calls) <= len(whole) + 1


def test_a_call_that_is_cut_in_its_arguments_is_incomplete():
    reply, _ = read(CALL[: CALL.index("Oslo") + 2])

    assert calls_of(reply) == [(0, "weather", '{"city": "Os', False)]


@pytest.mark.parametrize(
    "text",
    [
        "<tool_call>\nnonsense\n</tool_call>",
        '<tool_call>\n{"arguments": {}}\n</tool_call>',
        '<tool_call>\n{"name": 3}\n</tool_call>',
        "<tool_call></tool_call>",
        '<tool_call>\n{"name": "f',
        "<tool_call>" + "[" * 3000,
    ],
)
@pytest.mark.parametrize("size", SIZES)
def test_what_is_no_call_is_text(text, size):
    reply, _ = read(text, size=size)

    assert reply.calls == ()
    if text != "<tool_call></tool_call>":
        assert reply.text == text


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize(
    ("form", "text"),
    [
        (MISTRAL_NAMED, "[TOOL_CALLS]weather[ARGS]{broken"),
        (GEMMA, "<|tool_call>call:weather{a:1,b<tool_call|>"),
        (QWEN_XML, "<tool_call><function=weather"),
    ],
)
def test_a_format_that_cannot_be_read_never_raises(form, text, size):
    reply, _ = read(f"Hm. {text}", form, size=size)

    assert reply.text.startswith("Hm.")
    assert not any(call.is_complete for call in reply.calls)


def test_arguments_in_front_of_the_name_or_as_a_string_are_read_at_the_end():
    reply, _ = read('<tool_call>{"arguments": {"a": 1}, "name": "time"}</tool_call>')
    assert calls_of(reply) == [(0, "time", '{"a": 1}', True)]

    reply, _ = read('<tool_call>{"name": "time", "arguments": "{\\"a\\": 1}"}</tool_call>')
    assert calls_of(reply) == [(0, "time", '{"a": 1}', True)]


@pytest.mark.parametrize("size", SIZES)
def test_escapes_that_stand_for_no_text_are_never_told(size):
    for name in (r"\ud83d", r"a\u0000b"):
        text = f'<tool_call>{{"name": "{name}", "arguments": {{}}}}</tool_call>'
        reply, _ = read(text, size=size)
        assert (reply.text, reply.calls) == (text, ())
    for said in (r'{"a": "\ud83d"}', r'"{\"a\": \"\ud83d\"}"'):
        text = f'<tool_call>{{"arguments": {said}, "name": "time"}}</tool_call>'
        reply, _ = read(text, size=size)
        assert calls_of(reply) == [(0, "time", r'{"a": "\ud83d"}', True)]


def test_brackets_and_quotes_inside_of_strings_end_nothing():
    arguments = '{"a": "}]\\"{", "b": ["}"]}'
    reply, _ = read(f'<tool_call>{{"name": "time", "arguments": {arguments}}}</tool_call>')

    assert calls_of(reply) == [(0, "time", arguments, True)]


def test_without_tools_nothing_is_a_call():
    reply, _ = read(CALL, tools=())

    assert (reply.text, reply.calls) == (CALL, ())


def test_text_behind_a_call_is_kept_and_blanks_are_not():
    assert read(f"{CALL}\n\n")[0].text == ""
    assert read(f"{CALL}\nDone.")[0].text == "\nDone."


# Reasoning


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("tools", [(), TOOLS], ids=["bare", "tools"])
@pytest.mark.parametrize(
    ("text", "opening", "reasoning", "answer"),
    [
        ("<think>\nhm\nso\n</think>\n\nYes.", "", "hm\nso", "Yes."),
        ("hm\n</think>\n\nYes.", "<think>\n", "hm", "Yes."),
        ("<think></think>Yes.", "", "", "Yes."),
        ("\n<think>\nhm", "", "hm", ""),
        ("Use <think> and </think>.", "", "", "Use <think> and </think>."),
        ("<thin", "", "", "<thin"),
        ("\n\nYes.", "", "", "\n\nYes."),
        ("<think>a</think>b</think>", "", "a", "b</think>"),
    ],
)
def test_reasoning_is_what_a_reply_begins_with(text, opening, reasoning, answer, tools, size):
    reply, events = read(text, tools=tools, size=size, opening=opening)

    assert (reply.reasoning, reply.text) == (reasoning, answer)
    assert "".join(e.text for e in events if isinstance(e, ReasoningDelta)) == reasoning
    assert "".join(e.text for e in events if isinstance(e, TextDelta)) == answer


def test_a_reply_knows_whether_it_reasons():
    parser = ReplyParser(shape(), TOOLS)
    parser.feed("<think>hm")
    assert parser.is_reasoning

    parser.feed("</think>Yes")
    assert not parser.is_reasoning


def test_calls_in_reasoning_are_thoughts():
    reply, _ = read(f"<think>{CALL}</think>{TIME}")

    assert reply.reasoning == CALL
    assert [c.name for c in reply.calls] == ["time"]


# A tokenizer's own template


OWN = {
    "defaults": {},
    "start_anchor": "<|start|>assistant",
    "fields": {
        "thinking": {"open": "<|analysis|>", "close": "<|end|>", "content": "text"},
        "tool_calls": {
            "open_pattern": r"<\|to\|>(?P<name>\w+)\s",
            "close": "<|call|>",
            "repeats": True,
            "content": "json",
            "transform": {
                "type": "function",
                "function": {"name": "{name}", "arguments": "{content}"},
            },
        },
        "content": {"open": "<|final|>", "close": "<|end|>", "content": "text"},
    },
}


@pytest.mark.parametrize("size", SIZES)
def test_a_tokenizers_own_template_is_followed(size):
    form = own_format(OWN, find_format(""))
    text = f"<|analysis|>hm<|end|><|final|>Yes.<|end|><|to|>weather {OSLO}<|call|>"

    reply, _ = read(text, form, size=size)

    assert (reply.reasoning, reply.text) == ("hm", "Yes.")
    assert calls_of(reply) == [(0, "weather", OSLO, True)]


@pytest.mark.parametrize(
    ("template", "form"),
    [
        ("{{ '<tool_call>' }}", HERMES),
        ("<tool_call>\n<function=x>", QWEN_XML),
        ("[TOOL_CALLS]", MISTRAL),
        ("[TOOL_CALLS]x[ARGS]", MISTRAL_NAMED),
        ('<|start_header_id|> "parameters"', LLAMA),
        ("<|tool_call>call:", GEMMA),
        ("nothing", HERMES),
    ],
)
def test_a_template_tells_its_format(template, form):
    assert find_format(template) is form
