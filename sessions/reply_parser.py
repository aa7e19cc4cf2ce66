"""A reply taken apart while it grows: reasoning, text and tool calls.

transformers' `ResponseParser` finds where calls are, by the tokenizer's own template or by that of
the model's family; calls in JSON are then read by `CallScanner`, so that their arguments stream.

Invariants:
    nothing that a model writes raises: what can't be read is text, a call that is cut incomplete
    what the events tell adds up to `reply`
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sessions.call_formats import CallFormat
from sessions.call_scanner import (
    CallBegun,
    CallDelta,
    CallDone,
    CallEvent,
    CallScanner,
    call_of,
)
from sessions.reasoning import ReasoningTags
from sessions.reasoning_splitter import ReasoningSplitter
from sessions.tools import Tool

_REASONING_FIELDS = ("reasoning_content", "reasoning", "thinking")
# What transformers' parser raises for text that is not as its template says.
_UNREADABLE = (ValueError, KeyError, TypeError, AttributeError, RecursionError)


@dataclass(frozen=True, slots=True)
class ReasoningDelta:
    """More reasoning."""

    text: str


@dataclass(frozen=True, slots=True)
class TextDelta:
    """More of the answer's text."""

    text: str


ReplyEvent = ReasoningDelta | TextDelta | CallEvent


