"""What is streamed and answered is what OpenAI's types and Open Responses say, in every case.

The engine is told what to say, so that each case is one: text, calls, reasoning, forms, cuts,
failures. The real model's are judged in `test_openai_client.py`.
"""

import copy

import pytest

from model.errors import EngineDiedError
from model.messages import FinishReason
from tests.support.fake_engine import FakeReply
from tests.support.front_end import receive
from tests.support.open_responses import judge_response, judge_sse, judge_stream

ENDS = ("response.completed", "response.incomplete", "response.failed")
LOOK = {"type": "function", "name": "look", "parameters": {"type": "object"}}
BARE = {"type": "function", "name": "wait"}
CALL = '<tool_call>\n{"name": "look", "arguments": {"at": %d}}\n</tool_call>'
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}}
HELLO = FakeReply()
CALLING = FakeReply(pieces=("I ", "look.\n", (CALL % 1)[:45], (CALL % 1)[45:], CALL % 2))

CASES = {
    "text": ({"input": "x"}, HELLO),
    "nothing": ({"input": "x"}, FakeReply(pieces=())),
    "messages": (
        {
            "input": [
                {"type": "message", "role": "system", "content": "You are a pirate."},
                {"type": "message", "role": "user", "content": "My name is Ann."},
                {"type": "message", "role": "assistant", "content": "Hello, Ann!"},
                {"type": "message", "role": "user", "content": "Who am I?"},
            ]
        },
        HELLO,
    ),
    "calls": ({"input": "x", "tools": [LOOK, BARE]}, CALLING),
    "a demanded call": (
        {"input": "x", "tools": [LOOK], "tool_choice": "required"},
        FakeReply(pieces=(CALL % 1,)),
    ),
    "a named call": (
        {"input": "x", "tools": [LOOK], "tool_choice": {"type": "function", "name": "look"}},
        FakeReply(pieces=(CALL % 1,)),
    ),
    "allowed tools": (
        {
            "input": "x",
            "tools": [LOOK, BARE],
            "tool_choice": {
                "type": "allowed_tools",
                "tools": [{"type": "function", "name": "look"}],
            },
        },
        CALLING,
    ),
    "reasoning": (
        {"input": "x", "tools": [LOOK], "reasoning": {"effort": "low"}},
        FakeReply(pieces=("<think>", "hm, ", "so", "</think>\n\n", "Oslo.\n", CALL % 1)),
    ),
    "a form": (
        {"input": "x", "text": {"format": {"type": "json_schema", "name": "a", "schema": SCHEMA}}},
        FakeReply(pieces=('{"a"', ": 1}")),
    ),
    "an object": (
        {"input": "x", "text": {"format": {"type": "json_object"}, "verbosity": "low"}},
        FakeReply(pieces=("{", "}")),
    ),
    "a grammar": (
        {
            "input": "x",
            "text": {"format": {"type": "grammar", "syntax": "regex", "definition": "a+"}},
        },
        FakeReply(pieces=("aa",)),
    ),
    "no form": ({"input": "x", "text": {"format": None}}, HELLO),
    "a cut": ({"input": "x", "max_output_tokens": 16}, FakeReply(reason=FinishReason.LENGTH)),
    "a cut call": (
        {"input": "x", "tools": [LOOK]},
        FakeReply(pieces=((CALL % 1)[:45],), reason=FinishReason.LENGTH),
    ),
    "a failure": (
        {"input": "x"},
        FakeReply(pieces=("He",), error=EngineDiedError("on purpose")),
    ),
    "not stored": ({"input": "x", "store": False, "user": "u", "metadata": {"a": "b"}}, HELLO),
    "in the background": ({"input": "x", "background": True}, HELLO),
}


async def stream(front, body):
    """The events over server-sent events."""
    async with front.client.post("/v1/responses", json={**body, "stream": True}) as answer:
        return judge_sse(await answer.read())


