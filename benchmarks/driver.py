"""An engine core driven in this process, without a server around it."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from model.config import SamplingParams
from model.core import EngineCore, Output
from model.messages import ClaimReport, GenerationDelta, GenerationRequest, GenerationStarted


@dataclass(frozen=True, slots=True)
class Measured:
    """One generation: what was reused, what came out, and when the first token did."""

    claim: ClaimReport
    token_ids: tuple[int, ...]
    first_token_s: float
    total_s: float


class RawTokenizer:
    """Ids that mean nothing: each is written as a number."""

    def decode(self, token_ids: list[int]) -> str:
        """One word a token."""
        return "".join(f"{i} " for i in token_ids)

    def encode(self, text: str) -> list[int]:
        """The inverse of `decode`."""
        return [int(word) for word in text.split()]


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """A turn's whole history and new tokens, and whose table it continues."""

    name: str
    token_ids: Sequence[int]
    conversation: str = "c"
    parent: str | None = None
    origin: str | None = None
    num_known: int = 0


@dataclass(slots=True)
class _Going:
    """A generation on its way."""

    claim: ClaimReport | None = None
    token_ids: list[int] = field(default_factory=list)
    first_token_s: float = 0.0
    total_s: float = 0.0


def run(core: EngineCore, prompt: Prompt, num_reply_tokens: int) -> Measured:
    """Generate greedily to the end. Raises whatever the core does."""
    (result,) = run_all(core, [prompt], num_reply_tokens)
    return result


def run_all(
    core: EngineCore, prompts: Sequence[Prompt], num_reply_tokens: int
) -> tuple[Measured, ...]:
    """Generate all of them greedily, batched; the times are counted from the first step."""
    going = {prompt.name: _Going() for prompt in prompts}
    for prompt in prompts:
        core.submit(_request(prompt, num_reply_tokens))
    began = time.perf_counter()
    while core.has_work:
        for output in core.step():
            _take(going[output.request_id], output, time.perf_counter() - began)
    return tuple(_measured(going[prompt.name]) for prompt in prompts)


def _request(prompt: Prompt, num_reply_tokens: int) -> GenerationRequest:
    return GenerationRequest(
        request_id=prompt.name,
        token_ids=tuple(prompt.token_ids),
        params=SamplingParams(temperature=0.0, max_output_tokens=num_reply_tokens, ignore_eos=True),
        conversation_id=prompt.conversation,
        parent_turn_id=prompt.parent,
        origin_conversation_id=prompt.origin,
        num_known_tokens=prompt.num_known,
    )


def _take(going: _Going, output: Output, elapsed_s: float) -> None:
    event = output.event
    if isinstance(event, Exception):
        raise event
    if isinstance(event, GenerationStarted):
        going.claim = event.claim
    elif isinstance(event, GenerationDelta):
        going.first_token_s = going.first_token_s or elapsed_s
        going.token_ids += event.token_ids
    going.total_s = elapsed_s


def _measured(going: _Going) -> Measured:
    assert going.claim is not None
    return Measured(going.claim, tuple(going.token_ids), going.first_token_s, going.total_s)
