"""The items of conversations, as models: for `/openapi.json` alone (`app/item_object.py`)."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field


class Answer(BaseModel):
    """Nothing but what is named."""

    model_config = ConfigDict(extra="forbid")


class InputPart(Answer):
    """A part of what was put in."""

    type: Literal["input_text"]
    text: str


class LikelyToken(Answer):
    """A token and how likely it was; its text has replacement characters where it is no whole
    character, its bytes are exact."""

    token: str
    logprob: float
    bytes: list[int]


class TokenLogprob(LikelyToken):
    """A token of a reply's text, and those that would have been likelier or nearly so."""

    top_logprobs: list[LikelyToken]


class OutputPart(Answer):
    """A part that a reply is made of; log probabilities if they were asked for."""

    type: Literal["output_text"]
    text: str
    annotations: list[Any]
    logprobs: list[TokenLogprob]


class ReasoningPart(Answer):
    """A part of what a model thought."""

    type: Literal["reasoning_text"]
    text: str


class MessageItem(Answer):
    """A message."""

    id: str
    type: Literal["message"]
    role: Literal["user", "system", "developer", "assistant"]
    status: str
    content: list[Annotated[InputPart | OutputPart, Field(discriminator="type")]]


class ReasoningItem(Answer):
    """What a model thought before it answered."""

    id: str
    type: Literal["reasoning"]
    status: str
    summary: list[Any]
    content: list[ReasoningPart]


class CallItem(Answer):
    """A call that a model made."""

    id: str
    type: Literal["function_call"]
    call_id: str
    name: str
    arguments: str
    status: str


class CallOutputItem(Answer):
    """What a call returned."""

    id: str
    type: Literal["function_call_output"]
    call_id: str
    output: str
    status: str


class CompactionItem(Answer):
    """A summary that stands for what was said."""

    id: str
    type: Literal["compaction"]
    encrypted_content: str


AnyItem = Annotated[
    MessageItem | ReasoningItem | CallItem | CallOutputItem | CompactionItem,
    Field(discriminator="type"),
]
AnyPart = Annotated[OutputPart | ReasoningPart, Field(discriminator="type")]
