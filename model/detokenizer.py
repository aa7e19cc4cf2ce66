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
_MAX_WAITING = 8
"""No character takes more tokens than this; bytes that stay broken longer are broken."""
_MAX_WINDOW = 8


class IncrementalDecoder:
    """Decodes a growing list of ids. Tokenizers join neighbours, so a token's text is what it adds
    to the text of the last few."""

    def __init__(self, decode: Decode) -> None:
        self._decode = decode
        self._window: list[int] = []
        self._num_whole = 0  # tokens of the window with no byte that waits
        self._num_shown = 0  # characters of its text

    @property
    def has_waiting(self) -> bool:
        """Whether bytes wait for the rest of their character."""
        return len(self._window) > self._num_whole

    def push(self, token_id: int) -> str:
        """Add a token; the text that became whole. What waits at the end never became any."""
        self._window.append(token_id)
        text = self._decode(self._window)
        whole = text.rstrip(_REPLACEMENT)
        if whole != text and len(self._window) - self._num_whole >= _MAX_WAITING:
            whole = text[:-1]
        shown = whole[self._num_shown :]
        self._num_shown = max(self._num_shown, len(whole))
        if whole == text:
            self._settle(has_text=bool(shown))
        elif shown:
            self._num_whole = len(self._window) - 1  # of the last token only the end waits
        return shown

    def _settle(self, *, has_text: bool) -> None:
        """Nothing waits: keep the window short."""
        last_run = self._window[self._num_whole :]
        if self._num_shown and not has_text:
            self._window.pop()  # a special token, which is left out of texts, joins nothing
        elif len(self._window) > _MAX_WINDOW and (text := self._decode(last_run)):
            self._window, self._num_shown = last_run, len(text)
        self._num_whole = len(self._window)


class StopMatcher:
    """Finds the first stop string in a growing text, holding back what may be its beginning."""

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = tuple(stops)
        self._held = ""

    def push(self, text: str) -> tuple[str, bool]:
        """Add text; what may be shown, and whether a stop string ended the text behind it."""
        self._held += text
        places = [(at + len(s), at) for s in self._stops if (at := self._held.find(s)) >= 0]
        if places:
            # The one that was complete first, so that it doesn't matter where tokens end.
            _, at = min(places)
            shown, self._held = self._held[:at], ""
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
        self._ends.append(-1 if self._decoder.has_waiting else len(self._decoded))
        shown, is_stopped = self._matcher.push(text)
        return self._show(shown), is_stopped

    def finish(self) -> str:
        """No token follows: the text that was held back. Bytes that still wait are left out."""
        self._ends[-1] = len(self._decoded)
        return self._show(self._matcher.finish())

    def cut(self) -> Cut:
        """Where the shown text ends, in tokens."""
        num_tokens = self.num_final_tokens
        return Cut(num_tokens, self._decoded[self._ends[num_tokens] : self._num_shown])

    def _show(self, text: str) -> str:
        self._num_shown += len(text)
        return text
