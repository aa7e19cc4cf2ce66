"""What a completion without rows tells while it runs. Frozen values."""

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import cast

from model.messages import (
    ClaimReport,
    GenerationDelta,
    GenerationEvent,
    GenerationFinished,
    GenerationStarted,
)
from sessions.likelihoods import AnswerLikelihoods, Likelihoods, likelihoods_of
from sessions.messages import InputMessage
from sessions.reply_parser import ParsedReply, ReplyEvent, ReplyParser
from sessions.token_text import TokenText
from sessions.tools import Tool, ToolChoice
from sessions.truncation import Truncation
from sessions.types import SamplingParams


@dataclass(frozen=True, slots=True, kw_only=True)
class CompletionRequest:
    """A whole chat, and what its reply may be.

    `hint` names the conversation that it is, as far as its sender knows: where its computed state
    is looked for and left. `group` is the same for several replies to one chat.
    """

    messages: tuple[InputMessage, ...]
    params: SamplingParams
    tools: tuple[Tool, ...] = ()
    choice: ToolChoice = field(default_factory=ToolChoice)
    truncation: Truncation = Truncation.DISABLED
    hint: str | None = None
    group: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CompletionStarted:
    """The prompt has its blocks; so many messages were dropped from the chat to make it fit."""

    claim: ClaimReport
    num_dropped_messages: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplyPiece:
    """More of the reply. `likelihoods` has, for each event, those of the tokens that made it, if
    they were asked for and it is of the answer's text."""

    events: tuple[ReplyEvent, ...]
    likelihoods: tuple[Likelihoods, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CompletionFinished:
    """The end, and the whole reply in its parts."""

    finished: GenerationFinished
    reply: ParsedReply
    num_reasoning_tokens: int = 0


CompletionEvent = CompletionStarted | ReplyPiece | CompletionFinished


async def parse_generation(
    generated: AsyncIterator[GenerationEvent],
    parser: ReplyParser,
    unseen: Callable[[Sequence[int]], str],
    spell: Callable[[Sequence[int]], list[TokenText]],
    num_dropped_messages: int = 0,
) -> AsyncGenerator[CompletionEvent, None]:
    """Take a generation's text apart; `unseen` names the special tokens that no text shows."""
    num_reasoning, shares = 0, AnswerLikelihoods()
    async with aclosing(cast("AsyncGenerator[GenerationEvent, None]", generated)) as events:
        async for event in events:
            match event:
                case GenerationStarted(claim=claim):
                    yield CompletionStarted(claim=claim, num_dropped_messages=num_dropped_messages)
                case GenerationDelta():
                    was_reasoning = parser.is_reasoning
                    told = parser.feed(event.text + unseen(event.token_ids))
                    if was_reasoning or parser.is_reasoning:
                        num_reasoning += len(event.token_ids)
                    yield _piece(told, shares.share(likelihoods_of(event.logprobs, spell), told))
                case GenerationFinished():
                    if rest := parser.finish():
                        yield _piece(rest, shares.share((), rest))
                    yield CompletionFinished(
                        finished=event, reply=parser.reply, num_reasoning_tokens=num_reasoning
                    )


def _piece(events: Sequence[ReplyEvent], likelihoods: Sequence[Likelihoods]) -> ReplyPiece:
    return ReplyPiece(events=tuple(events), likelihoods=tuple(likelihoods))
