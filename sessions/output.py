"""A reply as items: reasoning, messages and calls, one behind the other. Pure.

The builder of a live reply and a replay tell the same events: `told` makes an item's from its text
and the lengths of its pieces.

Invariants:
    items are told one after the other, each whole before the next begins
    the pieces of an item add up to its text
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, fields, replace
from enum import StrEnum
from itertools import chain
from typing import Any

from sessions.call_scanner import CallBegun, CallDelta, CallDone
from sessions.item_kind import ItemKind
from sessions.likelihoods import AnswerLikelihoods, Likelihoods, TokenLikelihood
from sessions.reply_parser import ReasoningDelta, ReplyEvent, ReplyParser, TextDelta


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputItem:
    """One item of a reply. `text` is reasoning, words, a call's arguments, or a summary.

    `lengths` are those of the pieces it was shown in, `likelihoods` how likely the tokens of each
    were, empty if nobody asked; `status` completed, incomplete, in_progress.
    """

    id: str
    kind: ItemKind
    text: str = ""
    name: str | None = None
    call_id: str | None = None
    lengths: tuple[int, ...] = ()
    likelihoods: tuple[Likelihoods, ...] = ()
    status: str = "in_progress"

    @property
    def payload(self) -> dict[str, Any] | None:
        """What a node keeps beside the text."""
        return {"call_id": self.call_id, "name": self.name} if self.call_id else None

    def to_stored(self) -> dict[str, Any]:
        """As JSON."""
        stored = {each.name: getattr(self, each.name) for each in fields(self)}
        del stored["likelihoods"]
        stored |= {"kind": self.kind.value, "lengths": list(self.lengths)}
        if any(self.likelihoods):
            shares = [[each.to_stored() for each in share] for share in self.likelihoods]
            stored["likelihoods"] = shares
        return stored

    @classmethod
    def of_stored(cls, stored: dict[str, Any]) -> "OutputItem":
        """The inverse of `to_stored`."""
        kind, lengths = ItemKind(stored["kind"]), tuple(stored["lengths"])
        likelihoods = tuple(
            tuple(map(TokenLikelihood.of_stored, share)) for share in stored.get("likelihoods", ())
        )
        return cls(**{**stored, "kind": kind, "lengths": lengths, "likelihoods": likelihoods})


class OutputStep(StrEnum):
    """How far an item is told."""

    ADDED = "added"
    PART_ADDED = "part_added"
    DELTA = "delta"
    TEXT_DONE = "text_done"
    PART_DONE = "part_done"
    DONE = "done"


@dataclass(frozen=True, slots=True)
class OutputEvent:
    """A step of the item at `index`; `text` is the piece of a delta, or the whole behind it, and
    `likelihoods` are those of its tokens."""

    step: OutputStep
    index: int
    item: OutputItem
    text: str = ""
    likelihoods: Likelihoods = ()


_IN_PARTS = (ItemKind.MESSAGE, ItemKind.REASONING)


def begun(index: int, item: OutputItem) -> Iterator[OutputEvent]:
    """What is told before an item's first piece."""
    bare = replace(_bare(item), status="in_progress")
    if item.kind is ItemKind.COMPACTION:
        bare = replace(bare, text=item.text)
    yield OutputEvent(OutputStep.ADDED, index, bare)
    if item.kind in _IN_PARTS:
        yield OutputEvent(OutputStep.PART_ADDED, index, bare)


def done(index: int, item: OutputItem) -> Iterator[OutputEvent]:
    """What is told behind an item's last piece."""
    whole = tuple(chain.from_iterable(item.likelihoods))
    if item.kind is not ItemKind.COMPACTION:
        yield OutputEvent(OutputStep.TEXT_DONE, index, item, item.text, whole)
    if item.kind in _IN_PARTS:
        yield OutputEvent(OutputStep.PART_DONE, index, item, item.text, whole)
    yield OutputEvent(OutputStep.DONE, index, item, item.text)


def told(index: int, item: OutputItem) -> Iterator[OutputEvent]:
    """All that is told of an item, as far as it is."""
    yield from begun(index, item)
    bare, start = _bare(item), 0
    shares = item.likelihoods or ((),) * len(item.lengths)
    for length, likelihoods in zip(item.lengths, shares, strict=True):
        piece = item.text[start : start + length]
        yield OutputEvent(OutputStep.DELTA, index, bare, piece, likelihoods)
        start += length
    if item.status != "in_progress":
        yield from done(index, item)


def _bare(item: OutputItem) -> OutputItem:
    return replace(item, text="", lengths=(), likelihoods=())


def cut_short(items: Sequence[OutputItem]) -> tuple[OutputItem, ...]:
    """The items of a reply that nobody goes on with."""
    return tuple(
        replace(item, status="incomplete") if item.status == "in_progress" else item
        for item in items
    )


