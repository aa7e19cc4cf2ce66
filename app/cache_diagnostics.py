"""What became of the cache, in OpenAI's words where it has one, and in ours beside them. Pure."""

from collections.abc import Mapping
from typing import Any, Final

from model.messages import ClaimReport, MissReason
from sessions.comparison import Change, Comparison

Json = dict[str, Any]

_WORDS: Final[Mapping[Change, str]] = {
    Change.MODEL: "model_changed",
    Change.TOOLS: "tools_changed",
    Change.COMPACTED: "context_compacted",
    Change.INPUT: "input_changed",
}
_CHANGES: Final[Mapping[MissReason, Change]] = {
    MissReason.DIVERGED: Change.INPUT,
    MissReason.FINGERPRINT_CHANGED: Change.MODEL,
}
_HIT: Final[Json] = {"type": "cache_hit"}
_NOT_FOUND: Final[Json] = {"type": "comparison_response_not_found"}
# Typed clients know no other words than OpenAI's; `splice_reason` is ours.
_UNAVAILABLE: Final[Json] = {"type": "unavailable"}


def cache_diagnostics(
    claim: ClaimReport, comparison: Comparison | None = None, parent_id: str | None = None
) -> Json:
    """Say it of a prompt, compared with another turn's or else with what it follows."""
    counted = None if comparison is None else comparison.num_shared
    ours: Json = {
        "cache_missed_tokens": claim.computed,
        "comparison_reusable_tokens": claim.num_reused,
        "comparison_response_id": parent_id if comparison is None else comparison.turn_id,
        "splice_reason": None if claim.reason is None else str(claim.reason),
        "splice_tiers": {
            "device": claim.from_device,
            "cpu": claim.from_cpu,
            "disk": claim.from_disk,
        },
    }
    if comparison is None or counted is None:
        return {**_found(claim, comparison, parent_id), **ours}
    ours["cache_missed_tokens"] = claim.num_prompt_tokens - counted
    ours["comparison_reusable_tokens"] = counted
    return {**_compared(claim, comparison.change, counted), **ours}


def _found(claim: ClaimReport, comparison: Comparison | None, parent_id: str | None) -> Json:
    """By what the engine found of what the prompt follows."""
    if comparison is not None and not comparison.is_found:
        return _NOT_FOUND
    if claim.reason is None:
        return _HIT
    change = None if comparison is None else comparison.change
    if change is not None and claim.reason in (MissReason.NEW, MissReason.DIVERGED):
        return _miss(change)
    if claim.reason is MissReason.NEW and parent_id is None:
        return _NOT_FOUND
    return _miss(_CHANGES[claim.reason]) if claim.reason in _CHANGES else _UNAVAILABLE


def _compared(claim: ClaimReport, change: Change | None, num_shared: int) -> Json:
    """By what the prompt has in common with the turn that it is to be compared with."""
    if change is not None:
        return _miss(change)
    # Of a turn's tokens the last one is never computed.
    if claim.reason is None or claim.num_reused >= num_shared - 1:
        return _HIT
    return _UNAVAILABLE


def _miss(change: Change) -> Json:
    return {"type": "cache_miss", "reason": _WORDS[change]}
