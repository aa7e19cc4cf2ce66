"""What clients send: REST bodies and websocket frames, checked whole.

These surfaces are ours, so they are strict: a field nobody knows is refused by name, for a
misspelt `temprature` that is silently ignored costs its sender an afternoon. What comes out is
in `app/representation.py`.
"""

from typing import Annotated, Any, Literal, get_args

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StringConstraints,
    TypeAdapter,
)

from app.parsing import validate_tagged
from app.sampling import SamplingFields
from sessions.errors import InvalidInputError, UnsupportedInputError
from sessions.types import (
    InputMessage,
    ReasoningPolicy,
    SamplingParams,
    Session,
    SessionChange,
    TurnId,
    TurnRequest,
)
from sessions.validation import (
    MAX_CLIENT_TURN_ID_CHARS,
    MAX_METADATA_ENTRIES,
    MAX_METADATA_KEY_CHARS,
    MAX_METADATA_VALUE_CHARS,
    MAX_TITLE_CHARS,
)

MAX_MESSAGES = 4096
MAX_NONCE = 256
MAX_TTL_S = 7 * 86400.0
MAX_PRIORITY = 10
MAX_DEADLINE_S = 60.0


def _without_nul(text: str) -> str:
    # PostgreSQL's text can't hold it, and a database must not decide what is a valid message.
    if "\0" in text:
        raise ValueError("the character U+0000 can't be stored")
    return text


def _plain(value: object) -> object:
    if isinstance(value, dict | list) or (isinstance(value, str) and len(value) > MAX_NONCE):
        raise ValueError(f"a number, or a text of at most {MAX_NONCE} characters")
    return value


def _text_of(content: object) -> object:
    """Join the text parts of a content list; refuse what is not text by name."""
    if not isinstance(content, list):
        return content
    texts = []
    for index, part in enumerate(content):
        kind = part.get("type") if isinstance(part, dict) else None
        if kind not in ("input_text", "output_text", "text"):
            if isinstance(kind, str) and kind.startswith(("input_", "refusal")):
                raise UnsupportedInputError(f"{kind[:64]} is not supported", param="input")
            raise ValueError(f"part {index} must be an input_text or output_text part")
        if not isinstance(part.get("text"), str):
            raise ValueError(f"part {index} has no text")
        texts.append(part["text"])
    return "".join(texts)


def _messages_of(value: object) -> object:
    """Take a string as one user message; refuse items that are no messages by name."""
    if isinstance(value, str):
        return [{"role": "user", "content": value}]
    if isinstance(value, list):
        for index, item in enumerate(value):
            kind = item.get("type", "message") if isinstance(item, dict) else "message"
            if kind != "message" and isinstance(kind, str):
                param = f"input[{index}]"
                raise UnsupportedInputError(f"{kind[:64]} items are not supported", param=param)
    return value


Text = Annotated[str, AfterValidator(_without_nul)]
Title = Annotated[Text, StringConstraints(max_length=MAX_TITLE_CHARS)]
ConversationRef = Annotated[str, StringConstraints(min_length=1, max_length=128)]
TurnRef = Annotated[str, StringConstraints(min_length=1, max_length=128)]
ClientTurnId = Annotated[Text, StringConstraints(min_length=1, max_length=MAX_CLIENT_TURN_ID_CHARS)]
EventId = Annotated[str, StringConstraints(max_length=256)]
Metadata = Annotated[
    dict[
        Annotated[Text, StringConstraints(max_length=MAX_METADATA_KEY_CHARS)],
        Annotated[Text, StringConstraints(max_length=MAX_METADATA_VALUE_CHARS)],
    ],
    Field(max_length=MAX_METADATA_ENTRIES),
]


