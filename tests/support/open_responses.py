"""A judge of streams of responses: OpenAI's own event types, and what Open Responses adds to them.

Every event is held against the type of the `openai` package that carries its name, strictly and
not as its lenient client reads it. What Open Responses demands beyond that is written down here: a
response shows everything that it was made with, a stream is one sequence without a gap, items are
told one after the other and whole, and what is no event of theirs carries a prefix.

Two vocabularies are the server's own in Open Responses, and closed in OpenAI's types: an error's
`code` and the reason of an incomplete response. Reasoning is streamed under OpenAI's names
(`response.reasoning_text.…`), which Open Responses calls `response.reasoning.…`.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

import orjson
from openai import BaseModel
from openai.types.responses import Response, ResponseStreamEvent
from openai.types.responses.responses_server_event import ResponseWsError
from pydantic import ConfigDict

Json = dict[str, Any]

_TYPES: dict[str, type[BaseModel]] = {
    get_args(member.model_fields["type"].annotation)[0]: member
    for member in get_args(get_args(ResponseStreamEvent)[0])
}
_EXTENSION = re.compile(r"[a-z][a-z0-9_-]*:[a-z0-9_.-]+")
_ENDS = ("response.completed", "response.incomplete", "response.failed")
_BODIES = ("message", "reasoning")  # items that are told in parts


class _Shown(BaseModel):
    """Named fields are all there; more may be."""

    model_config = ConfigDict(extra="allow", strict=True)


class _ShownTool(_Shown):
    type: Literal["function"]
    name: str
    description: str | None
    parameters: Json | None
    strict: bool | None


class _ShownFormat(_Shown):
    type: Literal["text", "json_object", "json_schema", "grammar"]


class _ShownSchema(_ShownFormat):
    name: str
    description: str | None
    strict: bool


class _ShownText(_Shown):
    format: _ShownFormat


class _ShownReasoning(_Shown):
    effort: Literal["none", "minimal", "low", "medium", "high", "xhigh"] | None
    summary: Literal["auto", "concise", "detailed"] | None


class _ShownChoice(_Shown):
    type: Literal["function", "allowed_tools"]


class _ShownDetails(_Shown):
    reason: str


class _ShownError(_Shown):
    code: str
    message: str


_SECONDS = ("created_at", "completed_at")


class _ShownResponse(_Shown):
    """What a response shows, whatever was said when it was asked for."""

    id: str
    object: Literal["response"]
    created_at: int
    completed_at: int | None
    status: Literal["queued", "in_progress", "completed", "incomplete", "cancelled", "failed"]
    incomplete_details: _ShownDetails | None
    model: str
    previous_response_id: str | None
    instructions: str | None
    output: list[Json]
    error: _ShownError | None
    tools: list[_ShownTool]
    tool_choice: Literal["none", "auto", "required"] | _ShownChoice
    truncation: Literal["auto", "disabled"]
    parallel_tool_calls: bool
    text: _ShownText
    top_p: float
    presence_penalty: float
    frequency_penalty: float
    top_logprobs: int
    temperature: float
    reasoning: _ShownReasoning | None
    usage: Json | None
    max_output_tokens: int | None
    max_tool_calls: int | None
    store: bool
    background: bool
    service_tier: str
    metadata: dict[str, str]
    safety_identifier: str | None
    prompt_cache_key: str | None


def judge_response(response: Json) -> None:
    """Raise for a response that either side's types would not take."""
    _ShownResponse.model_validate(response)
    form = response["text"]["format"]
    if form["type"] == "json_schema":
        _ShownSchema.model_validate(form)
    if form["type"] == "grammar":  # ours
        response = {**response, "text": {"format": {"type": "text"}}}
    Response.model_validate(_in_openais_words(response), strict=True)


def judge_event(event: Json) -> None:
    """Raise for an event that nobody could read by its type."""
    kind = event["type"]
    if _EXTENSION.fullmatch(kind):
        assert isinstance(event["sequence_number"], int), event
        return
    if kind == "error":
        ResponseWsError.model_validate(event, strict=True)
        return
    assert kind in _TYPES, f"{kind} is no event of theirs, and has no prefix"
    if "response" in event:
        judge_response(event["response"])
        event = {**event, "response": _in_openais_words(event["response"])}
        event["response"]["text"] = {"format": {"type": "text"}}
    _TYPES[kind].model_validate(event, strict=True)


