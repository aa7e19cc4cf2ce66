"""What a stream yields: the server's events, those that matter most with a type of their own.

An event of a kind that this version does not know is a plain `Event`, with all its data.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from splice.items import Item
from splice.json_value import Json
from splice.types import Metrics, Turn

TERMINAL = ("response.completed", "response.incomplete", "response.failed")


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Any event; `sequence_number` counts from 0 in each turn, without a gap. One that came without
    a number has that of the event before it."""

    type: str
    sequence_number: int
    raw: Json = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class TextDelta(Event):
    """More of the reply's text."""

    delta: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ReasoningDelta(Event):
    """More of what the model thinks before it answers."""

    delta: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ArgumentsDelta(Event):
    """More of a call's arguments, a piece of JSON text; `item_id` is the call's."""

    delta: str
    item_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemEvent(Event):
    """A message, a call or a thought has begun, or is whole (`is_done`)."""

    item: Item
    is_done: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricsEvent(Event):
    """How the turn went, just before its end."""

    metrics: Metrics


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnEvent(Event):
    """The turn was created, is in progress, or has ended."""

    turn: Turn

    @property
    def is_end(self) -> bool:
        """Whether nothing comes after it."""
        return self.type in TERMINAL


_Facts = dict[str, Any]


def parse_event(raw: Json, unnumbered: int = -1) -> Event:
    """Give an event of the wire its type; `unnumbered` is the number of one that has none."""
    kind = raw["type"]
    number = raw.get("sequence_number", unnumbered)
    facts: _Facts = {"type": kind, "sequence_number": number, "raw": raw}
    read = _READERS.get(kind)
    if read is not None:
        return read(raw, facts)
    if isinstance(raw.get("response"), Mapping):
        return TurnEvent(**facts, turn=Turn.from_wire(raw["response"]))
    return Event(**facts)


def _item_event(raw: Json, facts: _Facts) -> ItemEvent:
    is_done = raw["type"] == "response.output_item.done"
    return ItemEvent(**facts, item=Item.from_wire(raw["item"]), is_done=is_done)


def _arguments_delta(raw: Json, facts: _Facts) -> ArgumentsDelta:
    return ArgumentsDelta(**facts, delta=raw["delta"], item_id=raw.get("item_id", ""))


_READERS: Final[Mapping[str, Callable[[Json, _Facts], Event]]] = {
    "response.output_text.delta": lambda raw, facts: TextDelta(**facts, delta=raw["delta"]),
    "response.reasoning_text.delta": lambda raw, facts: ReasoningDelta(**facts, delta=raw["delta"]),
    "response.function_call_arguments.delta": _arguments_delta,
    "response.output_item.added": _item_event,
    "response.output_item.done": _item_event,
    "splice:metrics": lambda raw, facts: MetricsEvent(**facts, metrics=Metrics.from_wire(raw)),
}


class SseParser:
    """Bytes of a server-sent event stream in, JSON objects out; cuts may be anywhere."""

    def __init__(self) -> None:
        self._rest = b""
        self._data: list[str] = []

    def feed(self, chunk: bytes) -> Iterator[Json]:
        """The objects that are complete with this chunk; comments and `[DONE]` are left out."""
        # A carriage return may be half of a line's end, so the last one waits for what follows.
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        for line in lines:
            yield from self._line(line.removesuffix(b"\r").decode())

    def _line(self, line: str) -> Iterator[Json]:
        if line.startswith("data:"):
            self._data.append(line[5:].removeprefix(" "))
        elif not line and self._data:
            data, self._data = "\n".join(self._data), []
            if data != "[DONE]":
                yield json.loads(data)
