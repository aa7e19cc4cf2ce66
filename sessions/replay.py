"""A turn's events made again from what is stored. Pure.

The writer of a live feed uses the same three functions, so a replay has the same events under the
same numbers; `delta_lengths` says how the reply had been cut.
"""

from collections.abc import Iterator
from dataclasses import replace

from sessions.output import told
from sessions.types import (
    ReplyDelta,
    ReplyItemAdded,
    ReplyItemDone,
    ReplyPartAdded,
    ReplyPartDone,
    ReplyTextDone,
    Turn,
    TurnCreated,
    TurnEnded,
    TurnEvent,
    TurnInProgress,
    TurnMetrics,
    TurnQueued,
    TurnStatus,
)


def replay(turn: Turn) -> tuple[TurnEvent, ...]:
    """All events of a turn; of one still active those that its reply so far has made."""
    events = list(opening(turn))
    if turn.terms.is_parsed:
        for index, item in enumerate(turn.output):
            events.extend(told(index, item))
        return (*events, *(() if turn.status.is_active else ending(turn)))
    for number, text in enumerate(_deltas(turn)):
        events.extend(delta(turn, text, is_first=number == 0))
    if not turn.status.is_active:
        events.extend(closing(turn))
    return tuple(events)


def opening(turn: Turn) -> tuple[TurnEvent, ...]:
    """What comes before anything was generated."""
    bare = replace(
        turn,
        status=TurnStatus.PENDING,
        reply_text="",
        delta_lengths=(),
        output=(),
        incomplete_reason=None,
        error=None,
        usage=None,
        timing=None,
        finished_at=None,
    )
    waits = (TurnQueued(bare),) if turn.terms.is_background else ()
    return TurnCreated(bare), *waits, TurnInProgress(replace(bare, status=TurnStatus.RUNNING))


def delta(turn: Turn, text: str, *, is_first: bool) -> tuple[TurnEvent, ...]:
    """A piece of the reply; the first one opens the reply's item."""
    return (*(_item_opened(turn) if is_first else ()), ReplyDelta(turn.reply_item_id, text))


def closing(turn: Turn) -> tuple[TurnEvent, ...]:
    """What comes behind the last piece of an ended turn's reply.

    A failed turn goes straight to its end; every other one shows its reply's item, empty or not,
    unless it has no reply.
    """
    assert not turn.status.is_active, turn.status
    if turn.status is TurnStatus.FAILED:
        return (TurnEnded(turn),)
    return (*(_item_closed(turn) if turn.terms.has_reply else ()), *ending(turn))


def ending(turn: Turn) -> tuple[TurnEvent, ...]:
    """What comes behind the items of an ended turn."""
    events: list[TurnEvent] = []
    if turn.usage is not None and turn.timing is not None:
        events.append(TurnMetrics(turn.id, turn.usage, turn.timing))
    events.append(TurnEnded(turn))
    return tuple(events)


def _item_opened(turn: Turn) -> tuple[TurnEvent, ...]:
    return ReplyItemAdded(turn.reply_item_id), ReplyPartAdded(turn.reply_item_id)


def _item_closed(turn: Turn) -> Iterator[TurnEvent]:
    item_id, text = turn.reply_item_id, turn.reply_text
    if not turn.delta_lengths:
        yield from _item_opened(turn)
    yield ReplyTextDone(item_id, text)
    yield ReplyPartDone(item_id, text)
    status = "completed" if turn.status is TurnStatus.COMPLETED else "incomplete"
    yield ReplyItemDone(item_id, text, status)


def _deltas(turn: Turn) -> Iterator[str]:
    start = 0
    for length in turn.delta_lengths:
        yield turn.reply_text[start : start + length]
        start += length
    assert start == len(turn.reply_text), f"{turn.id}: deltas cover {start} characters"