@dataclass(slots=True)
class _Open:
    """The item that grows."""

    item: OutputItem
    pieces: list[str] = field(default_factory=list)
    shares: list[Likelihoods] = field(default_factory=list)  # one a piece

    def now(self, status: str = "in_progress") -> OutputItem:
        return replace(
            self.item,
            text="".join(self.pieces),
            lengths=tuple(map(len, self.pieces)),
            likelihoods=tuple(self.shares) if any(self.shares) else (),
            status=status,
        )


class OutputBuilder:
    """Takes a reply's text in; tells events, and says what items there are."""

    def __init__(
        self,
        parser: ReplyParser,
        new_id: Callable[[ItemKind], str],
        *,
        message_id: str,
        lead: Sequence[OutputItem] = (),
    ) -> None:
        self._parser = parser
        self._new_id = new_id
        self._message_id: str | None = message_id  # the first message's
        self._done: list[OutputItem] = []
        self._lead = lead  # items that stand in front of the reply
        self._open: _Open | None = None
        self._likelihoods = AnswerLikelihoods()
        self.num_reasoning_tokens = 0

    @property
    def items(self) -> tuple[OutputItem, ...]:
        """The items so far."""
        return (*self._done, *(() if self._open is None else (self._open.now(),)))

    def begin(self) -> list[OutputEvent]:
        """Tell what stands in front of the reply."""
        events: list[OutputEvent] = []
        for item in self._lead:
            events += told(len(self._done), item)
            self._done.append(item)
        return events

    def feed(
        self, text: str, num_tokens: int = 0, likelihoods: Likelihoods = ()
    ) -> list[OutputEvent]:
        """Read on: what so many tokens, of these likelihoods, added."""
        was_reasoning = self._parser.is_reasoning
        events = self._told(self._parser.feed(text), likelihoods)
        if was_reasoning or self._parser.is_reasoning:
            self.num_reasoning_tokens += num_tokens
        return events

    def finish(self, *, is_complete: bool) -> list[OutputEvent]:
        """No more comes; a complete reply without items has an empty message."""
        events = self._told(self._parser.finish())
        if self._open is None and len(self._done) == len(self._lead):
            events += self._begin(ItemKind.MESSAGE)
        return events + self._close("completed" if is_complete else "incomplete")

    def _told(
        self, parsed: Sequence[ReplyEvent], likelihoods: Likelihoods = ()
    ) -> list[OutputEvent]:
        events: list[OutputEvent] = []
        shares = self._likelihoods.share(likelihoods, parsed)
        for event, share in zip(parsed, shares, strict=True):
            match event:
                case ReasoningDelta(text):
                    events += self._grow(ItemKind.REASONING, text)
                case TextDelta(text):
                    events += self._grow(ItemKind.MESSAGE, text, share)
                case CallBegun(name=name):
                    events += self._begin(ItemKind.FUNCTION_CALL, name)
                case CallDelta(text=text):
                    events += self._grow(ItemKind.FUNCTION_CALL, text)
                case CallDone(is_complete=is_complete):
                    events += self._close("completed" if is_complete else "incomplete")
        return events

    def _grow(self, kind: ItemKind, text: str, likelihoods: Likelihoods = ()) -> list[OutputEvent]:
        if not text:
            return []
        events: list[OutputEvent] = []
        if self._open is None or self._open.item.kind is not kind:
            # White space between a call and its end is nobody's words.
            if kind is ItemKind.MESSAGE and not text.strip() and self._has_call:
                return []
            events += self._begin(kind)
        assert self._open is not None
        self._open.pieces.append(text)
        self._open.shares.append(likelihoods)
        index = len(self._done)
        return [*events, OutputEvent(OutputStep.DELTA, index, self._open.item, text, likelihoods)]

    @property
    def _has_call(self) -> bool:
        return any(item.kind is ItemKind.FUNCTION_CALL for item in self._done)

    def _begin(self, kind: ItemKind, name: str | None = None) -> list[OutputEvent]:
        events = self._close("completed")
        item_id = self._new_id(kind)
        call_id = f"call_{item_id.partition('_')[2]}" if kind is ItemKind.FUNCTION_CALL else None
        if kind is ItemKind.MESSAGE and self._message_id is not None:
            item_id, self._message_id = self._message_id, None
        self._open = _Open(OutputItem(id=item_id, kind=kind, name=name, call_id=call_id))
        return [*events, *begun(len(self._done), self._open.item)]

    def _close(self, status: str) -> list[OutputEvent]:
        if self._open is None:
            return []
        item, index = self._open.now(status), len(self._done)
        self._open = None
        self._done.append(item)
        return [*done(index, item)]
