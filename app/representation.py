"""What clients get: sessions, turns and events as JSON values, in the shapes of docs/protocol.md.

Pure functions of frozen values; the same turn looks the same in every answer and at every replay.
"""

from app.item_object import output_event, part_object, reply_object
from app.response_object import (
    Json,
    metrics_object,
    seconds,
    spoken,
    turn_object,
    turn_status,
)
from model.messages import EngineInfo, EngineStats, TableView
from sessions.types import (
    OutputEvent,
    ReplyDelta,
    ReplyItemAdded,
    ReplyItemDone,
    ReplyPartAdded,
    ReplyPartDone,
    ReplyTextDone,
    SearchHit,
    Session,
    Turn,
    TurnCreated,
    TurnEnded,
    TurnEvent,
    TurnInProgress,
    TurnMetrics,
    TurnStatus,
)

PREVIEW_CHARS = 120


def session_object(session: Session, loaded: EngineInfo | None) -> Json:
    """Build a session, beside the model that is loaded, if one is."""
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
        case TurnCreated(turn=turn):
            return "response.created", {"response": turn_object(turn)}
        case TurnInProgress(turn=turn):
            return "response.in_progress", {"response": turn_object(turn)}
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


def tables_object(session_id: str, tables: tuple[TableView, ...]) -> Json:
    """Build a conversation's block tables."""
    return {
        "object": "kv",
        "conversation": session_id,
        "num_bytes": sum(table.num_bytes for table in tables),
        "tables": [_table(table) for table in tables],
    }


def _table(table: TableView) -> Json:
    return {
        "response_id": table.turn_id,
        "running": table.is_running,
        "num_tokens": table.num_tokens,
        "num_computed_tokens": table.num_computed_tokens,
        "idle_s": round(table.idle_s, 3),
        "num_bytes": table.num_bytes,
        "blocks": [
            {
                "block_id": block.block_id,
                "num_tokens": block.num_tokens,
                "tier": str(block.tier),
                "num_holders": block.num_holders,
                "hash": block.block_hash,
            }
            for block in table.blocks
        ],
    }


def cache_object(info: EngineInfo, stats: EngineStats) -> Json:
    """Build the block pool as it is now."""
    return {
        "object": "cache",
        "model": info.model_id,
        "device": info.device,
        "dtype": info.dtype,
        "mode": info.mode,
        "attention": info.attention,
        "block_size": info.block_size,
        "block_bytes": info.block_bytes,
        "cache_bytes": info.cache_bytes,
        "weights_bytes": info.weights_bytes,
        "max_context_tokens": info.max_context_tokens,
        "num_blocks": stats.num_blocks,
        "blocks": {
            "running": stats.blocks_running,
            "parked": stats.blocks_parked,
            "cached": stats.blocks_cached,
            "empty": stats.blocks_empty,
        },
        "num_running": stats.num_running,
        "num_waiting": stats.num_waiting,
        "num_parked_tables": stats.num_parked_tables,
        "tokens": dict(stats.tokens_by_source),
        "misses": dict(stats.misses_by_reason),
        "num_evicted_blocks": stats.evicted_blocks_total,
        "num_preemptions": stats.preemptions_total,
        "num_restarts": stats.num_restarts,
    }