async def framed(front, body):
    """The frames over a websocket."""
    async with front.client.ws_connect("/v1/responses") as ws:
        await ws.send_json({"type": "response.create", "stream_id": "a", **body})
        frames = [await receive(ws)]
        while frames[-1]["type"] not in ENDS:
            frames.append(await receive(ws))
    return frames


@pytest.mark.parametrize(("body", "reply"), CASES.values(), ids=CASES)
async def test_a_response_is_as_they_say_however_it_is_told(front, body, reply):
    front.engine.default = reply
    events = await stream(front, body)

    response = judge_stream(events)
    if response["store"]:
        path = f"/v1/responses/{response['id']}"
        assert (await front.call("GET", path))[1] == response
        async with front.client.get(f"{path}?stream=true") as answer:
            again = judge_sse(await answer.read())
        judge_stream(again)
        # One that waits in the background has another beginning than one that has begun.
        assert again[2:] == events[2:]
    status, whole = await front.call("POST", "/v1/responses", json=body)
    judge_response(whole)
    assert status == 200
    frames = await framed(front, body)
    assert {frame.pop("stream_id") for frame in frames} == {"a"}
    judge_stream(frames)
    assert [frame["type"] for frame in frames] == [event["type"] for event in events]


async def test_a_summary_on_the_way_is_as_they_say(front):
    first = judge_stream(await stream(front, {"input": "one " * 50}))
    front.engine.replies.append(FakeReply(pieces=("In short.",)))
    limit = [{"type": "compaction", "compact_threshold": 150}]
    body = {"input": "two", "previous_response_id": first["id"], "context_management": limit}
    second = judge_stream(await stream(front, body))

    assert [item["type"] for item in second["output"]] == ["compaction", "message"]


async def test_what_was_not_said_is_shown(front):
    body, _ = CASES["allowed tools"]
    _, response = await front.call("POST", "/v1/responses", json=body)

    assert response["tools"] == [
        {**LOOK, "description": None, "strict": False},
        {**BARE, "description": None, "parameters": None, "strict": False},
    ]
    assert response["tool_choice"]["mode"] == "auto"
    body, _ = CASES["a form"]
    _, response = await front.call("POST", "/v1/responses", json=body)
    form = body["text"]["format"]
    assert response["text"]["format"] == {**form, "description": None, "strict": False}


def _of(kind):
    return lambda events: next(event for event in events if event["type"] == kind)


def _left_out(kind):
    return lambda events: events.remove(_of(kind)(events))


def _changed(kind, **fields):
    return lambda events: _of(kind)(events).update(fields)


def _told_without(field):
    return lambda events: events[-1]["response"].pop(field)


BREAKS = {
    "a gap": _left_out("response.output_text.delta"),
    "a number twice": _changed("response.in_progress", sequence_number=0),
    "another text": _changed("response.output_text.done", text="no"),
    "an empty delta": _changed("response.output_text.delta", delta=""),
    "another item": _changed("response.output_text.delta", item_id="msg_0"),
    "another place": _changed("response.output_item.added", output_index=1),
    "a name that is nobody's": _changed("splice:metrics", type="metrics"),
    "no text at all": lambda events: _of("response.output_text.done")(events).pop("text"),
    "an end too many": lambda events: events.append({**events[-1], "sequence_number": len(events)}),
    "no end": lambda events: events.pop(),
    "no store": _told_without("store"),
    "no usage": _told_without("usage"),
    "no tools": _told_without("tools"),
    "another output": lambda events: events[-1]["response"]["output"].clear(),
    "another response": lambda events: events[-1]["response"].update(id="resp_0"),
}


async def test_the_judge_sees_what_is_wrong(front):
    good = await stream(front, {"input": "x"})
    judge_stream(good)
    for name, break_it in BREAKS.items():
        events = copy.deepcopy(good)
        break_it(events)
        try:
            judge_stream(events)
        except (AssertionError, KeyError, ValueError):
            continue
        pytest.fail(f"{name} was not seen")