class Strict(BaseModel):
    """No unknown field, no coercion."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class TextPart(BaseModel):
    """A part of a message, as the schema shows it; `_text_of` reads it, and takes more fields."""

    type: Literal["input_text", "output_text", "text"]
    text: str


class MessageBody(Strict):
    """One message; a Responses item as it comes back from us is one as well."""

    type: Literal["message"] = "message"
    id: str | None = None
    status: str | None = None
    role: Literal["user", "system", "developer", "assistant"]
    content: Annotated[Text, BeforeValidator(_text_of, json_schema_input_type=str | list[TextPart])]


class Sampled(Strict, SamplingFields):
    """What every request for a reply may say."""

    max_output_tokens: int | None = Field(None, ge=0, le=2**31 - 1)
    client_turn_id: ClientTurnId | None = None

    def length_limit(self) -> int | None:
        """Responses' name for the limit."""
        return self.max_output_tokens


class TurnFields(Sampled):
    """What a new turn is made of."""

    input: Annotated[
        list[MessageBody],
        BeforeValidator(_messages_of, json_schema_input_type=str | list[MessageBody]),
        Field(min_length=1, max_length=MAX_MESSAGES),
    ]
    parent: TurnRef | None = None
    metadata: Metadata = Field(default_factory=dict)

    def to_request(self, defaults: SamplingParams) -> TurnRequest:
        """Build the request; an explicit null parent starts a new root."""
        return TurnRequest(
            input=tuple(InputMessage(role=m.role, text=m.content) for m in self.input),
            params=self.to_params(defaults),
            client_turn_id=self.client_turn_id,
            parent=TurnId(self.parent) if self.parent is not None else None,
            parent_given="parent" in self.model_fields_set,
            metadata=self.metadata,
        )


class SamplingBody(Strict, SamplingFields):
    """How a session's replies are drawn where a turn names nothing."""

    max_output_tokens: int | None = Field(None, ge=0, le=2**31 - 1)

    def length_limit(self) -> int | None:
        """As a turn's."""
        return self.max_output_tokens

    def to_stored(self) -> dict[str, Any]:
        """What was sent, to be read again by `session_params`."""
        return self.model_dump(exclude_none=True)


def session_params(session: Session, defaults: SamplingParams) -> SamplingParams:
    """What applies to a session's turns where they name nothing."""
    return SamplingBody.model_validate(session.sampling).to_params(defaults)


class SessionBody(Strict):
    """`POST /v1/sessions`."""

    title: Title | None = None
    instructions: Text | None = None
    metadata: Metadata = Field(default_factory=dict)
    reasoning: Annotated[ReasoningPolicy, Field(strict=False)] = ReasoningPolicy.TEMPLATE
    sampling: SamplingBody | None = None
    pinned: bool = False
    listed: bool = True
    auto_title: bool = True
    ttl_s: float = Field(0.0, ge=0, le=MAX_TTL_S)
    priority: int = Field(0, ge=-MAX_PRIORITY, le=MAX_PRIORITY)


class SessionPatch(SessionBody):
    """`PATCH /v1/sessions/{id}`: what is absent stays as it is."""

    expected_revision: int | None = Field(None, ge=0)

    def to_change(self) -> SessionChange:
        """Build the change; a null takes a title, instructions or sampling away."""
        names = {
            "pinned": "is_pinned",
            "listed": "is_listed",
            "auto_title": "is_auto_titled",
            "ttl_s": "retain_s",
        }
        named = self.model_fields_set - {"expected_revision"}
        return SessionChange(
            named=frozenset(names.get(name, name) for name in named),
            title=self.title,
            instructions=self.instructions,
            metadata=self.metadata,
            reasoning=self.reasoning,
            sampling={} if self.sampling is None else self.sampling.to_stored(),
            is_pinned=self.pinned,
            is_listed=self.listed,
            is_auto_titled=self.auto_title,
            retain_s=self.ttl_s,
            priority=self.priority,
        )


class TurnBody(TurnFields):
    """`POST /v1/sessions/{id}/turns`."""

    stream: bool = False


class RegenerateBody(Sampled):
    """`POST …/turns/{turn}/regenerate`."""

    stream: bool = False


class ContinueFields(Strict):
    """What a continued reply may be told; the rest is as it was."""

    max_output_tokens: int | None = Field(None, ge=1, le=2**31 - 1)
    client_turn_id: ClientTurnId | None = None


