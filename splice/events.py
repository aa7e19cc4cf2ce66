"""What a stream yields: the server's events, those that matter most with a type of their own.

An event of a kind that this version does not know is a plain `Event`, with all its data.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field

from splice.types import Json, Metrics, Turn

TERMINAL = ("response.completed", "response.incomplete", "response.failed")


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Any event; `sequence_number` counts from 0 in each turn, without a gap."""

    type: str
    sequence_number: int
    raw: Json = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class TextDelta(Event):
    """More of the reply's text."""

    delta: str


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


def parse_event(raw: Json) -> Event:
    """Give an event of the wire its type."""
    kind, number = raw["type"], raw["sequence_number"]
    if kind == "response.output_text.delta":
        return TextDelta(type=kind, sequence_number=number, raw=raw, delta=raw["delta"])
    if kind == "splice:metrics":
        metrics = Metrics.from_wire(raw)
        return MetricsEvent(type=kind, sequence_number=number, raw=raw, metrics=metrics)
    if "response" in raw:
        turn = Turn.from_wire(raw["response"])
        return TurnEvent(type=kind, sequence_number=number, raw=raw, turn=turn)
    return Event(type=kind, sequence_number=number, raw=raw)


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
