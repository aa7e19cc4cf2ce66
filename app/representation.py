"""What clients get: sessions, turns and events as JSON values, in the shapes of docs/protocol.md.

Pure functions of frozen values; the same turn looks the same in every answer and at every replay.
"""

from datetime import datetime
from typing import Any

from app.tier_representation import residency_object
from model.messages import EngineInfo, Residency
from sessions.search_types import SearchHit
from sessions.types import (
    Item,
    ItemId,
    ReplyDelta,
    ReplyItemAdded,
    ReplyItemDone,
    ReplyPartAdded,
    ReplyPartDone,
    ReplyTextDone,
    Session,
    Timing,
    Turn,
    TurnCreated,
    TurnEnded,
    TurnEvent,
    TurnInProgress,
    TurnMetrics,
    TurnStatus,
    Usage,
)

Json = dict[str, Any]

PREVIEW_CHARS = 120


def _seconds(moment: datetime | None) -> int | None:
    return None if moment is None else int(moment.timestamp())


def session_object(
    session: Session, loaded: EngineInfo | None, residency: Residency | None = None
) -> Json:
    """Build a session, beside the model that is loaded, if one is, and where its state is."""
    return {
        "id": session.id,
        "object": "session",
        "title": session.title,
        "instructions": session.instructions,
        "model": session.model,
        "model_state": _model_state(session, loaded),
        "reasoning": str(session.reasoning),
        "metadata": session.metadata,
        "sampling": session.sampling,
        "pinned": session.is_pinned,
        "auto_title": session.is_auto_titled,
        "ttl_s": session.retain_s,
        "priority": session.priority,
        "kv": None if residency is None else residency_object(residency),
        "active": list(session.active),
        "head": session.head_turn_id,
        "forked_from": session.forked_from,
        "revision": session.revision,
        "created_at": _seconds(session.created_at),
        "updated_at": _seconds(session.updated_at),
    }


def _model_state(session: Session, loaded: EngineInfo | None) -> str | None:
    """Whether the next turn can go on with the tokens that there are, or encodes all of them."""
    if loaded is None:
        return None
    if session.model != loaded.model_id:
        return "other_model"
    is_same = session.fingerprint == loaded.fingerprint
    return "loaded" if is_same else "fingerprint_changed"


def hit_object(hit: SearchHit) -> Json:
    """Build one result of a search; its id is that of what was found."""
    return {
        "id": hit.item_id or hit.session_id,
        "object": "search.result",
        "kind": "title" if hit.item_id is None else "message",
        "conversation": {"id": hit.session_id, "title": hit.title},
        "response_id": hit.turn_id,
        "role": hit.role,
        "snippet": hit.snippet,
        "highlights": [list(place) for place in hit.highlights],
    }


def list_object(data: list[Json], *, has_more: bool = False) -> Json:
    """Build OpenAI's list around objects that have ids."""
    return {
        "object": "list",
        "data": data,
        "first_id": data[0]["id"] if data else None,
        "last_id": data[-1]["id"] if data else None,
        "has_more": has_more,
    }


def tree_object(session: Session, turns: tuple[Turn, ...]) -> Json:
    """Build the tree of a session's turns: each with its parent, and how its words begin."""
    return {
        "object": "tree",
        "conversation": session.id,
        "head": session.head_turn_id,
        "revision": session.revision,
        "turns": [_tree_node(turn) for turn in turns],
    }


def _tree_node(turn: Turn) -> Json:
    asked = turn.input_items[-1].text if turn.input_items else ""
    return {
        "id": turn.id,
        "parent": turn.parent_id,
        "conversation": turn.session_id,
        "status": turn_status(turn.status),
        "created_at": _seconds(turn.created_at),
        "input_ids": [item.id for item in turn.input_items],
        "input_preview": asked[:PREVIEW_CHARS],
        "reply_preview": turn.reply_text[:PREVIEW_CHARS],
    }


