"""What clients of responses and conversations get, as models: for `/openapi.json` alone."""

from typing import Annotated, Any, Literal

from pydantic import Field

from app.answer_schemas import ErrorDetail, Paged, TurnEvents
from app.item_schemas import Answer, AnyItem, CompactionItem


class ItemList(Paged):
    """Items, one page."""

    data: list[AnyItem]


class DeletedResponseAnswer(Answer):
    """A response that is found no more."""

    id: str
    object: Literal["response"]
    deleted: Literal[True]


class InputTokensAnswer(Answer):
    """How long a prompt would be."""

    object: Literal["response.input_tokens"]
    input_tokens: int


class ConversationAnswer(Answer):
    """A conversation."""

    id: str
    object: Literal["conversation"]
    created_at: int
    metadata: dict[str, str]


class DeletedConversationAnswer(Answer):
    """A conversation that is gone."""

    id: str
    object: Literal["conversation.deleted"]
    deleted: Literal[True]


class LaneErrorFrame(Answer):
    """The answer to a frame that could not be honoured."""

    type: Literal["error"]
    status: int
    error: ErrorDetail
    stream_id: str | None = None


class SteerErrorDetail(Answer):
    """Why a running response took no input."""

    message: str
    type: Literal["invalid_request_error"]
    code: Literal["steering_not_supported"]


class NotSteeredFrame(Answer):
    """The answer to any steering."""

    type: Literal["response.steer.failed"]
    sequence_number: int
    steer: dict[str, object]
    error: SteerErrorDetail
    stream_id: str | None = None


class CompactedAnswer(Answer):
    """A conversation in short."""

    id: str
    object: Literal["response.compaction"]
    created_at: int
    output: list[CompactionItem]
    usage: dict[str, Any]


ResponseServerFrame = Annotated[
    TurnEvents | LaneErrorFrame | NotSteeredFrame, Field(discriminator="type")
]
