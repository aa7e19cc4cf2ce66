"""Between messages, as templates read them, and items, as a conversation keeps them. Pure.

An assistant's message is up to three kinds of items: its reasoning, its words, its calls.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from sessions.ids import new_id_of_kind
from sessions.item_kind import ItemKind
from sessions.messages import InputMessage, ToolCall
from sessions.types import Item, SessionId, TurnId

SUMMARY_HEAD = "Summary of the conversation so far:\n\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """An item that has yet to get its id."""

    kind: ItemKind
    role: str
    text: str
    payload: dict[str, Any] | None = None


def drafts_of(message: InputMessage) -> Iterator[Draft]:
    """The items that a message is."""
    if message.role == "tool":
        yield Draft(
            kind=ItemKind.FUNCTION_CALL_OUTPUT,
            role="tool",
            text=message.text,
            payload={"call_id": message.call_id},
        )
        return
    if message.reasoning:
        yield Draft(kind=ItemKind.REASONING, role="assistant", text=message.reasoning)
    if message.text or not (message.calls or message.reasoning):
        yield Draft(kind=ItemKind.MESSAGE, role=message.role, text=message.text)
    for call in message.calls:
        payload = {"call_id": call.id, "name": call.name}
        yield Draft(
            kind=ItemKind.FUNCTION_CALL, role="assistant", text=call.arguments, payload=payload
        )


def new_item(draft: Draft, session_id: SessionId, turn_id: TurnId, now: datetime) -> Item:
    """An item of a turn's input."""
    return Item(
        id=new_id_of_kind(draft.kind, now),
        session_id=session_id,
        turn_id=turn_id,
        kind=draft.kind,
        role=draft.role,
        text=draft.text,
        status="completed",
        payload=draft.payload,
        created_at=now,
    )


@dataclass(slots=True)
class _Reply:
    """An assistant's items, gathered into a message."""

    text: str | None = None
    reasoning: str | None = None
    calls: list[ToolCall] = field(default_factory=list)

    @property
    def is_empty(self) -> bool:
        return self.text is None and self.reasoning is None and not self.calls

    def message(self) -> InputMessage:
        return InputMessage(
            role="assistant",
            text=self.text or "",
            reasoning=self.reasoning,
            calls=tuple(self.calls),
        )

    def takes(self, kind: ItemKind) -> bool:
        """Whether an item of that kind can still be a part of it."""
        if kind is ItemKind.REASONING:
            return self.is_empty
        return kind is ItemKind.FUNCTION_CALL or (self.text is None and not self.calls)


def messages_of(items: Iterable[Item | Draft]) -> tuple[InputMessage, ...]:
    """The messages that items are; an assistant's that belong together become one."""
    messages: list[InputMessage] = []
    reply = _Reply()
    for item in items:
        is_reply = item.role == "assistant" and item.kind is not ItemKind.COMPACTION
        if not reply.is_empty and not (is_reply and reply.takes(item.kind)):
            messages.append(reply.message())
            reply = _Reply()
        if item.kind is ItemKind.COMPACTION:
            messages.append(InputMessage(role="user", text=SUMMARY_HEAD + item.text))
        elif not is_reply:
            call_id = (item.payload or {}).get("call_id")
            messages.append(InputMessage(role=item.role, text=item.text, call_id=call_id))
        elif item.kind is ItemKind.REASONING:
            reply.reasoning = item.text or None  # what was only encrypted says nothing
        elif item.kind is ItemKind.FUNCTION_CALL:
            payload = item.payload or {}
            call = ToolCall(id=payload["call_id"], name=payload["name"], arguments=item.text)
            reply.calls.append(call)
        else:
            reply.text = item.text
    if not reply.is_empty:
        messages.append(reply.message())
    return tuple(messages)
