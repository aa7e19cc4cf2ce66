"""What a turn used and how long it took, from the engine's words to the session's. Pure."""

from model.messages import ClaimReport, GenerationFinished
from sessions.types import Timing, Usage


def to_usage(
    claim: ClaimReport, finished: GenerationFinished, *, reasoning_tokens: int = 0
) -> Usage:
    """A turn's tokens; what was not reused was computed, and is in the cache now."""
    return Usage(
        input_tokens=claim.num_prompt_tokens,
        cached_tokens=claim.num_reused,
        cache_write_tokens=claim.num_prompt_tokens - claim.num_reused,
        output_tokens=len(finished.token_ids),
        num_rows_computed=finished.num_rows_computed,
        claim=claim,
        reasoning_tokens=reasoning_tokens,
    )


def to_timing(finished: GenerationFinished, before_s: float, *, num_given: int = 0) -> Timing:
    """A turn's times; `before_s` passed between its submission and the engine's clock.

    `tokens_per_s` is the pace behind the first token; None for fewer than two. The `num_given`
    tokens that a reply began with, for it goes on where another was cut, took no time here.
    """
    first_s, num_tokens = finished.first_token_s, len(finished.token_ids) - num_given
    pace = None
    if first_s is not None and num_tokens > 1 and finished.total_s > first_s:
        pace = (num_tokens - 1) / (finished.total_s - first_s)
    return Timing(
        queue_s=before_s + finished.queue_s,
        first_token_s=before_s + first_s if first_s is not None else None,
        total_s=before_s + finished.total_s,
        tokens_per_s=pace,
        restore_s=finished.restore_s,
    )
