"""Tools, what may be called of them, and the form of an answer, as Responses writes them.

Only functions are taken: hosted tools run nowhere here, and are refused by their place.
"""

from typing import Any, Final

import orjson

from model.grammar import Grammar, GrammarKind
from sessions.errors import InvalidInputError, UnsupportedInputError
from sessions.tools import Tool, ToolChoice, ToolMode, check_tools

Json = dict[str, Any]

_SYNTAXES: Final = {"lark": GrammarKind.LARK, "regex": GrammarKind.REGEX}
_FORMAT = "text.format"


def read_tools(value: list[Json] | None) -> tuple[Tool, ...]:
    """The functions that a request offers."""
    return tuple(_tool(tool, f"tools[{n}]") for n, tool in enumerate(value or []))


def _tool(tool: Json, place: str) -> Tool:
    kind = tool.get("type")
    if kind != "function":
        name = kind[:64] if isinstance(kind, str) else "such"
        raise UnsupportedInputError(f"{name} tools are not supported", param=f"{place}.type")
    parameters = tool.get("parameters")
    if parameters is not None and not isinstance(parameters, dict):
        raise InvalidInputError("parameters are a schema", param=f"{place}.parameters")
    if "name" not in tool and "function" in tool:  # as chat completions have it
        raise InvalidInputError(
            f"{place}.name is missing: here a function's name stands beside its type",
            param=f"{place}.name",
        )
    given: Json = {"name": _text(tool, "name", place)}
    if tool.get("description") is not None:
        given["description"] = _text(tool, "description", place)
    if parameters is not None:
        given["parameters"] = orjson.dumps(parameters).decode()
    return Tool(**given, strict=tool.get("strict") is True)


def _text(value: Json, name: str, place: str) -> str:
    text = value.get(name)
    if not isinstance(text, str):
        raise InvalidInputError(f"{place}.{name} must be text", param=f"{place}.{name}")
    return text


def read_choice(
    value: str | Json | None, tools: tuple[Tool, ...], *, is_parallel: bool | None
) -> ToolChoice:
    """What of them a reply may call; raises for tools or a choice that can't be."""
    mode, names = ToolMode.AUTO, None
    if isinstance(value, str):
        mode = _mode(value)
    elif isinstance(value, dict):
        mode, names = _named(value)
    # One that is named is called once: that is what it is named for.
    is_named = mode is ToolMode.REQUIRED and isinstance(value, dict) and value["type"] == "function"
    choice = ToolChoice(
        mode=mode, names=names, is_parallel=is_parallel is not False and not is_named
    )
    check_tools(tools, choice)
    return choice


def _mode(value: object) -> ToolMode:
    if value not in tuple(ToolMode):
        known = ", ".join(ToolMode)
        raise InvalidInputError(f"tool_choice must be one of {known}", param="tool_choice")
    return ToolMode(str(value))


def _named(value: Json) -> tuple[ToolMode, frozenset[str]]:
    match value.get("type"):
        case "function":
            return ToolMode.REQUIRED, frozenset({_text(value, "name", "tool_choice")})
        case "allowed_tools":
            tools = value.get("tools")
            if not isinstance(tools, list) or not all(isinstance(tool, dict) for tool in tools):
                raise InvalidInputError("tools must be a list", param="tool_choice.tools")
            names = frozenset(_text(tool, "name", "tool_choice.tools") for tool in tools)
            return _mode(value.get("mode", "auto")), names
        case _:
            raise UnsupportedInputError("only functions can be chosen", param="tool_choice.type")


def read_form(text: Json | None) -> Grammar | None:
    """What an answer is held to; None: to nothing."""
    wanted = (text or {}).get("format")
    if wanted is None:
        return None
    if not isinstance(wanted, dict):
        raise InvalidInputError(f"{_FORMAT} must be an object", param=_FORMAT)
    match wanted.get("type"):
        case "text":
            return None
        case "json_object" if not wanted.get("schema"):
            return Grammar(kind=GrammarKind.JSON_OBJECT, param=_FORMAT)
        case "json_object" | "json_schema":  # llama.cpp has schemas in both
            schema = wanted.get("schema")
            if not isinstance(schema, dict):
                raise InvalidInputError("a schema is an object", param=f"{_FORMAT}.schema")
            text_of_it = orjson.dumps(schema).decode()
            return Grammar(kind=GrammarKind.JSON_SCHEMA, text=text_of_it, param=_FORMAT)
        case "grammar":
            syntax = wanted.get("syntax")
            if not isinstance(syntax, str) or syntax not in _SYNTAXES:
                known = " or ".join(_SYNTAXES)
                raise InvalidInputError(f"syntax is {known}", param=f"{_FORMAT}.syntax")
            definition = _text(wanted, "definition", _FORMAT)
            return Grammar(kind=_SYNTAXES[syntax], text=definition, param=_FORMAT)
        case _:
            raise UnsupportedInputError("there is no such format", param=f"{_FORMAT}.type")
