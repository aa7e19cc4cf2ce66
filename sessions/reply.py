"""A reply while it grows: what was shown of it, and the ids behind that.

Invariant: the deltas' texts add up to `text`; `ids` are those that made it, and none beyond.
"""

from dataclasses import dataclass, field, replace

from model.messages import GenerationDelta, GenerationFinished
from sessions.types import Turn
from sessions.validation import storable


@dataclass(frozen=True, slots=True, kw_only=True)
class PartialReply:
    """What a reply begins with that goes on where another was cut."""

    text: str
    ids: tuple[int, ...] = field(repr=False)


def partial_reply(cut: Turn, ids: tuple[int, ...]) -> PartialReply:
    """The beginning that a cut turn's reply makes, of these ids.

    Its last characters are left to the engine if they may yet become a stop string: it will hold
    them back again.
    """
    text = cut.reply_text
    longest = max(map(len, cut.params.stop), default=0)
    for size in range(min(len(text), longest), 0, -1):
        if any(stop.startswith(text[-size:]) for stop in cut.params.stop):
            return PartialReply(text=text[:-size], ids=ids)
    return PartialReply(text=text, ids=ids)


class GrowingReply:
    """Takes deltas in; says how much there is."""

    def __init__(self) -> None:
        self._texts: list[str] = []
        self._ids: list[int] = []
        self._num_shown_ids = 0

    @property
    def num_deltas(self) -> int:
        """Pieces shown so far."""
        return len(self._texts)

    @property
    def text(self) -> str:
        """What was shown."""
        return "".join(self._texts)

    @property
    def delta_lengths(self) -> tuple[int, ...]:
        """In characters."""
        return tuple(len(text) for text in self._texts)

    @property
    def ids(self) -> tuple[int, ...]:
        """The ids up to the last that showed: behind them half a character may be waiting."""
        return tuple(self._ids[: self._num_shown_ids])

    def begin(self, partial: PartialReply) -> str:
        """Begin with what another reply had; the text to show, which may be empty."""
        self._ids = list(partial.ids)
        return self._show(partial.text)

    def take(self, delta: GenerationDelta) -> str:
        """Add a delta; the text to show, which may be empty."""
        self._ids += delta.token_ids
        return self._show(storable(delta.text))

    def finish(self, finished: GenerationFinished) -> str:
        """Replace the ids by the committed ones; the rest of the text, still to be shown."""
        text, shown = storable(finished.text), self.text
        assert text.startswith(shown), f"more was shown than the reply's {len(text)} characters"
        self._ids = list(finished.token_ids)
        self._num_shown_ids = len(self._ids)
        return self._show(text[len(shown) :])

    def onto(self, turn: Turn) -> Turn:
        """The turn with the reply as far as it is."""
        return replace(turn, reply_text=self.text, delta_lengths=self.delta_lengths)

    def _show(self, text: str) -> str:
        if text:
            self._texts.append(text)
            self._num_shown_ids = len(self._ids)
        return text
