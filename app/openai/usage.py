"""What a completion used, and what became of the cache: computed rows, and no guesses."""

from collections.abc import Sequence
from typing import Any, Final

from model.messages import ClaimReport, MissReason
from sessions.completion_events import CompletionFinished

Json = dict[str, Any]

# OpenAI's words for a miss, where it has one.
_MISSES: Final = {
    MissReason.DIVERGED: "input_changed",
    MissReason.FINGERPRINT_CHANGED: "model_changed",
}


def usage_of(claims: Sequence[ClaimReport], ends: Sequence[CompletionFinished]) -> Json:
    """Build chat's usage: of each prompt, as its first reply claimed it, and of all replies.

    The cached and the written tokens are parts of the prompt's.
    """
    num_prompt = sum(claim.num_prompt_tokens for claim in claims)
    num_reply = sum(len(end.finished.token_ids) for end in ends)
    return {
        "prompt_tokens": num_prompt,
        "completion_tokens": num_reply,
        "total_tokens": num_prompt + num_reply,
        "prompt_tokens_details": {
            "cached_tokens": sum(claim.num_reused for claim in claims),
            "cache_write_tokens": sum(claim.computed for claim in claims),
            "audio_tokens": 0,
        },
        "completion_tokens_details": {
            "reasoning_tokens": sum(end.num_reasoning_tokens for end in ends),
            "audio_tokens": 0,
            "accepted_prediction_tokens": 0,
            "rejected_prediction_tokens": 0,
        },
    }


def cache_diagnostics(claim: ClaimReport) -> Json:
    """Say what became of the cache; `splice_reason` is our own word for it."""
    ours: Json = {
        "cache_missed_tokens": claim.computed,
        "comparison_reusable_tokens": claim.num_reused,
        "splice_reason": None if claim.reason is None else str(claim.reason),
        "splice_tiers": {
            "device": claim.from_device,
            "cpu": claim.from_cpu,
            "disk": claim.from_disk,
        },
    }
    if claim.reason is None:
        return {"type": "cache_hit", **ours}
    # Typed clients know no other words than OpenAI's.
    if claim.reason is MissReason.NEW:
        return {"type": "comparison_response_not_found", **ours}
    if claim.reason in _MISSES:
        return {"type": "cache_miss", "reason": _MISSES[claim.reason], **ours}
    return {"type": "unavailable", **ours}
