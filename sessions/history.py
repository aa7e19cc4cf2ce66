"""What a conversation says, as messages: what stands in front, and turn after turn. Pure.

A turn's terms change what stands before it: they may have other instructions than the session, or
a summary in the place of everything earlier.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from datetime import datetime

from sessions.item_kind import ItemKind
from sessions.item_messages import SUMMARY_HEAD, messages_of
from sessions.output import cut_short
from sessions.terms import Terms
from sessions.types import InputMessage, Item, ItemId, ReasoningPolicy, Session, Turn, TurnStatus


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """What a prompt is written under: the session as the turn's terms have it, and the time."""

    session: Session
    terms: Terms
    clock_at: datetime


def under(terms: Terms, session: Session, base: Turn | None, clock_at: datetime) -> Frame:
    """The frame of a turn; `base` is the turn whose log it would go on from."""
    is_alike = base is None or (
        base.terms.instructions == terms.instructions and base.terms.tools == terms.tools
    )
    if not is_alike:
        session = replace(session, is_reinstructed=True)
    if terms.instructions is not None:
        session = replace(session, instructions=terms.instructions)
    return Frame(session=session, terms=terms, clock_at=clock_at)


def lead(session: Session, terms: Terms) -> tuple[InputMessage, ...]:
    """What stands in front of a conversation that begins with a turn of these terms."""
    return (*instructions(session), *_summary(terms))


def instructions(session: Session) -> tuple[InputMessage, ...]:
    """The system message, if there is to be one."""
    if session.instructions is None:
        return ()
    return (InputMessage(role="system", text=session.instructions),)


def opening(turn: Turn) -> tuple[InputMessage, ...]:
    """What a turn that begins a conversation puts behind the instructions."""
    return (*_summary(turn.terms), *given(turn))


def given(turn: Turn) -> tuple[InputMessage, ...]:
    """A turn's input."""
    return messages_of(turn.input_items)


def left(turn: Turn) -> Turn:
    """The turn without what was taken out of the conversation."""
    gone = turn.deleted_items
    if not gone:
        return turn
    rest = replace(
        turn,
        input_items=tuple(item for item in turn.input_items if item.id not in gone),
        output=tuple(item for item in turn.output if item.id not in gone),
    )
    if not gone & {turn.reply_item_id, *(item.id for item in turn.output)}:
        return rest
    said = "".join(item.text for item in rest.output if item.kind is ItemKind.MESSAGE)
    return replace(rest, reply_text=said, terms=replace(turn.terms, has_reply=bool(rest.output)))


def made(turn: Turn) -> tuple[Item, ...]:
    """The items that an ended turn's reply became."""
    assert turn.finished_at is not None, f"{turn.id} has not ended"
    if not turn.terms.has_reply:
        return ()
    if turn.terms.is_parsed:
        return tuple(
            Item(
                id=ItemId(item.id),
                session_id=turn.session_id,
                turn_id=turn.id,
                kind=item.kind,
                role="assistant",
                text=item.text,
                status=item.status,
                payload=item.payload,
                created_at=turn.finished_at,
            )
            for item in cut_short(turn.output)
        )
    if not turn.reply_text and turn.status is TurnStatus.FAILED:
        return ()
    item = Item(
        id=turn.reply_item_id,
        session_id=turn.session_id,
        turn_id=turn.id,
        kind=ItemKind.MESSAGE,
        role="assistant",
        text=turn.reply_text,
        status="completed" if turn.status is TurnStatus.COMPLETED else "incomplete",
        created_at=turn.finished_at,
    )
    return (item,)


def told(
    session: Session, turns: Iterable[Turn], retell: Callable[[str], str]
) -> tuple[InputMessage, ...]:
    """The whole conversation; `retell` says how the template must see a reply's text."""
    messages = list(instructions(session))
    for turn in turns:
        if turn.terms.summary is not None:
            messages = [*lead(session, turn.terms)]
        messages += messages_of(i for i in turn.input_items if i.id not in turn.deleted_items)
        messages += _replied(turn, session, retell)
    return tuple(messages)


def _replied(
    turn: Turn, session: Session, retell: Callable[[str], str]
) -> tuple[InputMessage, ...]:
    left = [item for item in made(turn) if item.id not in turn.deleted_items]
    if turn.terms.is_parsed:
        is_dropped = session.reasoning is ReasoningPolicy.DROP
        hidden = {ItemKind.COMPACTION, *([ItemKind.REASONING] if is_dropped else [])}
        return messages_of(item for item in left if item.kind not in hidden)
    return tuple(InputMessage(role="assistant", text=retell(item.text)) for item in left)


def _summary(terms: Terms) -> tuple[InputMessage, ...]:
    if terms.summary is None:
        return ()
    return (InputMessage(role="user", text=SUMMARY_HEAD + terms.summary),)
