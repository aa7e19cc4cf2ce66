"""An item of a conversation as a Responses item, and the events that tell one. Pure."""

import base64
import binascii
from collections.abc import Iterable
from itertools import chain
from typing import Any

from app.likelihood_object import likelihood_object
from sessions.likelihoods import TokenLikelihood
from sessions.output import OutputEvent, OutputStep
from sessions.types import Item, ItemId, ItemKind, OutputItem

Json = dict[str, Any]


def item_object(item: Item | OutputItem) -> Json:
    """Build an item of the conversation."""
    payload = item.payload or {}
    match item.kind:
        case ItemKind.FUNCTION_CALL:
            return {
                "id": item.id,
                "type": "function_call",
                "call_id": payload["call_id"],
                "name": payload["name"],
                "arguments": item.text,
                "status": item.status,
            }
        case ItemKind.FUNCTION_CALL_OUTPUT:
            return {
                "id": item.id,
                "type": "function_call_output",
                "call_id": payload["call_id"],
                "output": item.text,
                "status": item.status,
            }
        case ItemKind.REASONING:
            content = [{"type": "reasoning_text", "text": item.text}]
            return {**_reasoning(item), "content": content}
        case ItemKind.COMPACTION:
            return {"id": item.id, "type": "compaction", "encrypted_content": packed(item.text)}
        case ItemKind.MESSAGE:
            return _message(item)


def _message(item: Item | OutputItem) -> Json:
    if isinstance(item, OutputItem):
        likelihoods = chain.from_iterable(item.likelihoods)
        return reply_object(ItemId(item.id), item.text, item.status, likelihoods)
    if item.role == "assistant":
        return reply_object(item.id, item.text, item.status)
    return {
        "id": item.id,
        "type": "message",
        "role": item.role,
        "status": item.status,
        "content": [{"type": "input_text", "text": item.text}],
    }


def _reasoning(item: Item | OutputItem) -> Json:
    return {"id": item.id, "type": "reasoning", "status": item.status, "summary": []}


def reply_object(
    item_id: ItemId, text: str, status: str, likelihoods: Iterable[TokenLikelihood] = ()
) -> Json:
    """Build a message of the model's."""
    return {
        "id": item_id,
        "type": "message",
        "role": "assistant",
        "status": status,
        "content": [part_object(text, likelihoods)],
    }


def part_object(text: str, likelihoods: Iterable[TokenLikelihood] = ()) -> Json:
    """Build the one part of a message."""
    logprobs = [likelihood_object(each) for each in likelihoods]
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": logprobs}


def packed(summary: str) -> str:
    """A summary as clients keep it: opaque, and good on any server."""
    return base64.urlsafe_b64encode(summary.encode()).decode()


def unpacked(content: str) -> str | None:
    """The inverse of `packed`; None for what is none of ours."""
    try:
        return base64.b64decode(content, altchars=b"-_", validate=True).decode()
    except (binascii.Error, UnicodeError, ValueError):
        return None


def output_event(event: OutputEvent) -> tuple[str, Json]:
    """Name a step of an item, and give its own fields."""
    item = event.item
    match event.step:
        case OutputStep.ADDED:
            added = item_object(item)
            if "content" in added:
                added["content"] = []
            return "response.output_item.added", {"output_index": event.index, "item": added}
        case OutputStep.DONE:
            done = {"output_index": event.index, "item": item_object(item)}
            return "response.output_item.done", done
        case _:
            return _inside(event)


def _inside(event: OutputEvent) -> tuple[str, Json]:
    place: Json = {"item_id": event.item.id, "output_index": event.index}
    if event.item.kind is ItemKind.FUNCTION_CALL:
        name = "response.function_call_arguments"
        if event.step is OutputStep.DELTA:
            return f"{name}.delta", {**place, "delta": event.text}
        return f"{name}.done", {**place, "arguments": event.text, "name": event.item.name}
    place["content_index"] = 0
    is_reasoning = event.item.kind is ItemKind.REASONING
    part = {"type": "reasoning_text", "text": event.text}
    part = part if is_reasoning else part_object(event.text, event.likelihoods)
    name = "response.reasoning_text" if is_reasoning else "response.output_text"
    logprobs: Json = {} if is_reasoning else {"logprobs": part["logprobs"]}
    match event.step:
        case OutputStep.PART_ADDED:
            return "response.content_part.added", {**place, "part": part}
        case OutputStep.PART_DONE:
            return "response.content_part.done", {**place, "part": part}
        case OutputStep.DELTA:
            return f"{name}.delta", {**place, "delta": event.text, **logprobs}
        case _:
            return f"{name}.done", {**place, "text": event.text, **logprobs}
