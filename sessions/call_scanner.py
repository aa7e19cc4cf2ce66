"""Calls written as JSON, read while they grow. Pure.

`{"name": "f", "arguments": {…}}`, one or several, with or without brackets around them; some models
say `parameters`. Arguments are passed on as they are said if the name comes first, and at the end
otherwise. Nothing that a model writes is an error: what is no call comes back as text.

Invariant: of each call a `CallBegun`, its arguments' pieces, and a `CallDone`, before the next.
"""

import json
import re
from dataclasses import dataclass
from typing import Any

from sessions.token_text import is_text

_HEAD = re.compile(
    r'\{\s*"name"\s*:\s*(?P<name>"(?:[^"\\]|\\.)*")\s*,\s*'
    r'"(?:arguments|parameters)"\s*:\s*(?P<value>\{)'
)
_ARGUMENTS = ("arguments", "parameters")
_SEPARATORS = " \t\r\n,;[]"


@dataclass(frozen=True, slots=True)
class CallBegun:
    """A call of this name; `number` counts a reply's calls from 0."""

    number: int
    name: str


@dataclass(frozen=True, slots=True)
class CallDelta:
    """More of a call's arguments, as JSON text."""

    number: int
    text: str


@dataclass(frozen=True, slots=True)
class CallDone:
    """A call's end. Incomplete: its arguments were cut, and are no whole JSON."""

    number: int
    name: str
    arguments: str
    is_complete: bool


CallEvent = CallBegun | CallDelta | CallDone


class CallScanner:
    """Reads one reply's calls, from wherever in it they stand; with `names` only those of them."""

    def __init__(self, names: frozenset[str] | None = None) -> None:
        self.num_calls = 0
        self._names = names
        self._reset()
        self._stray = ""  # text that was none of a call's

    def feed(self, text: str) -> list[CallEvent]:
        """Read on."""
        events: list[CallEvent] = []
        for char in text:
            self._step(char, events)
        self._flush(events)
        return events

    def finish(self) -> list[CallEvent]:
        """No more comes to where it reads; a call that is open is incomplete."""
        events: list[CallEvent] = []
        if self._name is not None:
            self._done(events, is_complete=self._is_whole)
        self._stray += self._text
        self._reset()
        return events

    def take_stray(self) -> str:
        """What was read that is no call; empty if there is none but separators."""
        stray, self._stray = self._stray, ""
        return stray if stray.strip(_SEPARATORS) else ""

    def _reset(self) -> None:
        self._text = ""  # of the object under way
        self._depth = 0
        self._is_string = self._is_escaped = False
        self._name: str | None = None  # once it is known, and arguments follow
        self._arguments = ""
        self._num_told = 0  # characters of them
        self._is_whole = False

    def _step(self, char: str, events: list[CallEvent]) -> None:
        if not self._text and char != "{":
            self._stray += char
            return
        self._text += char
        self._track(char)
        if self._name is not None:
            if not self._is_whole:
                self._arguments += char
                self._is_whole = self._depth == 1 and not self._is_string
        elif char == "{" and self._depth == 2 and (head := _HEAD.fullmatch(self._text)):
            self._begin(events, head["name"])
        if self._depth == 0:
            self._close(events)

    def _begin(self, events: list[CallEvent], quoted: str) -> None:
        name = json.loads(quoted) if _is_json(quoted) else ""
        if self._is_known(name):
            self._name, self._arguments = name, "{"
            events.append(CallBegun(self.num_calls, name))

    def _is_known(self, name: str) -> bool:
        return is_name(name) and (self._names is None or name in self._names)

    def _track(self, char: str) -> None:
        if self._is_escaped:
            self._is_escaped = False
        elif self._is_string:
            self._is_escaped = char == "\\"
            self._is_string = char != '"'
        elif char == '"':
            self._is_string = True
        else:
            self._depth += (char in "{[") - (char in "}]")

    def _flush(self, events: list[CallEvent]) -> None:
        if self._name is not None and self._num_told < len(self._arguments):
            events.append(CallDelta(self.num_calls, self._arguments[self._num_told :]))
            self._num_told = len(self._arguments)

    def _close(self, events: list[CallEvent]) -> None:
        """An object has ended."""
        if self._name is not None:
            self._done(events, is_complete=True)
        elif (call := _call(self._text)) is not None and self._is_known(call[0]):
            self._name, self._arguments = call
            events.append(CallBegun(self.num_calls, self._name))
            self._done(events, is_complete=True)
        else:
            self._stray += self._text
        self._reset()

    def _done(self, events: list[CallEvent], *, is_complete: bool) -> None:
        assert self._name is not None
        self._flush(events)
        is_complete = is_complete and _is_json(self._arguments)
        events.append(CallDone(self.num_calls, self._name, self._arguments, is_complete))
        self.num_calls += 1
        self._text = ""


def is_name(name: str) -> bool:
    """Whether a name can be told and kept: models write escapes, too, that stand for no text."""
    return bool(name) and "\0" not in name and is_text(name)


def call_of(value: object) -> tuple[str, str] | None:
    """The name and the arguments' JSON text in a value that says a call; None if it says none."""
    if isinstance(value, dict) and isinstance(value.get("function"), dict):
        value = value["function"]
    if not isinstance(value, dict) or not isinstance(value.get("name"), str):
        return None
    if not is_name(value["name"]):
        return None
    arguments: Any = next((value[key] for key in _ARGUMENTS if key in value), {})
    if isinstance(arguments, str) and _is_json(arguments):
        return value["name"], arguments if is_text(arguments) else json.dumps(json.loads(arguments))
    text = json.dumps(arguments, ensure_ascii=False)
    return value["name"], text if is_text(text) else json.dumps(arguments)


def _call(text: str) -> tuple[str, str] | None:
    try:
        return call_of(json.loads(text))
    except (ValueError, RecursionError):
        return None


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True
