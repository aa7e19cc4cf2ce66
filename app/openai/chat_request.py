"""The body of a chat completion.

Lenient where it can be, for clients send new fields every month: what is unknown is ignored.
Strict where silence would lie: a field whose loss would change the answer's meaning is refused
by its name.
"""

from collections.abc import Callable
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, StringConstraints

from app.parsing import validate
from app.protocol import MAX_MESSAGES
from app.sampling import SamplingFields
from sessions.errors import InvalidInputError, UnsupportedInputError
from sessions.types import InputMessage

_ROLES = frozenset({"developer", "system", "user", "assistant"})
_UNSUPPORTED_ROLES = frozenset({"tool", "function"})


def _is_other_than(*harmless: object) -> Callable[[object], bool]:
    return lambda value: value is not None and value not in harmless


def _is_other_format(value: object) -> bool:
    return value is not None and not (isinstance(value, dict) and value.get("type") == "text")


def _has_other_than_text(value: object) -> bool:
    return bool(value) and value != ["text"]


# Each field that would change the answer, and when its value is more than a way to say "no".
_MEANINGFUL: dict[str, Callable[[object], bool]] = {
    "tools": bool,
    "functions": bool,
    "tool_choice": _is_other_than("none", "auto"),
    "function_call": _is_other_than("none", "auto"),
    "response_format": _is_other_format,
    "n": _is_other_than(1),
    "logprobs": bool,
    "top_logprobs": bool,
    "modalities": _has_other_than_text,
    "audio": bool,
    "web_search_options": _is_other_than(),
}


class ChatMessage(BaseModel):
    """One message, its content already joined to text."""

    model_config = ConfigDict(strict=True, frozen=True)

    role: Literal["developer", "system", "user", "assistant"]
    content: str


class StreamOptions(BaseModel):
    """How the stream ends."""

    model_config = ConfigDict(strict=True, frozen=True)

    include_usage: bool | None = None


def _normalise(value: object) -> object:
    """Reduce every message to role and text; refuse what is neither by its place."""
    if not isinstance(value, list):
        return value
    return [_message(message, f"messages[{index}]") for index, message in enumerate(value)]


def _message(message: object, place: str) -> dict[str, Any]:
    if not isinstance(message, dict):
        raise InvalidInputError(f"{place} must be an object", param=place)
    role = message.get("role")
    if isinstance(role, str) and role in _UNSUPPORTED_ROLES:
        raise UnsupportedInputError(f"{role} messages are not supported", param=f"{place}.role")
    if not isinstance(role, str) or role not in _ROLES:
        known = ", ".join(sorted(_ROLES))
        raise InvalidInputError(f"{place}.role must be one of {known}", param=f"{place}.role")
    for name in ("tool_calls", "function_call", "audio"):
        if message.get(name):
            raise UnsupportedInputError(f"{name} is not supported", param=f"{place}.{name}")
    return {"role": role, "content": _text(message.get("content"), role, f"{place}.content")}


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


class ChatBody(SamplingFields):
    """`POST /v1/chat/completions`."""

    model_config = ConfigDict(strict=True, frozen=True, extra="ignore")

    messages: Annotated[
        list[ChatMessage], BeforeValidator(_normalise), Field(min_length=1, max_length=MAX_MESSAGES)
    ]
    model: Annotated[str, StringConstraints(max_length=512)] | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    max_completion_tokens: int | None = Field(None, ge=1, le=2**31 - 1)
    max_tokens: int | None = Field(None, ge=1, le=2**31 - 1)

    def length_limit(self) -> int | None:
        """The newer name wins."""
        if self.max_completion_tokens is not None:
            return self.max_completion_tokens
        return self.max_tokens

    @property
    def includes_usage(self) -> bool:
        """Whether a stream ends with a chunk of usage."""
        return self.stream_options is not None and bool(self.stream_options.include_usage)

    def to_messages(self) -> tuple[InputMessage, ...]:
        """The conversation so far."""
        return tuple(InputMessage(role=m.role, text=m.content) for m in self.messages)


def parse_chat(body: dict[str, Any]) -> ChatBody:
    """Check a body; name the field that can't be honoured."""
    for name, matters in _MEANINGFUL.items():
        if matters(body.get(name)):
            raise UnsupportedInputError(f"{name} is not supported", param=name)
    return validate(ChatBody, body)
