"""An engine core driven in this process, without a server around it."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from model.config import SamplingParams
from model.core import EngineCore
from model.errors import ModelError
from model.messages import (
    ClaimReport,
    GenerationDelta,
    GenerationEvent,
    GenerationRequest,
    GenerationStarted,
)


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


def run(core: EngineCore, prompt: Prompt, num_reply_tokens: int) -> Measured:
    """Generate greedily to the end. Raises whatever the core does."""
    (measured,) = run_together(core, [prompt], num_reply_tokens)
    return measured


def run_together(
    core: EngineCore, prompts: Sequence[Prompt], num_reply_tokens: int
) -> list[Measured]:
    """Generate for all prompts at once, each to its end; in the order of the prompts."""
    began = time.perf_counter()
    running = {prompt.name: _Running() for prompt in prompts}
    for prompt in prompts:
        core.submit(_request(prompt, num_reply_tokens))
    while core.has_work:
        for output in core.step():
            running[output.request_id].take(output.event, time.perf_counter() - began)
    return [running[prompt.name].measured() for prompt in prompts]


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


@dataclass(slots=True)
class _Running:
    """A generation so far; its times count from when all were submitted."""

    claim: ClaimReport | None = None
    token_ids: list[int] = field(default_factory=list)
    first_token_s: float = 0.0
    total_s: float = 0.0

    def take(self, event: GenerationEvent | ModelError, now_s: float) -> None:
        if isinstance(event, ModelError):
            raise event
        if isinstance(event, GenerationStarted):
            self.claim = event.claim
        elif isinstance(event, GenerationDelta):
            self.first_token_s = self.first_token_s or now_s
            self.token_ids += event.token_ids
        self.total_s = now_s

    def measured(self) -> Measured:
        assert self.claim is not None
        return Measured(self.claim, tuple(self.token_ids), self.first_token_s, self.total_s)
