"""What a chat's reply may be: its tools, which of them it may call, and the form of its answer."""

from typing import Any

import orjson

from model.grammar import Grammar, GrammarKind
from sessions.errors import InvalidInputError, UnsupportedInputError
from sessions.tools import Tool, ToolChoice, ToolMode

Json = dict[str, Any]

_FORMAT = "response_format"


def parse_tools(value: object) -> tuple[Tool, ...]:
    """The tools that are offered; raises InvalidInputError with the place of what is none."""
    if value is None:
        return ()
    if not isinstance(value, list):
        raise InvalidInputError("tools must be a list", param="tools")
    return tuple(_tool(tool, f"tools[{index}]") for index, tool in enumerate(value))


def _tool(tool: object, place: str) -> Tool:
    if not isinstance(tool, dict):
        raise InvalidInputError(f"{place} must be an object", param=place)
    if tool.get("type") != "function":
        raise UnsupportedInputError("only functions can be offered", param=f"{place}.type")
    function = tool.get("function")
    if not isinstance(function, dict) or not isinstance(function.get("name"), str):
        raise InvalidInputError(
            f"{place}.function must be an object with a name", param=f"{place}.function"
        )
    description = function.get("description") or ""
    if not isinstance(description, str):
        raise InvalidInputError("a description is text", param=f"{place}.function.description")
    parameters = function.get("parameters") or {"type": "object", "properties": {}}
    return Tool(
        name=function["name"],
        description=description,
        parameters=orjson.dumps(parameters).decode(),
        strict=function.get("strict") is True,
    )


def parse_choice(value: object, *, has_tools: bool, is_parallel: bool | None) -> ToolChoice:
    """Which tools may or must be called. Raises InvalidInputError."""
    parallel = is_parallel is not False
    if value is None:
        mode = ToolMode.AUTO if has_tools else ToolMode.NONE
        return ToolChoice(mode=mode, is_parallel=parallel)
    if isinstance(value, str) and value in tuple(ToolMode):
        return ToolChoice(mode=ToolMode(value), is_parallel=parallel)
    if isinstance(value, dict):
        match value:
            case {"type": "function", "function": {"name": str(name)}}:
                # One that is named is called once: that is what it is named for.
                names = frozenset({name})
                return ToolChoice(mode=ToolMode.REQUIRED, names=names, is_parallel=False)
            case {"type": "allowed_tools", "allowed_tools": {"mode": mode, "tools": list(tools)}}:
                return _allowed(mode, tools, is_parallel=parallel)
            case {"type": str(kind)} if kind not in ("function", "allowed_tools"):
                raise UnsupportedInputError(
                    f"{kind[:64]} can't be chosen", param="tool_choice.type"
                )
    raise InvalidInputError(
        "tool_choice must be none, auto, required, a function or allowed_tools",
        param="tool_choice",
    )


def _allowed(mode: object, tools: list[object], *, is_parallel: bool) -> ToolChoice:
    names: set[str] = set()
    for tool in tools:
        match tool:
            case {"function": {"name": str(name)}} | {"name": str(name)}:
                names.add(name)
            case _:
                raise InvalidInputError(
                    "an allowed tool is a function with a name",
                    param="tool_choice.allowed_tools.tools",
                )
    if mode not in ("auto", "required"):
        raise InvalidInputError(
            "the mode must be auto or required", param="tool_choice.allowed_tools.mode"
        )
    return ToolChoice(mode=ToolMode(str(mode)), names=frozenset(names), is_parallel=is_parallel)


def parse_format(value: object) -> Grammar | None:
    """The form of an answer; None if it is free. Raises InvalidInputError."""
    match value:
        case None | {"type": "text"}:
            return None
        case {"type": "json_object", "schema": schema} if schema:  # llama.cpp's way
            return _by_schema(schema, f"{_FORMAT}.schema")
        case {"type": "json_object"}:
            return Grammar(kind=GrammarKind.JSON_OBJECT, param=_FORMAT)
        case {"type": "json_schema", "json_schema": dict(named)}:
            return _by_schema(named.get("schema"), f"{_FORMAT}.json_schema.schema")
        case {"type": "regex", "regex": str(text)}:
            return Grammar(kind=GrammarKind.REGEX, text=text, param=_FORMAT)
        case {"type": "lark", "grammar": str(text)}:
            return Grammar(kind=GrammarKind.LARK, text=text, param=_FORMAT)
    raise InvalidInputError(
        "response_format must be text, json_object, json_schema with a schema, regex or lark",
        param=_FORMAT,
    )


def _by_schema(schema: object, place: str) -> Grammar:
    if not isinstance(schema, dict):
        raise InvalidInputError("the schema must be an object", param=place)
    text = orjson.dumps(schema).decode()
    return Grammar(kind=GrammarKind.JSON_SCHEMA, text=text, param=_FORMAT)
