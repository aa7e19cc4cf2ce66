"""The body of a response: `POST /v1/responses`, and what a websocket's `response.create` has.

Lenient where it can be, for clients send new fields every month: what is unknown is ignored.
Strict where silence would lie: a field whose loss would change the answer's meaning is refused
by its name.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Annotated, Any, Final, Literal

import orjson
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints

from app.openai.echo import whole_choice, whole_reasoning, whole_text, whole_tools
from app.openai.foreign_fields import (
    Matters,
    is_other_than,
    refuse_fields,
    refuse_foreign_fields,
)
from app.openai.input_items import MAX_ITEMS
from app.parsing import validate
from app.protocol import ConversationRef, Metadata, Text, TurnRef
from app.sampling import SamplingFields
from sessions.errors import InvalidInputError, UnsupportedInputError
from sessions.types import SamplingParams

Name = Annotated[str, StringConstraints(max_length=512)]
Label = Annotated[Text, StringConstraints(max_length=512)]
Json = dict[str, Any]

MAX_INCLUDES: Final = 32
MAX_SHOWN_BYTES: Final = 262_144
LOGPROBS: Final = "message.output_text.logprobs"


# Each field that would change the answer, and when its value is more than a way to say "no".
_MEANINGFUL: Final[dict[str, Matters]] = {
    "prompt": bool,
    "modalities": is_other_than([], ["text"]),
    "audio": bool,
}

# What chat completions call it: ignored, a limit would be lost and a conversation left out.
_CHAT_NAMES: Final = {
    "max_tokens": "max_output_tokens",
    "max_completion_tokens": "max_output_tokens",
    "messages": "input",
}

# What is shown again in full, however short it was said.
_WHOLE: Final[dict[str, Callable[[Any], Any]]] = {
    "reasoning": whole_reasoning,
    "text": whole_text,
    "tool_choice": whole_choice,
    "tools": whole_tools,
}


class Lenient(BaseModel):
    """Unknown fields are ignored; those that are known are checked."""

    model_config = ConfigDict(strict=True, frozen=True, extra="ignore")


class ConversationIn(Lenient):
    """A conversation, as an object."""

    id: ConversationRef


def _id_of(value: str | ConversationIn) -> str | ConversationIn:
    return value.id if isinstance(value, ConversationIn) else value


class Compaction(Lenient):
    """When a conversation is summed up before it goes on: with more tokens than this."""

    type: Literal["compaction"]
    compact_threshold: int | None = Field(None, ge=1, le=2**31 - 1)


class CacheOptions(Lenient):
    """Which response the prompt is to be compared with; nothing else can be chosen here."""

    comparison_response_id: Label | None = None


class InputBody(Lenient):
    """What a prompt is made of."""

    model: Name | None = None
    input: str | Annotated[list[Json], Field(max_length=MAX_ITEMS)] | None = None
    instructions: Text | None = None
    previous_response_id: TurnRef | None = None
    conversation: Annotated[str | ConversationIn, AfterValidator(_id_of)] | None = None
    tools: Annotated[list[Json], Field(max_length=128)] | None = None
    tool_choice: Name | Json | None = None
    parallel_tool_calls: bool | None = None
    text: Json | None = None
    reasoning: Json | None = None
    truncation: Literal["auto", "disabled"] | None = None

    @property
    def conversation_id(self) -> str | None:
        """The conversation's id, however it was named."""
        assert not isinstance(self.conversation, ConversationIn), "the validator took its id"
        return self.conversation


class ResponseBody(InputBody, SamplingFields):
    """`POST /v1/responses`."""

    store: bool | None = None
    stream: bool | None = None
    background: bool | None = None
    metadata: Metadata | None = None
    max_output_tokens: int | None = Field(None, ge=1, le=2**31 - 1)
    max_tool_calls: int | None = Field(None, ge=0, le=2**31 - 1)
    top_logprobs: int | None = Field(None, ge=0, le=20)
    include: Annotated[list[Name], Field(max_length=MAX_INCLUDES)] | None = None
    prompt_cache_key: Label | None = None
    prompt_cache_options: CacheOptions | None = None
    safety_identifier: Label | None = None
    user: Label | None = None
    service_tier: Name | None = None
    generate: bool | None = None
    context_management: Annotated[list[Compaction], Field(max_length=1)] | None = None

    def length_limit(self) -> int | None:
        """The reply's; none of a state that is only prepared."""
        return self.max_output_tokens if self.has_reply else 0

    def to_params(self, defaults: SamplingParams) -> SamplingParams:
        """Lay what was sent over the defaults; log probabilities are asked for in two ways."""
        params = super().to_params(defaults)
        if not self.has_reply or not (self.top_logprobs or LOGPROBS in (self.include or ())):
            return params
        return replace(params, num_logprobs=self.top_logprobs or 0)

    @property
    def has_reply(self) -> bool:
        """Whether a reply is wanted, and not only the state that one would begin with."""
        return self.generate is not False

    @property
    def compact_threshold(self) -> int | None:
        """With more tokens than this, the conversation is summed up first."""
        return self.context_management[0].compact_threshold if self.context_management else None

    @property
    def is_stored(self) -> bool:
        """Whether the response can be found later."""
        return self.store is not False

    @property
    def is_background(self) -> bool:
        """Whether the response goes on without whoever asked for it."""
        return self.background is True

    def shown(self) -> Json:
        """What the response shows again, of what was said."""
        names = (
            "background",
            "max_tool_calls",
            "parallel_tool_calls",
            "prompt_cache_key",
            "reasoning",
            "safety_identifier",
            "store",
            "text",
            "tool_choice",
            "tools",
            "top_logprobs",
            "truncation",
            "user",
        )
        said = {name: value for name in names if (value := getattr(self, name)) is not None}
        return {name: _WHOLE[name](v) if name in _WHOLE else v for name, v in said.items()}


def parse_response(body: Json) -> ResponseBody:
    """Check a body; name the field that can't be honoured."""
    _refuse(body)
    parsed = validate(ResponseBody, body)
    _check_place(parsed)
    _check_shown(parsed.shown())
    if parsed.is_background and not parsed.is_stored:
        raise InvalidInputError("a response in the background must be stored", param="background")
    return parsed


def parse_input(body: Json) -> InputBody:
    """Check the body of a call that is only about a prompt."""
    _refuse(body)
    parsed = validate(InputBody, body)
    _check_place(parsed)
    return parsed


def _refuse(body: Json) -> None:
    refuse_fields(body, _MEANINGFUL)
    for name, here in _CHAT_NAMES.items():
        if body.get(name) is not None:
            raise UnsupportedInputError(f"{name} is not supported: here it is {here}", param=name)
    refuse_foreign_fields(body, form="text.format", length="max_output_tokens")


def _check_shown(shown: Json) -> None:
    """Refuse what would be shown again and can't be stored, or is more than a request needs."""
    for name, value in shown.items():
        if len(orjson.dumps(value)) > MAX_SHOWN_BYTES:
            raise InvalidInputError(f"{name} has more than {MAX_SHOWN_BYTES} bytes", param=name)
        if _has_nul(value):
            raise InvalidInputError("the character U+0000 can't be stored", param=name)


def _has_nul(value: object) -> bool:
    if isinstance(value, str):
        return "\0" in value
    if isinstance(value, dict):
        return any(_has_nul(part) for pair in value.items() for part in pair)
    return isinstance(value, list) and any(map(_has_nul, value))


def _check_place(body: InputBody) -> None:
    if body.previous_response_id is not None and body.conversation is not None:
        raise InvalidInputError(
            "previous_response_id and conversation exclude each other",
            param="previous_response_id",
        )
