"""A turn as a Responses object, and what it is made of. Pure.

Every surface shows it the same: what a surface was told of a turn beside what it is made of stands
in the turn's terms, and is shown again.
"""

from datetime import datetime
from typing import Any, Final

from app.cache_diagnostics import cache_diagnostics
from app.item_object import item_object, reply_object
from sessions.output import cut_short
from sessions.types import (
    ItemKind,
    Timing,
    Turn,
    TurnStatus,
    Usage,
)

Json = dict[str, Any]

_UNSAID: Final[Json] = {
    "background": False,
    "max_tool_calls": None,
    "parallel_tool_calls": True,
    "prompt_cache_key": None,
    "reasoning": {"effort": None, "summary": None},
    "safety_identifier": None,
    "service_tier": "default",
    "store": True,
    "text": {"format": {"type": "text"}},
    "tool_choice": "auto",
    "tools": [],
    "top_logprobs": 0,
    "truncation": "disabled",
    "user": None,
}
"""What a response shows of a request that did not say it."""


def seconds(moment: datetime | None) -> int | None:
    """A moment on the wire."""
    return None if moment is None else int(moment.timestamp())


def turn_object(turn: Turn) -> Json:
    """Build a Responses object."""
    params, shown = turn.params, {**_UNSAID, **turn.terms.shown}
    is_queued = shown["background"] and turn.status is TurnStatus.PENDING
    return {
        "id": turn.id,
        "object": "response",
        "created_at": seconds(turn.created_at),
        "completed_at": seconds(turn.finished_at),
        "status": "queued" if is_queued else turn_status(turn.status),
        "error": _turn_error(turn),
        "incomplete_details": _incomplete_details(turn),
        "instructions": turn.terms.instructions,
        "max_output_tokens": params.max_output_tokens if turn.terms.has_reply else None,
        "model": turn.model,
        "previous_response_id": turn.parent_id,
        "conversation": {"id": turn.session_id} if shown["store"] else None,
        "input": [item_object(item) for item in turn.input_items],
        "output": _output(turn),
        "temperature": params.temperature,
        "top_p": params.top_p,
        "presence_penalty": params.presence_penalty,
        "frequency_penalty": params.frequency_penalty,
        "metadata": turn.metadata,
        "usage": None if turn.usage is None else usage_object(turn.usage),
        "prompt_cache_diagnostics": None if turn.usage is None else _diagnostics(turn, turn.usage),
        **shown,
        "splice": {
            "client_turn_id": turn.client_turn_id,
            "metrics": _turn_metrics(turn),
            "dropped_turns": turn.terms.num_dropped_turns,
        },
    }


def _diagnostics(turn: Turn, usage: Usage) -> Json:
    return cache_diagnostics(usage.claim, turn.terms.comparison, turn.parent_id)


def spoken(turn: Turn) -> str:
    """What a reply says to people."""
    if not turn.terms.is_parsed:
        return turn.reply_text
    return "".join(item.text for item in turn.output if item.kind is ItemKind.MESSAGE)


def turn_status(status: TurnStatus) -> str:
    """Name a status as Responses does."""
    if status.is_active:
        return "in_progress"
    return "incomplete" if status is TurnStatus.INTERRUPTED else str(status)


def _turn_error(turn: Turn) -> Json | None:
    if turn.error is None:
        return None
    error = turn.error
    return {"code": error.code, "message": error.message, "retryable": error.retryable}


def _incomplete_details(turn: Turn) -> Json | None:
    if turn.status is TurnStatus.INTERRUPTED:
        return {"reason": turn.incomplete_reason or "interrupted"}
    if turn.status is TurnStatus.INCOMPLETE:
        return {"reason": turn.incomplete_reason or "max_output_tokens"}
    return None


def _output(turn: Turn) -> list[Json]:
    """The reply as one message; nothing as long as there is no text, or if there is to be none."""
    if not turn.terms.has_reply:
        return []
    if turn.terms.is_parsed:
        # A turn that fails leaves its last item as it was; nothing more will come of it.
        items = turn.output if turn.status.is_active else cut_short(turn.output)
        return [item_object(item) for item in items]
    if turn.status is TurnStatus.COMPLETED:
        return [reply_object(turn.reply_item_id, turn.reply_text, "completed")]
    if not turn.reply_text:
        return []
    status = "in_progress" if turn.status.is_active else "incomplete"
    return [reply_object(turn.reply_item_id, turn.reply_text, status)]


def usage_object(usage: Usage) -> Json:
    """Build Responses' usage."""
    return {
        "input_tokens": usage.input_tokens,
        "input_tokens_details": {
            "cached_tokens": usage.cached_tokens,
            "cache_write_tokens": usage.cache_write_tokens,
        },
        "output_tokens": usage.output_tokens,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
        "total_tokens": usage.input_tokens + usage.output_tokens,
    }


def _turn_metrics(turn: Turn) -> Json | None:
    if turn.usage is None or turn.timing is None:
        return None
    return metrics_object(turn.usage, turn.timing)


def metrics_object(usage: Usage, timing: Timing) -> Json:
    """Say how a turn went."""
    claim = usage.claim
    return {
        "ttft_ms": _milliseconds(timing.first_token_s),
        "queue_ms": _milliseconds(timing.queue_s),
        "total_ms": _milliseconds(timing.total_s),
        "tokens_per_second": None if timing.tokens_per_s is None else round(timing.tokens_per_s, 2),
        "input_tokens": usage.input_tokens,
        "output_tokens": usage.output_tokens,
        "kv": {
            "reused": claim.num_reused,
            "device": claim.from_device,
            "cpu": claim.from_cpu,
            "disk": claim.from_disk,
            "computed": claim.computed,
            "reason": None if claim.reason is None else str(claim.reason),
            "diverged_at": claim.diverged_at,
        },
        "rows_computed": usage.num_rows_computed,
    }


def _milliseconds(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds * 1000, 3)
