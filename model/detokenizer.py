"""From sampled ids to text, a token at a time, and where a stop string cuts it.

Only whole characters come out: while the last bytes are the beginning of an emoji or a CJK
character, they wait for the rest. Text that may yet become a stop string waits too.

Invariants:
    what `push` and `finish` return adds up to the reply's text
    text once returned is never taken back
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

Decode = Callable[[list[int]], str]
"""Ids to text, special tokens left out, nothing else cleaned up."""

_REPLACEMENT = "\N{REPLACEMENT CHARACTER}"
_MAX_PENDING = 8
"""No character takes more tokens than this; bytes that stay broken longer are broken."""


class IncrementalDecoder:
    """Decodes a growing list of ids. Tokenizers join neighbours, so a token's text is the
    difference between decoding a short window with and without it."""

    def __init__(self, decode: Decode) -> None:
        self._decode = decode
        self._window: list[int] = []  # the last whole tokens, then those that wait
        self._num_whole = 0

    @property
    def has_pending(self) -> bool:
        """Whether bytes wait for the rest of their character."""
        return len(self._window) > self._num_whole

    def push(self, token_id: int) -> str:
        """Add a token; the text that became whole."""
        self._window.append(token_id)
        text = self._new_text()
        is_waiting = text.endswith(_REPLACEMENT)
        if is_waiting and len(self._window) - self._num_whole < _MAX_PENDING:
            return ""
        self._settle()
        return text

    def finish(self) -> str:
        """What still waits; a character that never became whole is left out."""
        text = self._new_text().rstrip(_REPLACEMENT)
        self._settle()
        return text

    def _new_text(self) -> str:
        before = self._decode(self._window[: self._num_whole])
        return self._decode(self._window)[len(before) :]

    def _settle(self) -> None:
        # One settled run is context enough: a tokenizer's joining looks at direct neighbours.
        self._window = self._window[self._num_whole :]
        self._num_whole = len(self._window)


class StopMatcher:
    """Finds the first stop string in a growing text, holding back what may be its beginning."""

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = tuple(stops)
        self._held = ""

    def push(self, text: str) -> tuple[str, bool]:
        """Add text; what may be shown, and whether a stop string ended the text behind it."""
        self._held += text
        places = [at for stop in self._stops if (at := self._held.find(stop)) >= 0]
        if places:
            shown, self._held = self._held[: min(places)], ""
            return shown, True
        num_held = self._num_held()
        split = len(self._held) - num_held
        shown, self._held = self._held[:split], self._held[split:]
        return shown, False

    def finish(self) -> str:
        """What was held back and is no stop string after all."""
        shown, self._held = self._held, ""
        return shown

    def _num_held(self) -> int:
        for num in range(min(len(self._held), max(map(len, self._stops), default=0)), 0, -1):
            tail = self._held[-num:]
            if any(stop.startswith(tail) for stop in self._stops):
                return num
        return 0


@dataclass(frozen=True, slots=True)
class Cut:
    """Where a stop string ends a reply: so many whole tokens, then this text of the next one."""

    num_tokens: int
    rest: str


class ReplyText:
    """The text of one reply as it grows, with the places where tokens end."""

    def __init__(self, decode: Decode, stops: Sequence[str]) -> None:
        self._decoder = IncrementalDecoder(decode)
        self._matcher = StopMatcher(stops)
        self._decoded = ""
        self._num_shown = 0
        self._ends = [0]  # decoded length behind token i, -1 where a character is in the making

    @property
    def text(self) -> str:
        """What was shown."""
        return self._decoded[: self._num_shown]

    @property
    def num_final_tokens(self) -> int:
        """Tokens whose whole text has been shown: no stop string can cut them any more."""
        ends = self._ends
        return next(i for i in reversed(range(len(ends))) if 0 <= ends[i] <= self._num_shown)

    def push(self, token_id: int) -> tuple[str, bool]:
        """Add a token; the text to show, and whether a stop string ended the reply."""
        text = self._decoder.push(token_id)
        self._decoded += text
        self._ends.append(-1 if self._decoder.has_pending else len(self._decoded))
        shown, is_stopped = self._matcher.push(text)
        return self._show(shown), is_stopped

    def finish(self) -> tuple[str, bool]:
        """No token follows: the text that was held back, and whether a stop string ends it."""
        rest = self._decoder.finish()
        self._decoded += rest
        self._ends[-1] = len(self._decoded)
        shown, is_stopped = self._matcher.push(rest)
        return self._show(shown if is_stopped else shown + self._matcher.finish()), is_stopped

    def cut(self) -> Cut:
        """Where the shown text ends, in tokens."""
        num_tokens = self.num_final_tokens
        return Cut(num_tokens, self._decoded[self._ends[num_tokens] : self._num_shown])

    def _show(self, text: str) -> str:
        self._num_shown += len(text)
        return text
