"""Messages as chat completions have them, made into ours. What can't be told is refused by name."""

from typing import Any

from pydantic import BaseModel, ConfigDict

from sessions.errors import InvalidInputError, UnsupportedInputError
from sessions.messages import InputMessage, ToolCall

_ROLES = frozenset({"developer", "system", "user", "assistant", "tool"})


class ChatCall(BaseModel):
    """A call in an assistant's message."""

    model_config = ConfigDict(strict=True, frozen=True)

    id: str
    name: str
    arguments: str


class ChatMessage(BaseModel):
    """One message, its content already joined to text."""

    model_config = ConfigDict(strict=True, frozen=True)

    role: str
    content: str
    reasoning_content: str | None = None
    tool_calls: list[ChatCall] | None = None
    tool_call_id: str | None = None

    def to_message(self) -> InputMessage:
        """The message as sessions know it."""
        calls = self.tool_calls or []
        return InputMessage(
            role=self.role,
            text=self.content,
            reasoning=self.reasoning_content,
            calls=tuple(ToolCall(id=c.id, name=c.name, arguments=c.arguments) for c in calls),
            call_id=self.tool_call_id,
        )


def normalise_messages(value: object) -> object:
    """Reduce every message to what is read of it; refuse what is none by its place."""
    if not isinstance(value, list):
        return value
    return [_message(message, f"messages[{index}]") for index, message in enumerate(value)]


def _message(message: object, place: str) -> dict[str, Any]:
    if not isinstance(message, dict):
        raise InvalidInputError(f"{place} must be an object", param=place)
    role = message.get("role")
    if role == "function":
        raise UnsupportedInputError(
            "function messages are not supported; use tools", param=f"{place}.role"
        )
    if not isinstance(role, str) or role not in _ROLES:
        known = ", ".join(sorted(_ROLES))
        raise InvalidInputError(f"{place}.role must be one of {known}", param=f"{place}.role")
    # `prefix` and `partial` ask, elsewhere, for a reply that goes on with the message.
    for name in ("function_call", "audio", "prefix", "partial"):
        if message.get(name):
            raise UnsupportedInputError(f"{name} is not supported", param=f"{place}.{name}")
    said: dict[str, Any] = {
        "role": role,
        "content": _text(message.get("content"), role, f"{place}.content"),
    }
    if role == "tool":
        said["tool_call_id"] = _string(message, "tool_call_id", place)
    if role != "assistant" and message.get("tool_calls"):
        raise InvalidInputError(
            "only an assistant's message has calls", param=f"{place}.tool_calls"
        )
    if role == "assistant":
        said["tool_calls"] = _calls(message.get("tool_calls"), f"{place}.tool_calls")
        reasoning = message.get("reasoning_content") or message.get("reasoning")
        said["reasoning_content"] = reasoning if isinstance(reasoning, str) else None
    return said


def _calls(value: object, place: str) -> list[dict[str, str]]:
    if value is None:
        return []
    if not isinstance(value, list):
        raise InvalidInputError(f"{place} must be a list", param=place)
    return [_call(call, f"{place}[{index}]") for index, call in enumerate(value)]


def _call(call: object, place: str) -> dict[str, str]:
    if not isinstance(call, dict):
        raise InvalidInputError(f"{place} must be an object", param=place)
    if call.get("type", "function") != "function":
        raise UnsupportedInputError("only functions can be called", param=f"{place}.type")
    function = call.get("function")
    if not isinstance(function, dict):
        raise InvalidInputError(f"{place}.function must be an object", param=f"{place}.function")
    return {
        "id": _string(call, "id", place),
        "name": _string(function, "name", f"{place}.function"),
        "arguments": _string(function, "arguments", f"{place}.function"),
    }


def _string(value: dict[str, Any], name: str, place: str) -> str:
    text = value.get(name)
    if not isinstance(text, str):
        raise InvalidInputError(f"{place}.{name} must be text", param=f"{place}.{name}")
    return text


def _text(content: object, role: str, place: str) -> str:
    if isinstance(content, str):
        return content
    if content is None and role == "assistant":
        return ""
    if not isinstance(content, list):
        raise InvalidInputError(f"{place} must be text or a list of parts", param=place)
    return "".join(_part(part, f"{place}[{index}]") for index, part in enumerate(content))


def _part(part: object, place: str) -> str:
    if not isinstance(part, dict) or not isinstance(part.get("type"), str):
        raise InvalidInputError(f"{place} must be a part with a type", param=place)
    kind = part["type"]
    if kind not in ("text", "refusal"):
        raise UnsupportedInputError(f"{kind[:64]} parts are not supported", param=place)
    text = part.get(kind)
    if not isinstance(text, str):
        raise InvalidInputError(f"{place}.{kind} must be text", param=f"{place}.{kind}")
    return text
