"""Tools that a caller offers, and which of them may be called. Pure values and their limits."""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from model.grammar import Grammar, GrammarKind
from sessions.errors import InvalidInputError
from sessions.nesting import is_too_deep
from sessions.token_text import is_text

MAX_TOOLS = 128
MAX_TOOL_CHARS = 131_072
MAX_CALLS = 16
"""Of one reply that is held to calls: a model that can't stop would go on for ever."""
_NAME = re.compile(r"[A-Za-z0-9_.:-]{1,128}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """A function. `parameters` is the JSON text of its arguments' schema, `strict` whether calls
    must be valid by it."""

    name: str
    description: str = ""
    parameters: str = '{"type": "object", "properties": {}}'
    strict: bool = False

    @property
    def schema(self) -> dict[str, Any]:
        """The arguments' schema."""
        schema: dict[str, Any] = json.loads(self.parameters)
        return schema

    def as_template(self) -> dict[str, Any]:
        """As chat templates read it."""
        function = {
            "name": self.name,
            "description": self.description,
            "parameters": self.schema,
        }
        return {"type": "function", "function": function}


class ToolMode(StrEnum):
    """Whether a reply may, must or must not call."""

    NONE = "none"
    AUTO = "auto"
    REQUIRED = "required"


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolChoice:
    """What a reply may call: of all tools if `names` is None. `is_parallel`: more than one."""

    mode: ToolMode = ToolMode.AUTO
    names: frozenset[str] | None = None
    is_parallel: bool = True

    def of(self, tools: Sequence[Tool]) -> tuple[Tool, ...]:
        """The tools that may be called."""
        if self.mode is ToolMode.NONE:
            return ()
        return tuple(t for t in tools if self.names is None or t.name in self.names)


def check_form(tools: Sequence[Tool], choice: ToolChoice, form: Grammar | None) -> None:
    """Raise InvalidInputError for a form that can't be joined with what may be called."""
    if form is None or form.kind is not GrammarKind.LARK or choice.mode is ToolMode.REQUIRED:
        return
    if choice.of(tools):
        raise InvalidInputError(
            "a form in Lark can't stand beside tools: a JSON schema or a regex can",
            param=form.param,
        )


def check_tools(tools: Sequence[Tool], choice: ToolChoice) -> None:
    """Raise InvalidInputError for tools that can't be offered, or a choice that can't be made."""
    if len(tools) > MAX_TOOLS:
        raise InvalidInputError(f"at most {MAX_TOOLS} tools can be offered", param="tools")
    names: set[str] = set()
    for number, tool in enumerate(tools):
        _check_tool(tool, f"tools[{number}]")
        if tool.name in names:
            raise InvalidInputError(
                f"two tools are called {tool.name}", param=f"tools[{number}].name"
            )
        names.add(tool.name)
    if sum(len(t.description) + len(t.parameters) for t in tools) > MAX_TOOL_CHARS:
        raise InvalidInputError(
            f"all tools together may have {MAX_TOOL_CHARS} characters", param="tools"
        )
    unknown = sorted((choice.names or set()) - names)
    if unknown:
        raise InvalidInputError(f"no tool is called {unknown[0]}", param="tool_choice")
    if choice.mode is ToolMode.REQUIRED and not choice.of(tools):
        raise InvalidInputError("there is no tool to call", param="tool_choice")


def _check_tool(tool: Tool, place: str) -> None:
    if not _NAME.fullmatch(tool.name):
        raise InvalidInputError(
            "a tool's name has 1 to 128 letters, digits and any of _ . : -", param=f"{place}.name"
        )
    try:
        schema = json.loads(tool.parameters)
    except (ValueError, RecursionError) as exc:
        raise InvalidInputError(
            "a tool's parameters are a JSON schema", param=f"{place}.parameters"
        ) from exc
    if not isinstance(schema, dict):
        raise InvalidInputError(
            "a tool's parameters are a JSON object", param=f"{place}.parameters"
        )


def arguments_of(text: str) -> dict[str, Any]:
    """A call's arguments as templates want them; broken ones under a name of their own."""
    try:
        arguments = json.loads(text) if text.strip() else {}
        is_whole = is_text(json.dumps(arguments, ensure_ascii=False))
    except (ValueError, RecursionError):
        return {"arguments": text}
    if not is_whole or is_too_deep(arguments, text):
        return {"arguments": text}
    return arguments if isinstance(arguments, dict) else {"arguments": arguments}
