"""What came of calls must belong to calls: a result that names another is an agent's mistake, which
a reply made up around it would hide."""

from collections.abc import Iterable, Sequence

from sessions import history
from sessions.errors import InvalidInputError
from sessions.item_kind import ItemKind
from sessions.messages import InputMessage
from sessions.turn_logs import TurnLogs
from sessions.types import Turn


async def check_results(
    messages: Sequence[InputMessage], parent: Turn | None, logs: TurnLogs
) -> None:
    """Raise InvalidInputError for a result whose call is neither before it nor in what a turn
    behind `parent` follows."""
    if all(message.role != "tool" for message in messages):
        return
    unknown = _unknown(messages, set() if parent is None else set(_calls_of(parent)))
    if unknown and parent is not None:  # mostly its calls are meant; the others take a walk
        before = await logs.base_turns(parent.id)
        unknown = _unknown(messages, {call for turn in before for call in _calls_of(turn)})
    if unknown:
        raise InvalidInputError(f"no call has the id {unknown[0]!r}", param="input")


def _unknown(messages: Iterable[InputMessage], known: set[str]) -> list[str]:
    unknown = []
    for message in messages:
        known.update(call.id for call in message.calls)
        if message.role == "tool" and message.call_id not in known:
            unknown.append(message.call_id or "")
    return unknown


def _calls_of(turn: Turn) -> Iterable[str]:
    """The ids of what a turn was given as calls, and of what it called."""
    for item in (*turn.input_items, *history.made(turn)):
        if item.kind is ItemKind.FUNCTION_CALL and item.payload is not None:
            yield item.payload["call_id"]
