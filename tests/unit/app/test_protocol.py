"""Bodies and frames are checked whole, and what is wrong is named."""

import pytest

from app.parsing import validate
from app.protocol import (
    CreateFrame,
    ResumeFrame,
    SessionBody,
    TurnBody,
    event_id_of,
    parse_frame,
)
from sessions.errors import InvalidInputError, UnsupportedInputError
from sessions.types import InputMessage, ReasoningPolicy, SamplingParams


def _request(**body):
    return validate(TurnBody, body).to_request(SamplingParams())


def test_a_string_is_one_user_message():
    assert _request(input="hi").input == (InputMessage(role="user", text="hi"),)


def test_the_text_parts_of_a_message_are_joined():
    content = [{"type": "input_text", "text": "a"}, {"type": "output_text", "text": "b"}]
    request = _request(input=[{"role": "assistant", "content": content}])

    assert request.input == (InputMessage(role="assistant", text="ab"),)


def test_an_item_as_we_sent_it_may_come_back():
    item = {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "status": "completed",
        "content": [{"type": "output_text", "text": "x", "annotations": [], "logprobs": []}],
    }
    assert _request(input=[item]).input[0].text == "x"


def test_a_null_parent_is_told_from_an_absent_one():
    assert _request(input="x", parent=None).parent_given
    assert not _request(input="x").parent_given


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({}, "input"),
        ({"input": []}, "input"),
        ({"input": 5}, "input"),
        ({"input": "x", "temprature": 1}, "temprature"),
        ({"input": [{"role": "wizard", "content": "x"}]}, "input[0].role"),
        ({"input": [{"role": "user"}]}, "input[0].content"),
        ({"input": [{"role": "user", "content": [{"type": "text"}]}]}, "input[0].content"),
        ({"input": [{"role": "user", "content": ["x"]}]}, "input[0].content"),
        ({"input": "a\0b"}, "input[0].content"),
        ({"input": "x", "stop": ["a", ""]}, "stop[1]"),
        ({"input": "x", "metadata": {"k": 1}}, "metadata.k"),
        ({"input": "x", "stream": "yes"}, "stream"),
    ],
)
def test_what_is_wrong_with_a_turn_is_named(body, param):
    with pytest.raises(InvalidInputError) as caught:
        validate(TurnBody, body)
    assert caught.value.param == param


@pytest.mark.parametrize(
    "item",
    [
        {"type": "function_call_output", "call_id": "c", "output": "x"},
        {"type": "item_reference", "id": "msg_1"},
        {"role": "user", "content": [{"type": "input_image", "image_url": "x"}]},
        {"role": "user", "content": [{"type": "input_file", "file_id": "x"}]},
    ],
)
def test_what_this_server_does_not_take_is_refused_by_name(item):
    with pytest.raises(UnsupportedInputError, match=r"function_call|item_ref|input_image|input_f"):
        validate(TurnBody, {"input": [item]})


@pytest.mark.parametrize(
    ("frame", "said"),
    [
        ({"tempeature": 1}, r"tempeature: unknown field; did you mean temperature\?"),
        ({"input": [{"role": "user", "contnt": "x"}]}, r"contnt: unknown field; did you mean c"),
    ],
)
def test_a_misspelt_field_of_a_frame_is_told_the_nearest(frame, said):
    create = {"type": "response.create", "conversation": "conv_1", "input": "x"}

    with pytest.raises(InvalidInputError, match=said):
        parse_frame({**create, **frame})


def test_a_misspelt_field_within_a_session_is_told_the_nearest():
    with pytest.raises(InvalidInputError, match=r"sampling.temprature: .*mean temperature\?"):
        validate(SessionBody, {"sampling": {"temprature": 1}})


def test_a_session_takes_no_unknown_field():
    with pytest.raises(InvalidInputError, match="titel: unknown field"):
        validate(SessionBody, {"titel": "x"})


def test_a_frame_is_told_by_its_type():
    frame = parse_frame({"type": "response.create", "conversation": "conv_1", "input": "x"})

    assert isinstance(frame, CreateFrame)


def test_a_resume_without_a_cursor_reads_all():
    frame = parse_frame({"type": "response.resume", "response_id": "resp_1"})

    assert isinstance(frame, ResumeFrame)
    assert frame.starting_after == -1


@pytest.mark.parametrize(
    ("frame", "param"),
    [
        ([], None),
        ("x", None),
        ({}, "type"),
        ({"type": "response.steer"}, "type"),
        ({"type": ["ping"]}, "type"),
        ({"type": "ping", "extra": 1}, "extra"),
        ({"type": "response.create", "input": "x"}, "conversation"),
        ({"type": "response.resume", "response_id": "r", "starting_after": -2}, "starting_after"),
        ({"type": "response.cancel", "response_id": 5}, "response_id"),
    ],
)
def test_what_is_wrong_with_a_frame_is_named(frame, param):
    with pytest.raises(InvalidInputError) as caught:
        parse_frame(frame)
    assert caught.value.param == param


@pytest.mark.parametrize(
    ("value", "event_id"),
    [
        ({"event_id": "e1"}, "e1"),
        ({"event_id": 5}, None),
        ({"event_id": "x" * 999}, None),
        (5, None),
    ],
)
def test_the_senders_id_is_found_in_a_frame_that_is_otherwise_wrong(value, event_id):
    assert event_id_of(value) == event_id


@pytest.mark.parametrize("policy", ReasoningPolicy)
def test_a_session_says_what_becomes_of_reasoning(policy):
    assert validate(SessionBody, {"reasoning": policy.value}).reasoning is policy
    assert validate(SessionBody, {}).reasoning is ReasoningPolicy.TEMPLATE


@pytest.mark.parametrize("value", ["forget", "", None, 1, ["keep"]])
def test_another_policy_is_refused_by_name(value):
    with pytest.raises(InvalidInputError) as caught:
        validate(SessionBody, {"reasoning": value})
    assert caught.value.param == "reasoning"
