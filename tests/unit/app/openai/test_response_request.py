"""What clients send to Responses is read, or refused by its name; nothing makes the reader fail."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.item_object import packed
from app.openai.input_items import Reference, read_items
from app.openai.response_request import MAX_SHOWN_BYTES, parse_input, parse_response
from app.openai.response_tools import read_choice, read_form, read_tools
from sessions.errors import InvalidInputError
from sessions.item_messages import messages_of

# What comes out of `read_json`: numbers beyond these are floats there, or no JSON.
NUMBERS = st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False, allow_infinity=False)
JSON = st.recursive(
    st.none() | st.booleans() | NUMBERS | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["type", "role", "content", "text", "id", "x"]), inner)
    ),
    max_leaves=8,
)
FIELDS = st.sampled_from(
    (
        *("input", "model", "tools", "tool_choice", "text", "reasoning", "conversation", "stop"),
        *("previous_response_id", "store", "background", "metadata", "truncation", "include"),
        *("context_management", "max_output_tokens", "generate", "instructions", "user"),
    )
)
KINDS = ("message", "function_call", "function_call_output", "reasoning", "compaction")


def read_all(parse, body):
    parsed = parse(body)
    tools = read_tools(parsed.tools)
    read_choice(parsed.tool_choice, tools, is_parallel=parsed.parallel_tool_calls)
    read_form(parsed.text)
    return read_items(parsed.input)


def ending_of(work, *args):
    """None, or the refusal; anything else is a failure of the reader."""
    try:
        work(*args)
    except InvalidInputError as exc:
        return str(exc)
    return None


@given(st.dictionaries(FIELDS, JSON, max_size=4))
def test_no_body_makes_the_reader_fail(body):
    for parse in (parse_response, parse_input):
        assert ending_of(read_all, parse, body) != ""


@given(
    st.lists(
        st.fixed_dictionaries(
            {"type": st.sampled_from(KINDS) | JSON},
            optional=dict.fromkeys(
                ("role", "content", "call_id", "name", "arguments", "output"), JSON
            ),
        ),
        min_size=1,
        max_size=4,
    )
)
def test_no_item_makes_the_reader_fail(items):
    def read():
        return messages_of(i for i in read_items(items) if not isinstance(i, Reference))

    assert ending_of(read) != ""


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"text": {"verbosity": "\0"}}, "text"),
        ({"tools": [{"type": "function", "name": "f", "description": "\0"}]}, "tools"),
        ({"reasoning": {"effort": "x" * MAX_SHOWN_BYTES}}, "reasoning"),
        ({"text": {"format": {"type": "grammar", "syntax": ["lark"]}}}, "text.format.syntax"),
        ({"top_logprobs": 21}, "top_logprobs"),
        ({"response_format": {"type": "json_object"}}, "response_format"),
        ({"guided_regex": "a"}, "guided_regex"),
        ({"regex": "a"}, "regex"),
        ({"n_predict": 5}, "n_predict"),
        ({"min_tokens": 5}, "min_tokens"),
        ({"chat_template_kwargs": {"enable_thinking": False}}, "chat_template_kwargs"),
        ({"max_tokens": 5}, "max_tokens"),
        ({"max_completion_tokens": 5}, "max_completion_tokens"),
        ({"messages": [{"role": "user", "content": "hi"}]}, "messages"),
    ],
)
def test_what_cannot_be_kept_or_made_is_refused_by_name(fields, param):
    with pytest.raises(InvalidInputError) as caught:
        read_form(parse_response({"input": "x", **fields}).text)

    assert caught.value.param == param


def test_a_schema_beside_json_object_is_the_form():
    form = read_form({"format": {"type": "json_object", "schema": {"type": "null"}}})

    assert form is not None
    assert form.text == '{"type":"null"}'


def test_a_tool_in_the_shape_of_chat_completions_is_told_where_its_name_stands():
    with pytest.raises(InvalidInputError, match="beside its type") as caught:
        read_tools([{"type": "function", "function": {"name": "f"}}])

    assert caught.value.param == "tools[0].name"


def test_items_of_one_reply_become_one_message():
    call = {"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{}"}
    items = read_items(
        [
            {"role": "user", "content": "x"},
            {"type": "reasoning", "content": [{"type": "reasoning_text", "text": "hm"}]},
            {"type": "message", "role": "assistant", "content": "Let me see."},
            call,
            {**call, "call_id": "c2"},
            {"type": "function_call_output", "call_id": "c1", "output": "1"},
            {"type": "function_call_output", "call_id": "c2", "output": "2"},
            {"type": "reasoning", "encrypted_content": "gAAA", "summary": []},
            {"role": "assistant", "content": [{"type": "output_text", "text": "Done."}]},
        ]
    )

    messages = messages_of(items)

    assert [m.role for m in messages] == ["user", "assistant", "tool", "tool", "assistant"]
    assert (messages[1].reasoning, messages[1].text) == ("hm", "Let me see.")
    assert [c.id for c in messages[1].calls] == ["c1", "c2"]
    assert (messages[4].reasoning, messages[4].text) == (None, "Done.")


def test_a_compaction_is_read_as_the_summary_it_is():
    item = {"type": "compaction", "encrypted_content": packed("We met in Ål.")}

    (message,) = messages_of(read_items([item]))

    assert message.text.endswith("\n\nWe met in Ål.")
