"""The body of a chat completion.

Lenient where it can be, for clients send new fields every month: what is unknown is ignored.
Strict where silence would lie: a field whose loss would change the answer's meaning is refused
by its name.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, StringConstraints

from app.openai.chat_form import parse_choice, parse_format, parse_tools
from app.openai.chat_messages import ChatMessage, normalise_messages
from app.openai.foreign_fields import (
    Matters,
    is_other_than,
    refuse_fields,
    refuse_foreign_fields,
)
from app.parsing import validate
from app.protocol import MAX_MESSAGES
from app.sampling import SamplingFields
from sessions.completion_events import CompletionRequest
from sessions.errors import InvalidInputError
from sessions.truncation import Truncation
from sessions.types import SamplingParams
from sessions.validation import check_metadata

MAX_CHOICES = 16
_MAX_HINT_CHARS = 512

# Where a client says which conversation it is that it sends again, first come first served; the
# body's own `prompt_cache_key` goes before them all.
_HINTS = ("x-session-id", "x-conversation-id", "x-openwebui-chat-id", "session-id")


def _has_other_than_text(value: object) -> bool:
    return bool(value) and value != ["text"]


# Each field that would change the answer, and when its value is more than a way to say "no".
_MEANINGFUL: dict[str, Matters] = {
    "functions": bool,
    "function_call": is_other_than("none", "auto"),
    "modalities": _has_other_than_text,
    "audio": bool,
    "web_search_options": is_other_than(),
}


class StreamOptions(BaseModel):
    """How the stream ends."""

    model_config = ConfigDict(strict=True, frozen=True)

    include_usage: bool | None = None


class ChatBody(SamplingFields):
    """`POST /v1/chat/completions`."""

    model_config = ConfigDict(strict=True, frozen=True, extra="ignore")

    messages: Annotated[
        list[ChatMessage],
        BeforeValidator(normalise_messages),
        Field(min_length=1, max_length=MAX_MESSAGES),
    ]
    model: Annotated[str, StringConstraints(max_length=512)] | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    max_completion_tokens: int | None = Field(None, ge=1, le=2**31 - 1)
    max_tokens: int | None = Field(None, ge=1, le=2**31 - 1)
    n: int | None = Field(None, ge=1, le=MAX_CHOICES)
    logprobs: bool | None = None
    top_logprobs: int | None = Field(None, ge=0, le=20)
    tools: list[dict[str, Any]] | None = None
    tool_choice: str | dict[str, Any] | None = None
    parallel_tool_calls: bool | None = None
    response_format: dict[str, Any] | None = None
    metadata: dict[str, str] | None = None
    prompt_cache_key: Annotated[str, StringConstraints(max_length=_MAX_HINT_CHARS)] | None = None
    truncation: Truncation | None = Field(None, strict=False)

    def length_limit(self) -> int | None:
        """The newer name wins."""
        if self.max_completion_tokens is not None:
            return self.max_completion_tokens
        return self.max_tokens

    @property
    def includes_usage(self) -> bool:
        """Whether a stream ends with a chunk of usage."""
        return self.stream_options is not None and bool(self.stream_options.include_usage)

    def to_request(
        self, defaults: SamplingParams, headers: Mapping[str, str], group: str
    ) -> CompletionRequest:
        """What sessions are asked. Raises InvalidInputError for tools, a choice or a form that
        can't be."""
        params = self.to_params(defaults)
        if self.logprobs:
            params = replace(params, num_logprobs=self.top_logprobs or 0)
        tools = parse_tools(self.tools)
        return CompletionRequest(
            messages=tuple(message.to_message() for message in self.messages),
            params=replace(params, grammar=parse_format(self.response_format)),
            tools=tools,
            choice=parse_choice(
                self.tool_choice, has_tools=bool(tools), is_parallel=self.parallel_tool_calls
            ),
            truncation=self.truncation or Truncation.DISABLED,
            hint=self.prompt_cache_key or hint_of(headers),
            group=group,
        )


def hint_of(headers: Mapping[str, str]) -> str | None:
    """Which conversation a request's headers say that it is about."""
    hints = (headers.get(name, "").strip() for name in _HINTS)
    return next((hint[:_MAX_HINT_CHARS] for hint in hints if hint), None)


def parse_chat(body: dict[str, Any]) -> ChatBody:
    """Check a body; name the field that can't be honoured."""
    refuse_fields(body, _MEANINGFUL)
    refuse_foreign_fields(body, form="response_format", length="max_completion_tokens")
    parsed = validate(ChatBody, body)
    if parsed.top_logprobs is not None and parsed.top_logprobs > 0 and not parsed.logprobs:
        raise InvalidInputError("top_logprobs needs logprobs to be true", param="top_logprobs")
    check_metadata(parsed.metadata or {})
    return parsed
