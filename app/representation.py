"""What clients get: sessions, turns and events as JSON values, in the shapes of docs/protocol.md.

Pure functions of frozen values; the same turn looks the same in every answer and at every replay.
"""

from collections.abc import Mapping
from typing import Final

from app.item_object import output_event, part_object, reply_object
from app.response_object import (
    Json,
    metrics_object,
    seconds,
    spoken,
    turn_object,
    turn_status,
)
from app.tier_representation import residency_object
from model.messages import EngineInfo, Residency
from sessions.search_types import SearchHit
from sessions.types import (
    OutputEvent,
    ReplyDelta,
    ReplyItemAdded,
    ReplyItemDone,
    ReplyPartAdded,
    ReplyPartDone,
    ReplyTextDone,
    Session,
    Turn,
    TurnCreated,
    TurnEnded,
    TurnEvent,
    TurnInProgress,
    TurnMetrics,
    TurnQueued,
    TurnStatus,
)

PREVIEW_CHARS = 120
_BEGINNINGS: Final[Mapping[type[TurnEvent], str]] = {
    TurnCreated: "response.created",
    TurnQueued: "response.queued",
    TurnInProgress: "response.in_progress",
}


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
        "listed": session.is_listed,
        "auto_title": session.is_auto_titled,
        "ttl_s": session.retain_s,
        "priority": session.priority,
        "kv": None if residency is None else residency_object(residency),
        "active": list(session.active),
        "head": session.head_turn_id,
        "forked_from": session.forked_from,
        "revision": session.revision,
        "created_at": seconds(session.created_at),
        "updated_at": seconds(session.updated_at),
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
        "created_at": seconds(turn.created_at),
        "input_ids": [item.id for item in turn.input_items],
        "input_preview": asked[:PREVIEW_CHARS],
        "reply_preview": spoken(turn)[:PREVIEW_CHARS],
    }


def event_object(sequence_number: int, event: TurnEvent) -> Json:
    """Build one event of a turn's feed."""
    kind, fields = _event(event)
    return {"type": kind, "sequence_number": sequence_number, **fields}


def _event(event: TurnEvent) -> tuple[str, Json]:
    """Name an event and give its own fields."""
    match event:
        case TurnCreated() | TurnQueued() | TurnInProgress():
            return _BEGINNINGS[type(event)], {"response": turn_object(event.turn)}
        case TurnMetrics(turn_id=turn_id, usage=usage, timing=timing):
            return "splice:metrics", {"response_id": turn_id, **metrics_object(usage, timing)}
        case OutputEvent():
            return output_event(event)
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
            item = {**reply_object(item_id, "", "in_progress"), "content": []}
            return "response.output_item.added", {"output_index": 0, "item": item}
        case ReplyPartAdded():
            return "response.content_part.added", {**place, "part": part_object("")}
        case ReplyDelta(text=text):
            return "response.output_text.delta", {**place, "delta": text, "logprobs": []}
        case ReplyTextDone(text=text):
            return "response.output_text.done", {**place, "text": text, "logprobs": []}
        case ReplyPartDone(text=text):
            return "response.content_part.done", {**place, "part": part_object(text)}
        case ReplyItemDone(item_id=item_id, text=text, status=status):
            item = reply_object(item_id, text, status)
            return "response.output_item.done", {"output_index": 0, "item": item}


def _terminal_type(status: TurnStatus) -> str:
    match status:
        case TurnStatus.COMPLETED:
            return "response.completed"
        case TurnStatus.FAILED:
            return "response.failed"
        case _:
            return "response.incomplete"
