"""What a conversation loses when it has outgrown the context: its oldest turns. Pure.

A turn begins with what the user says, and goes as a whole: a call never stays without its result,
nor a result without its call. What the system says at the start stays, and so does the last turn.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum

from model.errors import ContextLengthError
from sessions.messages import InputMessage

_SHARE_LEFT = 0.75
"""Of the context, when a conversation that has outgrown it loses its beginning."""
_SYSTEM_ROLES = ("system", "developer")


class Truncation(StrEnum):
    """What is done about a conversation that is too long: refuse it, or drop its beginning."""

    DISABLED = "disabled"
    AUTO = "auto"


@dataclass(frozen=True, slots=True, kw_only=True)
class Truncated:
    """What is left, and what was dropped: so many `turns` of so many `messages`.

    `first` is where the messages went from, which is behind the leading system messages.
    """

    messages: tuple[InputMessage, ...]
    num_dropped_turns: int = 0
    num_dropped_messages: int = 0
    first: int = 0


def truncate(
    messages: Sequence[InputMessage],
    num_tokens: Callable[[Sequence[InputMessage]], int],
    max_tokens: int,
    truncation: Truncation,
) -> Truncated:
    """The conversation such that its prompt has at most `max_tokens` - 1 tokens: one position
    belongs to the reply.

    `num_tokens` counts a whole prompt's; it is asked about log₂ of the turns times. Raises
    ContextLengthError when nothing may be dropped, or dropping all that may be is not enough.
    """
    whole = tuple(messages)
    counted = num_tokens(whole)
    if counted < max_tokens:
        return Truncated(messages=whole)
    if truncation is Truncation.DISABLED:
        raise ContextLengthError(counted, max_tokens)
    lead = num_lead(whole)
    starts = turn_starts(whole)
    shortest = whole[:lead] + whole[starts[-1] :] if starts else whole
    if (counted := num_tokens(shortest)) >= max_tokens:
        raise ContextLengthError(counted, max_tokens, is_cut=True)
    few, enough = 0, len(starts) - 1  # dropping `few` turns is too few, `enough` is enough
    while enough - few > 1:
        middle = (few + enough) // 2
        left = whole[:lead] + whole[starts[middle] :]
        few, enough = (few, middle) if num_tokens(left) < max_tokens else (middle, enough)
    return Truncated(
        messages=whole[:lead] + whole[starts[enough] :],
        num_dropped_turns=enough,
        num_dropped_messages=starts[enough] - lead,
        first=lead,
    )


def make_room(
    messages: Sequence[InputMessage],
    num_tokens: Callable[[Sequence[InputMessage]], int],
    max_tokens: int,
) -> Truncated:
    """A conversation that is too long, cut such that the reply, and turns to come behind the same
    beginning, have room; where its last turn alone is too much for that, such that it just fits.

    Raises as `truncate` does.
    """
    with suppress(ContextLengthError):
        return truncate(messages, num_tokens, int(max_tokens * _SHARE_LEFT), Truncation.AUTO)
    return truncate(messages, num_tokens, max_tokens, Truncation.AUTO)


def behind_turns(messages: Sequence[InputMessage], num_turns: int) -> tuple[InputMessage, ...]:
    """A conversation without its oldest turns; the last one stays in any case."""
    starts = turn_starts(messages)
    if not num_turns or not starts:
        return tuple(messages)
    start = starts[min(num_turns, len(starts) - 1)]
    return (*messages[: num_lead(messages)], *messages[start:])


def without_turns(messages: Sequence[InputMessage], num_dropped: int) -> tuple[InputMessage, ...]:
    """A conversation without its first messages behind the system's."""
    lead = num_lead(messages)
    return (*messages[:lead], *messages[lead + num_dropped :])


def num_lead(messages: Sequence[InputMessage]) -> int:
    """How many system messages stand at the start."""
    others = (n for n, m in enumerate(messages) if m.role not in _SYSTEM_ROLES)
    return next(others, len(messages))


def turn_starts(messages: Sequence[InputMessage]) -> list[int]:
    """Where turns begin: at what a user says behind something else, and at the very first."""
    lead = num_lead(messages)
    starts = [lead] if lead < len(messages) else []
    for place in range(lead + 1, len(messages)):
        if messages[place].role == "user" and messages[place - 1].role in ("assistant", "tool"):
            starts.append(place)
    return starts
