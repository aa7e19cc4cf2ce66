"""An engine core driven in this process, one generation at a time, without a server around it."""

import time
from collections.abc import Sequence
from dataclasses import dataclass

from model.config import SamplingParams
from model.core import EngineCore
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


def run(core: EngineCore, prompt: Prompt, num_reply_tokens: int) -> Measured:
    """Generate greedily to the end. Raises whatever the core does."""
    request = GenerationRequest(
        request_id=prompt.name,
        token_ids=tuple(prompt.token_ids),
        params=SamplingParams(temperature=0.0, max_output_tokens=num_reply_tokens, ignore_eos=True),
        conversation_id=prompt.conversation,
        parent_turn_id=prompt.parent,
        origin_conversation_id=prompt.origin,
        num_known_tokens=prompt.num_known,
    )
    began = time.perf_counter()
    core.submit(request)
    claim: ClaimReport | None = None
    token_ids: list[int] = []
    first_token_s = 0.0
    while core.has_work:
        for output in core.step():
            if isinstance(output.event, Exception):
                raise output.event
            if isinstance(output.event, GenerationStarted):
                claim = output.event.claim
            elif isinstance(output.event, GenerationDelta):
                first_token_s = first_token_s or time.perf_counter() - began
                token_ids += output.event.token_ids
    assert claim is not None
    return Measured(claim, tuple(token_ids), first_token_s, time.perf_counter() - began)
