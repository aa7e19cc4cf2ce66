"""Turns and their parts as tests want them: all defaults, any of them overridden."""

from datetime import UTC, datetime
from typing import Any

from model.config import SamplingParams
from model.messages import ClaimReport
from sessions.types import (
    Item,
    ItemId,
    ItemKind,
    SessionId,
    Timing,
    Turn,
    TurnId,
    TurnStatus,
    Usage,
)

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)

USAGE = Usage(
    input_tokens=10,
    cached_tokens=6,
    cache_write_tokens=4,
    output_tokens=3,
    num_rows_computed=6,
    claim=ClaimReport(num_prompt_tokens=10, from_device=6, computed=4),
)
TIMING = Timing(queue_s=0.1, first_token_s=0.2, total_s=0.5, tokens_per_s=10.0)


def make_item(**overrides: Any) -> Item:
    values: dict[str, Any] = {
        "id": ItemId("msg_in"),
        "session_id": SessionId("conv_1"),
        "turn_id": TurnId("resp_1"),
        "kind": ItemKind.MESSAGE,
        "role": "user",
        "text": "hello",
        "status": "completed",
        "created_at": NOW,
    }
    return Item(**{**values, **overrides})


def make_turn(**overrides: Any) -> Turn:
    values: dict[str, Any] = {
        "id": TurnId("resp_1"),
        "session_id": SessionId("conv_1"),
        "parent_id": None,
        "client_turn_id": None,
        "status": TurnStatus.COMPLETED,
        "params": SamplingParams(),
        "model": "fake-model",
        "input_items": (make_item(),),
        "reply_item_id": ItemId("msg_out"),
        "reply_text": "Hello",
        "delta_lengths": (3, 2),
        "usage": USAGE,
        "timing": TIMING,
        "created_at": NOW,
        "finished_at": NOW,
    }
    return Turn(**{**values, **overrides})
