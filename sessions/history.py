"""What a conversation says, as messages: what stands in front, and turn after turn. Pure.

A turn's terms change what stands before it: they may have other instructions than the session, or
a summary in the place of everything earlier.
"""

from collections.abc import Callable, Iterable
from dataclasses import replace

from sessions.terms import Terms
from sessions.types import InputMessage, Session, Turn

SUMMARY_HEAD = "Summary of the conversation so far:\n\n"


def under(terms: Terms, session: Session, base: Turn | None) -> Session:
    """The session as a turn's terms have it; `base` is the turn whose log it would go on from."""
    is_alike = base is None or base.terms.instructions == terms.instructions
    if terms.instructions is None:
        return session if is_alike else replace(session, is_reinstructed=True)
    is_reinstructed = session.is_reinstructed or not is_alike
    return replace(session, instructions=terms.instructions, is_reinstructed=is_reinstructed)


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
    return tuple(InputMessage(role=item.role, text=item.text) for item in turn.input_items)


def told(
    session: Session, turns: Iterable[Turn], retell: Callable[[str], str]
) -> tuple[InputMessage, ...]:
    """The whole conversation; `retell` says how the template must see a reply's text."""
    messages = list(instructions(session))
    for turn in turns:
        if turn.terms.summary is not None:
            messages = [*lead(session, turn.terms)]
        messages += [
            message
            for item, message in zip(turn.input_items, given(turn), strict=True)
            if item.id not in turn.deleted_items
        ]
        if turn.terms.has_reply and turn.reply_item_id not in turn.deleted_items:
            messages.append(InputMessage(role="assistant", text=retell(turn.reply_text)))
    return tuple(messages)


def _summary(terms: Terms) -> tuple[InputMessage, ...]:
    if terms.summary is None:
        return ()
    return (InputMessage(role="user", text=SUMMARY_HEAD + terms.summary),)
