"""What clients get, as models: for `/openapi.json` alone.

`app/representation.py` builds the values; a test holds both against each other.
"""

from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field

from app.item_schemas import Answer, AnyItem, AnyPart, TokenLogprob


class ErrorDetail(Answer):
    """What went wrong; `code` is stable."""

    message: str
    type: Literal["invalid_request_error", "server_error"]
    param: str | None
    code: str


class ErrorAnswer(Answer):
    """OpenAI's error body."""

    error: ErrorDetail


class ResidencyAnswer(Answer):
    """Where a session's state is: the quickest tier that has all of it; `used_at` in seconds."""

    tier: Literal["device", "cpu", "disk"]
    stored_in: list[Literal["cpu", "disk"]]
    num_tokens: int
    num_bytes: int
    used_at: int


class SessionAnswer(Answer):
    """A session. Later versions add fields."""

    model_config = ConfigDict(extra="allow")

    id: str
    object: Literal["session"]
    title: str | None
    instructions: str | None
    model: str
    model_state: Literal["loaded", "other_model", "fingerprint_changed"] | None
    reasoning: str
    metadata: dict[str, str]
    sampling: dict[str, Any]
    pinned: bool
    listed: bool
    auto_title: bool
    ttl_s: float
    priority: int
    kv: ResidencyAnswer | None
    active: list[str]
    head: str | None
    forked_from: str | None
    revision: int
    created_at: int
    updated_at: int


class DeletedAnswer(Answer):
    """A session that is gone."""

    id: str
    object: Literal["session.deleted"]
    deleted: Literal[True]
    undo_s: float


class Reused(Answer):
    """Where the prompt's tokens came from; `reason` says why no more of them were reused."""

    reused: int
    device: int
    cpu: int
    disk: int
    computed: int
    reason: str | None
    diverged_at: int | None


class MetricsAnswer(Answer):
    """How a turn went; times in milliseconds."""

    ttft_ms: float | None
    queue_ms: float
    total_ms: float
    tokens_per_second: float | None
    input_tokens: int
    output_tokens: int
    kv: Reused
    rows_computed: int


class Retryable(Answer):
    """Why a turn failed."""

    code: str
    message: str
    retryable: bool


class TurnAnswer(Answer):
    """A turn: OpenAI's response object, ours under `splice`. Later versions add fields."""

    model_config = ConfigDict(extra="allow")

    id: str
    object: Literal["response"]
    created_at: int
    completed_at: int | None
    status: Literal["queued", "in_progress", "completed", "incomplete", "cancelled", "failed"]
    error: Retryable | None
    incomplete_details: dict[str, str] | None
    max_output_tokens: int | None
    model: str
    previous_response_id: str | None
    conversation: dict[str, str] | None
    input: list[AnyItem]
    output: list[AnyItem]
    temperature: float
    top_p: float
    metadata: dict[str, str]
    usage: dict[str, Any] | None
    splice: dict[str, Any]


class Paged(Answer):
    """OpenAI's list."""

    object: Literal["list"]
    first_id: str | None
    last_id: str | None
    has_more: bool


class SessionList(Paged):
    """Sessions, one page."""

    data: list[SessionAnswer]


class TurnList(Paged):
    """Turns."""

    data: list[TurnAnswer]


class HitConversation(Answer):
    """Where something was found."""

    id: str
    title: str | None


class HitAnswer(Answer):
    """A result of a search; `highlights` are places in the snippet, first and one behind."""

    id: str
    object: Literal["search.result"]
    kind: Literal["message", "title"]
    conversation: HitConversation
    response_id: str | None
    role: str | None
    snippet: str
    highlights: list[list[int]]


class HitList(Paged):
    """Results of a search."""

    data: list[HitAnswer]


class TicketAnswer(Answer):
    """What a browser opens the websocket with."""

    object: Literal["ws.ticket"]
    ticket: str
    expires_at: int


class NumberedEvent(Answer):
    """`sequence_number` counts from 0 without a gap; on a websocket the place is beside it."""

    sequence_number: int
    conversation: str | None = None
    response_id: str | None = None
    stream_id: str | None = None


class ResponseEvent(NumberedEvent):
    """The turn as it begins and as it ends."""

    type: Literal[
        "response.created",
        "response.queued",
        "response.in_progress",
        "response.completed",
        "response.incomplete",
        "response.failed",
    ]
    response: TurnAnswer


class ItemEvent(NumberedEvent):
    """The reply's item begins or ends."""

    type: Literal["response.output_item.added", "response.output_item.done"]
    output_index: int
    item: AnyItem


class InItem(NumberedEvent):
    """Where in the reply it is."""

    item_id: str
    output_index: int
    content_index: int


class PartEvent(InItem):
    """The reply's part begins or ends."""

    type: Literal["response.content_part.added", "response.content_part.done"]
    part: AnyPart


class DeltaEvent(InItem):
    """More of the text; never empty."""

    type: Literal["response.output_text.delta"]
    delta: str
    logprobs: list[TokenLogprob]


class ReasoningDeltaEvent(InItem):
    """More of what the model thinks."""

    type: Literal["response.reasoning_text.delta"]
    delta: str


class ReasoningTextEvent(InItem):
    """All that the model thought."""

    type: Literal["response.reasoning_text.done"]
    text: str


class InCall(NumberedEvent):
    """Which call it is."""

    item_id: str
    output_index: int


class ArgumentsDeltaEvent(InCall):
    """More of a call's arguments."""

    type: Literal["response.function_call_arguments.delta"]
    delta: str


class ArgumentsEvent(InCall):
    """A call's whole arguments."""

    type: Literal["response.function_call_arguments.done"]
    arguments: str
    name: str


class TextEvent(InItem):
    """The whole text."""

    type: Literal["response.output_text.done"]
    text: str
    logprobs: list[TokenLogprob]


class MetricsEvent(NumberedEvent, MetricsAnswer):
    """How the turn went, before its last event."""

    type: Literal["splice:metrics"]


class ErrorEvent(Answer):
    """An error in a stream that has begun, or the answer to a frame."""

    type: Literal["error"]
    status: int
    error: ErrorDetail
    event_id: str | None = None
    conversation: str | None = None


class SessionStateFrame(Answer):
    """Where a subscription stands; with `resync`, what happened before can't be told."""

    type: Literal["splice:session.state"]
    conversation: str
    revision: int
    resync: bool
    session: SessionAnswer | None
    event_id: str | None = None


class SessionChangedFrame(Answer):
    """A change of a session; `session` is how it is now, for the newest change."""

    type: Literal["splice:session.changed"]
    conversation: str
    revision: int
    change: Literal["turn_started", "turn_ended", "head_moved", "updated", "deleted", "restored"]
    response_id: str | None
    status: str | None
    fields: list[str]
    session: SessionAnswer | None


class PongFrame(Answer):
    """The answer to a ping."""

    type: Literal["pong"]
    nonce: Any = None


TurnEvents = (
    ResponseEvent
    | ItemEvent
    | PartEvent
    | DeltaEvent
    | TextEvent
    | ReasoningDeltaEvent
    | ReasoningTextEvent
    | ArgumentsDeltaEvent
    | ArgumentsEvent
    | MetricsEvent
)
TurnEventAnswer = Annotated[TurnEvents | ErrorEvent, Field(discriminator="type")]
ServerFrame = Annotated[
    TurnEvents | ErrorEvent | SessionStateFrame | SessionChangedFrame | PongFrame,
    Field(discriminator="type"),
]
