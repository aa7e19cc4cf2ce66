"""A reply as it is shown while it grows: one message, or taken apart into items.

Invariant: what its events tell is what a replay of the ended turn tells, under the same numbers.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from model.messages import GenerationDelta, GenerationFinished
from sessions.ids import new_id_of_kind
from sessions.item_kind import ItemKind
from sessions.likelihoods import Likelihoods, likelihoods_of
from sessions.output import OutputBuilder, OutputItem
from sessions.replay import closing, delta, ending
from sessions.reply import GrowingReply, PartialReply
from sessions.reply_parser import ReplyParser
from sessions.token_text import TokenText
from sessions.types import Turn, TurnEvent, TurnStatus


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """How a reply is taken apart; `unseen` names the special tokens among ids, `spell` says what
    each of them stands for."""

    parser: ReplyParser
    unseen: Callable[[Sequence[int]], str]
    spell: Callable[[Sequence[int]], list[TokenText]]


class ShownReply:
    """Of one turn; without a reading it is one message."""

    def __init__(self, turn: Turn, reading: Reading | None) -> None:
        self._turn = turn
        self._growing = GrowingReply()
        self._reading = reading
        self._output = None if reading is None else _builder(turn, reading.parser)

    @property
    def text(self) -> str:
        """What came, as it was said."""
        return self._growing.text

    @property
    def ids(self) -> tuple[int, ...]:
        """The ids up to the last that showed."""
        return self._growing.ids

    @property
    def is_empty(self) -> bool:
        """Whether nothing was shown yet."""
        return self._growing.num_deltas == 0

    @property
    def pieces(self) -> list[Any]:
        """How it was shown, as it is stored."""
        if self._output is not None:
            return [item.to_stored() for item in self._output.items]
        return list(self._growing.delta_lengths)

    @property
    def num_reasoning_tokens(self) -> int:
        """Of what was told apart as reasoning."""
        return 0 if self._output is None else self._output.num_reasoning_tokens

    def begin(self, partial_reply: PartialReply | None) -> tuple[TurnEvent, ...]:
        """What is shown before anything comes; a reply that goes on begins with what there was."""
        lead: list[TurnEvent] = [] if self._output is None else [*self._output.begin()]
        if partial_reply is None:
            return tuple(lead)
        return (*lead, *self._shown(self._growing.begin(partial_reply), partial_reply.ids))

    def take(self, came: GenerationDelta) -> tuple[TurnEvent, ...]:
        """Add what came."""
        likelihoods: Likelihoods = ()
        if self._reading is not None:
            likelihoods = likelihoods_of(came.logprobs, self._reading.spell)
        return self._shown(self._growing.take(came), came.token_ids, likelihoods)

    def finish(self, finished: GenerationFinished) -> tuple[TurnEvent, ...]:
        """Add what the end brought."""
        return self._shown(self._growing.finish(finished), ())

    def onto(self, turn: Turn) -> Turn:
        """The turn with the reply as far as it is."""
        if self._output is not None:
            return replace(turn, reply_text=self.text, output=self._output.items)
        return self._growing.onto(turn)

    def close(self, ended: Turn) -> tuple[Turn, tuple[TurnEvent, ...]]:
        """The ended turn with its whole reply, and what is told last."""
        if self._output is None or ended.terms.has_reply is False:
            return ended, closing(ended)
        last: list[TurnEvent] = []
        if ended.status is not TurnStatus.FAILED:
            is_complete = ended.status is TurnStatus.COMPLETED
            last += self._output.finish(is_complete=is_complete)
        ended = replace(ended, output=self._output.items)
        return ended, (*last, *ending(ended))

    def _shown(
        self, text: str, ids: Sequence[int], likelihoods: Likelihoods = ()
    ) -> tuple[TurnEvent, ...]:
        if self._output is not None and self._reading is not None:
            told = text + self._reading.unseen(ids)
            return tuple(self._output.feed(told, len(ids), likelihoods))
        if not text:
            return ()
        return delta(self._turn, text, is_first=self._growing.num_deltas == 1)


def _builder(turn: Turn, parser: ReplyParser) -> OutputBuilder:
    lead: list[OutputItem] = []
    new_id = partial(new_id_of_kind, now=turn.created_at)
    if turn.terms.summary is not None:
        kind = ItemKind.COMPACTION
        summary = turn.terms.summary
        lead.append(OutputItem(id=new_id(kind), kind=kind, text=summary, status="completed"))
    return OutputBuilder(parser, new_id, message_id=turn.reply_item_id, lead=lead)
