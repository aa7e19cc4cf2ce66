"""Tools for models whose template knows none: told in plain words, as messages like any other.

A call is written as most models were shown it; what it returned comes back as a user's message.
"""

import json
from collections.abc import Sequence
from dataclasses import replace

from sessions.messages import InputMessage, ToolCall
from sessions.tools import Tool, arguments_of

_OFFER = (
    "You can call functions. To call one, write exactly this, and wait for what it returns:\n"
    "<tool_call>\n"
    '{"name": "the function\'s name", "arguments": {"its arguments": "by its schema"}}\n'
    "</tool_call>\n"
    "Several calls are written one behind the other. Call only what helps to answer. "
    "The functions, each with the JSON schema of its arguments:\n"
)


def offer(tools: Sequence[Tool]) -> str:
    """What the model is told of tools."""
    lines = (
        json.dumps(
            {"name": t.name, "description": t.description, "parameters": t.schema},
            ensure_ascii=False,
        )
        for t in tools
    )
    return _OFFER + "\n".join(lines)


def plainly(messages: Sequence[InputMessage], tools: Sequence[Tool]) -> tuple[InputMessage, ...]:
    """Messages without calls and results, and the tools in front of all, or behind the leading
    system messages' words."""
    plain = [_plain(message) for message in messages]
    if tools:
        is_lead = bool(plain) and plain[0].role in ("system", "developer")
        plain.insert(1 if is_lead else 0, InputMessage(role="system", text=offer(tools)))
    return tuple(plain)


def write_call(call: ToolCall) -> str:
    """A call as the model writes it."""
    said = {"name": call.name, "arguments": arguments_of(call.arguments)}
    return f"<tool_call>\n{json.dumps(said, ensure_ascii=False)}\n</tool_call>"


def _plain(message: InputMessage) -> InputMessage:
    if message.role == "tool":
        return InputMessage(role="user", text=f"<tool_response>\n{message.text}\n</tool_response>")
    if not message.calls:
        return message
    parts = [message.text, *(write_call(call) for call in message.calls)]
    return replace(message, text="\n".join(part for part in parts if part), calls=())