def as_sent(event: Json) -> Json:
    """An event or a response that openai's client gives back, which makes floats of seconds."""
    shown = event.get("response", event)
    seconds = {name: int(shown[name]) for name in _SECONDS if shown.get(name) is not None}
    return {**event, "response": {**shown, **seconds}} if shown is not event else event | seconds


def judge_stream(events: Sequence[Json]) -> Json:
    """Raise unless the events are one whole response, told in order; the response as it ended."""
    for event in events:
        judge_event(event)
    numbers = [event["sequence_number"] for event in events]
    assert numbers == list(range(len(events))), numbers
    lifecycle = [event for event in events if "response" in event]
    assert len({event["response"]["id"] for event in lifecycle}) == 1
    assert lifecycle[0] is events[0]
    assert events[0]["type"] in ("response.created", "response.queued")
    assert [event["type"] for event in lifecycle if event["type"] in _ENDS] == [events[-1]["type"]]
    story = _Story()
    for event in events:
        story.hear(event)
    response = events[-1]["response"]
    told, shown = len(story.items), response["output"]
    assert story.items == shown[:told]
    # What fails is over at once: the item that grew has no end of its own, and shows that.
    left = [story.left] if story.open is not None and response["status"] == "failed" else []
    assert [(item["id"], item["status"]) for item in shown[told:]] == left
    return response


def judge_sse(raw: bytes) -> list[Json]:
    """Raise unless these are named events with an end mark; the events that they carry."""
    *frames, last, rest = raw.decode().split("\n\n")
    assert (last, rest) == ("data: [DONE]", "")
    events = []
    for frame in frames:
        if frame.startswith(":"):
            continue
        name, data = frame.split("\n")
        event = orjson.loads(data.removeprefix("data: "))
        assert name == f"event: {event['type']}"
        events.append(event)
    return events


def _in_openais_words(response: Json) -> Json:
    """The response, with OpenAI's own words where Open Responses leaves the choice of them."""
    response = dict(response)
    if response["error"] is not None:
        response["error"] = {**response["error"], "code": "server_error"}
    if response["incomplete_details"] is not None:
        response["incomplete_details"] = {"reason": "max_output_tokens"}
    return response


@dataclass(slots=True)
class _Story:
    """What the items' events have told so far: one item at a time, each to its end."""

    items: list[Json] = field(default_factory=list)
    open: Json | None = None
    part: str | None = None
    text: str = ""

    @property
    def left(self) -> tuple[str, str]:
        """The item that no end was told of, as it must be shown."""
        assert self.open is not None
        return self.open["id"], "incomplete"

    def hear(self, event: Json) -> None:
        kind = event["type"]
        if kind == "response.output_item.added":
            assert self.open is None, "an item begins before the last one has ended"
            assert event["output_index"] == len(self.items)
            self.open, self.text = event["item"], ""
            assert self.open.get("content", []) == []
            assert self.open.get("arguments", "") == ""
        elif kind == "response.output_item.done":
            self._end(event)
        elif "item_id" in event:
            assert self.open is not None, "more of an item that is not there"
            assert event["item_id"] == self.open["id"]
            assert event["output_index"] == len(self.items)
            self._grow(kind, event)

    def _grow(self, kind: str, event: Json) -> None:
        if kind == "response.content_part.added":
            assert self.part is None
            self.part = event["part"]["type"]
        elif kind == "response.content_part.done":
            assert event["part"]["type"] == self.part
            assert event["part"]["text"] == self.text
            self.part = None
        elif kind.endswith(".delta"):
            assert event["delta"], "nothing was added"
            self.text += event["delta"]
        else:
            assert event["arguments" if "arguments" in event else "text"] == self.text
        if "content_index" in event and not kind.startswith("response.content_part."):
            assert self.part is not None, "a text outside of any part"

    def _end(self, event: Json) -> None:
        assert self.open is not None, "an item ends that never began"
        item, kind = event["item"], event["item"]["type"]
        assert (item["id"], kind) == (self.open["id"], self.open["type"])
        assert self.part is None, "a part was left open"
        if kind in _BODIES:
            assert "".join(part["text"] for part in item["content"]) == self.text
        if kind == "function_call":
            assert item["arguments"] == self.text
        assert item.get("status") != "in_progress"
        self.items.append(item)
        self.open = None