def turn_object(turn: Turn) -> Json:
    """Build a Responses object."""
    params = turn.params
    return {
        "id": turn.id,
        "object": "response",
        "created_at": _seconds(turn.created_at),
        "completed_at": _seconds(turn.finished_at),
        "status": turn_status(turn.status),
        "background": False,
        "error": _turn_error(turn),
        "incomplete_details": _incomplete_details(turn),
        "instructions": None,
        "max_output_tokens": params.max_output_tokens,
        "model": turn.model,
        "previous_response_id": turn.parent_id,
        "conversation": {"id": turn.session_id},
        "input": [_input_item(item) for item in turn.input_items],
        "output": _output(turn),
        "parallel_tool_calls": True,
        "store": True,
        "temperature": params.temperature,
        "top_p": params.top_p,
        "text": {"format": {"type": "text"}},
        "tool_choice": "auto",
        "tools": [],
        "truncation": "disabled",
        "metadata": turn.metadata,
        "usage": None if turn.usage is None else usage_object(turn.usage),
        "splice": {"client_turn_id": turn.client_turn_id, "metrics": _turn_metrics(turn)},
    }


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


def _input_item(item: Item) -> Json:
    kind = "output_text" if item.role == "assistant" else "input_text"
    return {
        "id": item.id,
        "type": "message",
        "role": item.role,
        "status": item.status,
        "content": [{"type": kind, "text": item.text}],
    }


def _output(turn: Turn) -> list[Json]:
    """The reply as one message; nothing as long as there is no text."""
    if turn.status is TurnStatus.COMPLETED:
        return [_reply_item(turn.reply_item_id, turn.reply_text, "completed")]
    if not turn.reply_text:
        return []
    status = "in_progress" if turn.status.is_active else "incomplete"
    return [_reply_item(turn.reply_item_id, turn.reply_text, status)]


def _reply_item(item_id: ItemId, text: str, status: str) -> Json:
    return {
        "id": item_id,
        "type": "message",
        "role": "assistant",
        "status": status,
        "content": [_part(text)],
    }


def _part(text: str) -> Json:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


def usage_object(usage: Usage) -> Json:
    """Build Responses' usage."""
    return {
        "input_tokens": usage.input_tokens,
        "input_tokens_details": {
            "cached_tokens": usage.cached_tokens,
            "cache_write_tokens": usage.cache_write_tokens,
        },
        "output_tokens": usage.output_tokens,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": usage.input_tokens + usage.output_tokens,
    }


def _turn_metrics(turn: Turn) -> Json | None:
    if turn.usage is None or turn.timing is None:
        return None
    return _metrics(turn.usage, turn.timing)


def _metrics(usage: Usage, timing: Timing) -> Json:
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


def event_object(sequence_number: int, event: TurnEvent) -> Json:
    """Build one event of a turn's feed."""
    kind, fields = _event(event)
    return {"type": kind, "sequence_number": sequence_number, **fields}


def _event(event: TurnEvent) -> tuple[str, Json]:
    """Name an event and give its own fields."""
    match event:
        case TurnCreated(turn=turn):
            return "response.created", {"response": turn_object(turn)}
        case TurnInProgress(turn=turn):
            return "response.in_progress", {"response": turn_object(turn)}
        case TurnMetrics(turn_id=turn_id, usage=usage, timing=timing):
            return "splice:metrics", {"response_id": turn_id, **_metrics(usage, timing)}
        case TurnEnded(turn=turn):
            return _terminal_type(turn.status), {"response": turn_object(turn)}
        case _:
            return _reply_event(event)


def _reply_event(
    event: ReplyItemAdded
    | ReplyPartAdded
    | ReplyDelta
    | ReplyTextDone
    | ReplyPartDone
    | ReplyItemDone,
) -> tuple[str, Json]:
    """Name an event inside the reply's one item and one part."""
    place: Json = {"item_id": event.item_id, "output_index": 0, "content_index": 0}
    match event:
        case ReplyItemAdded(item_id=item_id):
            item = {**_reply_item(item_id, "", "in_progress"), "content": []}
            return "response.output_item.added", {"output_index": 0, "item": item}
        case ReplyPartAdded():
            return "response.content_part.added", {**place, "part": _part("")}
        case ReplyDelta(text=text):
            return "response.output_text.delta", {**place, "delta": text, "logprobs": []}
        case ReplyTextDone(text=text):
            return "response.output_text.done", {**place, "text": text, "logprobs": []}
        case ReplyPartDone(text=text):
            return "response.content_part.done", {**place, "part": _part(text)}
        case ReplyItemDone(item_id=item_id, text=text, status=status):
            item = _reply_item(item_id, text, status)
            return "response.output_item.done", {"output_index": 0, "item": item}


def _terminal_type(status: TurnStatus) -> str:
    match status:
        case TurnStatus.COMPLETED:
            return "response.completed"
        case TurnStatus.FAILED:
            return "response.failed"
        case _:
            return "response.incomplete"