@dataclass(frozen=True, slots=True, kw_only=True)
class ParsedReply:
    """A reply in its parts; the calls in their order."""

    reasoning: str = ""
    text: str = ""
    calls: tuple[CallDone, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplyShape:
    """What a model's replies look like. `opening` is the text of the reply's that already stands in
    the prompt; `is_own`: the format says what is reasoning, too."""

    form: CallFormat
    tags: ReasoningTags
    opening: str = ""

    @property
    def is_own(self) -> bool:
        """Whether the tokenizer brought its own template."""
        return self.form.name == "own"

    @property
    def opens_reasoning(self) -> bool:
        """Whether the reply begins inside its reasoning."""
        return self.opening.rstrip().endswith(self.tags.open)


class ReplyParser:
    """Reads one reply. Without tools nothing in it is a call; `reasons` False: nor reasoning."""

    def __init__(
        self, shape: ReplyShape, tools: Sequence[Tool] = (), *, reasons: bool = True
    ) -> None:
        self._splitter: ReasoningSplitter | None = None
        if reasons and not shape.is_own:
            self._splitter = ReasoningSplitter(shape.tags, is_open=shape.opens_reasoning)
        self._calls = _CallReader(shape, tools) if tools or shape.is_own else None
        self._texts: list[str] = []
        self._reasoning: list[str] = []
        self._done: list[CallDone] = []

    @property
    def is_reasoning(self) -> bool:
        """Whether what was read last is reasoning."""
        if self._splitter is not None:
            return self._splitter.is_inside
        return self._calls is not None and self._calls.field in _REASONING_FIELDS

    @property
    def reply(self) -> ParsedReply:
        """What was read so far."""
        return ParsedReply(
            reasoning="".join(self._reasoning), text="".join(self._texts), calls=tuple(self._done)
        )

    def feed(self, text: str) -> list[ReplyEvent]:
        """Read on."""
        events: list[ReplyEvent] = []
        if self._splitter is not None:
            reasoning, text = self._splitter.feed(text)
            events += [ReasoningDelta(reasoning)] if reasoning else []
        events += self._answer(text)
        return self._noted(events)

    def finish(self) -> list[ReplyEvent]:
        """No more comes."""
        events: list[ReplyEvent] = []
        if self._splitter is not None:
            reasoning, text = self._splitter.finish()
            events += [ReasoningDelta(reasoning)] if reasoning else []
            events += self._answer(text)
        if self._calls is not None:
            events += self._calls.finish()
        return self._noted(events)

    def _answer(self, text: str) -> list[ReplyEvent]:
        if not text:
            return []
        return [TextDelta(text)] if self._calls is None else self._calls.feed(text)

    def _noted(self, events: list[ReplyEvent]) -> list[ReplyEvent]:
        for event in events:
            match event:
                case TextDelta(text):
                    self._texts.append(text)
                case ReasoningDelta(text):
                    self._reasoning.append(text)
                case CallDone():
                    self._done.append(event)
                case CallBegun() | CallDelta():
                    pass
        return events


class _CallReader:
    """Text and calls, by a response template."""

    def __init__(self, shape: ReplyShape, tools: Sequence[Tool]) -> None:
        self._form = shape.form
        self._parser = _lenient_parser(
            shape.form.template,
            shape.opening if shape.is_own else "",
            [tool.as_template() for tool in tools],
        )
        # JSON that nothing stands around is a call only if there is such a tool.
        names = frozenset(tool.name for tool in tools) if shape.form.is_bare else None
        self._scanner = CallScanner(names)
        self._num_before = 0  # calls in front of the region that is open
        self._raw = ""  # that region's text
        self._blank = ""  # white space behind a call, which is text only if more follows
        self.field: str | None = None

    def feed(self, text: str) -> list[ReplyEvent]:
        return self._told(self._parser.feed(text), is_end=False)

    def finish(self) -> list[ReplyEvent]:
        return self._told(self._parser.end(), is_end=True)

    def _told(self, regions: list[dict[str, Any]], *, is_end: bool) -> list[ReplyEvent]:
        events: list[ReplyEvent] = []
        for region in regions:
            name, kind = region["field"], region["type"]
            self.field = name if kind != "region_close" else None
            if name == "tool_calls":
                events += self._call(region, is_end=is_end)
            elif kind == "region_chunk":
                events += self._words(region["text"], is_answer=name not in _REASONING_FIELDS)
        return events

    def _words(self, text: str, *, is_answer: bool) -> list[ReplyEvent]:
        if not is_answer:
            return [ReasoningDelta(text)]
        if self._scanner.num_calls:
            text = self._blank + text
            self._blank = "" if text.strip() else text
        return [TextDelta(text)] if not self._blank else []

    def _call(self, region: dict[str, Any], *, is_end: bool) -> list[ReplyEvent]:
        match region["type"]:
            case "region_open":
                self._raw, self._num_before = "", self._scanner.num_calls
                return []
            case "region_chunk":
                self._raw += region["text"]
                return [*self._scanner.feed(region["text"])] if self._form.is_json else []
        if self._form.is_json:
            return self._json_end(is_cut=is_end)
        return self._value_end(region["value"], is_cut=is_end)

    def _json_end(self, *, is_cut: bool) -> list[ReplyEvent]:
        events: list[ReplyEvent] = [*self._scanner.finish()]
        stray = self._scanner.take_stray()
        if self._scanner.num_calls == self._num_before:
            stray = self._as_text(is_cut=is_cut) if self._raw.strip() else ""
        return [*events, TextDelta(stray)] if stray else events

    def _value_end(self, value: object, *, is_cut: bool) -> list[ReplyEvent]:
        calls = [call_of(one) for one in (value if isinstance(value, list) else [value])]
        events: list[ReplyEvent] = []
        for call in filter(None, calls):
            number, (name, arguments) = self._scanner.num_calls, call
            self._scanner.num_calls += 1
            is_complete = not (is_cut and self._may_be_cut)
            events += [
                CallBegun(number, name),
                CallDelta(number, arguments),
                CallDone(number, name, arguments, is_complete),
            ]
        return events or [TextDelta(self._as_text(is_cut=is_cut))]

    def _as_text(self, *, is_cut: bool) -> str:
        """A region that says no call, as the model wrote it, but for blanks."""
        closing = self._form.closing.strip() if self._has_end and not is_cut else ""
        return self._form.opening.strip() + self._raw + closing

    @property
    def _calls(self) -> dict[str, Any]:
        calls: dict[str, Any] = self._form.template["fields"].get("tool_calls", {})
        return calls

    @property
    def _has_end(self) -> bool:
        return "close" in self._calls or "close_pattern" in self._calls

    @property
    def _may_be_cut(self) -> bool:
        """Whether arguments that could be read may still lack some: JSON tells that by itself, and
        what a pattern ends may only be seen to have ended when nothing follows."""
        return self._calls.get("content") != "json" and "close" in self._calls


def _lenient_parser(template: dict[str, Any], prefix: str, tools: list[dict[str, Any]]) -> Any:  # noqa: ANN401 - transformers has no types
    """transformers' parser, whose regions close with None where they can't be read."""
    # Here and not above: importing transformers takes longer than everything else together.
    from transformers.utils.chat_parsing import ResponseParser

    class LenientParser(ResponseParser):  # type: ignore[misc]
        def _close_current(self, events: list[dict[str, Any]]) -> None:
            try:
                super()._close_current(events)
            except _UNREADABLE:
                events.append({"type": "region_close", "field": self._current, "value": None})
                self._reset_to_implicit()

        def end(self) -> list[dict[str, Any]]:
            """The last events; fields that a template requires may be missing."""
            events: list[dict[str, Any]] = []
            self._process(events, eos=True)
            return events

    return LenientParser(template, prefix=prefix, tools=tools)