def more_tokens(session: Session, body: ContinueFields, defaults: SamplingParams) -> int | None:
    """How many tokens a continued reply may still have."""
    if body.max_output_tokens is not None:
        return body.max_output_tokens
    return session_params(session, defaults).max_output_tokens


class ContinueBody(ContinueFields):
    """`POST …/turns/{turn}/continue`."""

    stream: bool = False


class HeadBody(Strict):
    """`POST /v1/sessions/{id}/head`."""

    turn: TurnRef | None
    expected_revision: int | None = Field(None, ge=0)


class ForkBody(Strict):
    """`POST /v1/sessions/{id}/fork`."""

    at: TurnRef | None = None
    title: Title | None = None


class WarmBody(Strict):
    """`POST /v1/sessions/{id}/warm`."""

    deadline_s: float = Field(5.0, gt=0, le=MAX_DEADLINE_S)


class ParkBody(Strict):
    """`POST /v1/sessions/{id}/park`."""

    tier: Literal["cpu", "disk"]


class EmptyBody(Strict):
    """A call that takes nothing."""


class CreateFrame(TurnFields):
    """A new turn of a conversation."""

    type: Literal["response.create"]
    conversation: ConversationRef
    event_id: EventId | None = None


class RegenerateFrame(Sampled):
    """A new reply to the input of an ended turn."""

    type: Literal["response.regenerate"]
    response_id: TurnRef
    event_id: EventId | None = None


class ContinueFrame(ContinueFields):
    """Go on with a reply that was cut."""

    type: Literal["response.continue"]
    response_id: TurnRef
    event_id: EventId | None = None


class CancelFrame(Strict):
    """Stop a turn, keep what it has."""

    type: Literal["response.cancel"]
    response_id: TurnRef
    event_id: EventId | None = None


class ResumeFrame(Strict):
    """Read a turn's events from a cursor on."""

    type: Literal["response.resume"]
    response_id: TurnRef
    starting_after: int = Field(-1, ge=-1, le=2**53)
    event_id: EventId | None = None


class SubscribeFrame(Strict):
    """Hear what happens to a session from a revision on, whoever does it; null: from now on."""

    type: Literal["session.subscribe"]
    conversation: ConversationRef
    after: int | None = Field(None, ge=0, le=2**31 - 1)
    event_id: EventId | None = None


class UnsubscribeFrame(Strict):
    """Hear no more of a session."""

    type: Literal["session.unsubscribe"]
    conversation: ConversationRef
    event_id: EventId | None = None


class PingFrame(Strict):
    """Ask whether anybody is there."""

    type: Literal["ping"]
    nonce: Annotated[object, AfterValidator(_plain)] = None
    event_id: EventId | None = None


StreamFrame = CreateFrame | RegenerateFrame | ContinueFrame | ResumeFrame
"""A frame that is answered by a turn's events."""

Frame = StreamFrame | CancelFrame | SubscribeFrame | UnsubscribeFrame | PingFrame

FRAME_TYPES = (
    "response.create",
    "response.regenerate",
    "response.continue",
    "response.cancel",
    "response.resume",
    "session.subscribe",
    "session.unsubscribe",
    "ping",
)

_FRAME: TypeAdapter[Frame] = TypeAdapter(Annotated[Frame, Field(discriminator="type")])


def parse_frame(value: object) -> Frame:
    """Check one frame."""
    if not isinstance(value, dict):
        raise InvalidInputError("a frame must be a JSON object")
    if value.get("type") not in FRAME_TYPES:
        known = ", ".join(FRAME_TYPES)
        raise InvalidInputError(f"type must be one of {known}", param="type")
    return validate_tagged(_FRAME, value, get_args(Frame))


def event_id_of(value: object) -> str | None:
    """Find the sender's id of a frame that may otherwise be wrong."""
    event_id = value.get("event_id") if isinstance(value, dict) else None
    return event_id if isinstance(event_id, str) and len(event_id) <= 256 else None
