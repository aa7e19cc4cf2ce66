"""How likely a reply's tokens were, each told with the piece of the answer's text it made. Pure.

Text comes later than its tokens: half a character waits, and so does what may yet become a stop
string, a tag or a call. So tokens wait for their text and are known by their bytes in it.

Invariants:
    every token is told at most once, in order, and only with text of the answer's: those of
    reasoning, tags, calls, the end, and of what a stop string cut off are nobody's
    where the tokenizer says what tokens stand for, those that are told spell the text, but for the
    rest of a token that a stop string cut
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from model.messages import SampledLogprobs
from sessions.reply_parser import ReasoningDelta, ReplyEvent, TextDelta
from sessions.token_text import TokenText

NEVER = -9999.0
"""OpenAI's stand-in for minus infinity, which JSON has not."""


@dataclass(frozen=True, slots=True)
class TokenLikelihood:
    """How likely a token was, and which others would have been likelier or nearly so."""

    token_id: int
    token: TokenText
    logprob: float
    likeliest: tuple[tuple[TokenText, float], ...]

    def to_stored(self) -> list[Any]:
        """As JSON; bytes in hexadecimal."""
        others = [[token.data.hex(), logprob] for token, logprob in self.likeliest]
        return [self.token_id, self.token.data.hex(), self.logprob, others]

    @classmethod
    def of_stored(cls, stored: Sequence[Any]) -> "TokenLikelihood":
        """The inverse of `to_stored`."""
        token_id, data, logprob, others = stored
        likeliest = tuple((_of_hex(other), likelihood) for other, likelihood in others)
        return cls(token_id, _of_hex(data), logprob, likeliest)


Likelihoods = tuple[TokenLikelihood, ...]


def likelihoods_of(
    logprobs: Sequence[SampledLogprobs], spell: Callable[[Sequence[int]], list[TokenText]]
) -> Likelihoods:
    """The engine's log probabilities, with what the tokens say."""
    entries: list[TokenLikelihood] = []
    for each in logprobs:
        tokens = spell([each.sampled.token_id, *(one.token_id for one in each.likeliest)])
        others = zip(tokens[1:], (_told(one.logprob) for one in each.likeliest), strict=True)
        sampled = each.sampled
        entries.append(
            TokenLikelihood(sampled.token_id, tokens[0], _told(sampled.logprob), tuple(others))
        )
    return tuple(entries)


class AnswerLikelihoods:
    """Those of one reply."""

    def __init__(self) -> None:
        self._waiting: list[TokenLikelihood] = []
        self._rest = b""  # of the last that was told, whose text has not all come yet

    def share(
        self, came: Iterable[TokenLikelihood], events: Sequence[ReplyEvent]
    ) -> list[Likelihoods]:
        """Of each event those that made it; `came` are of the tokens that the events are from, or
        that have no text yet."""
        self._waiting += came
        if not self._waiting:
            return [()] * len(events)
        return [self._of(event) for event in events]

    def _of(self, event: ReplyEvent) -> Likelihoods:
        match event:
            case TextDelta(text):
                return self._made(text)
            case ReasoningDelta(text):
                self._skip(text)
            case _:
                self._waiting, self._rest = [], b""
        return ()

    def _made(self, text: str) -> Likelihoods:
        """Take those that a text is made of; what waits before them made none and goes, too."""
        pieces, told = [self._rest, *(each.token.data for each in self._waiting)], text.encode()
        begin, at = b"".join(pieces), _place_of(told, pieces)
        if at < 0:  # a tokenizer that doesn't say what its tokens stand for
            taken, self._waiting, self._rest = tuple(self._waiting), [], b""
            return taken
        place, num_gone, num_before = len(self._rest), 0, 0
        for each in self._waiting:
            if place >= at + len(told):
                break
            place += len(each.token.data)
            num_gone += 1
            num_before += place <= at
        self._rest = begin[at + len(told) : place]
        made, self._waiting = self._waiting[num_before:num_gone], self._waiting[num_gone:]
        return tuple(made)

    def _skip(self, text: str) -> None:
        """Drop those that a text is made of, but for one that more than the text is made of."""
        pieces, skipped = [each.token.data for each in self._waiting], text.encode()
        at, place, num_gone = _place_of(skipped, pieces), 0, 0
        end = sum(map(len, pieces)) if at < 0 else at + len(skipped)
        for each in self._waiting:
            place += len(each.token.data)
            num_gone += place <= end
        self._waiting, self._rest = self._waiting[num_gone:], b""


def _place_of(text: bytes, pieces: Sequence[bytes]) -> int:
    """Where a text stands in the pieces of what was written; -1: nowhere.

    What is shown begins where a piece does, but for blanks: within one that isn't shown, as a tag,
    the same letters may stand before it.
    """
    written, start = b"".join(pieces), 0
    for piece in pieces:
        at = start + len(piece) - len(piece.lstrip())
        for place in (start, at):
            if written.startswith(text, place):
                return place
        start += len(piece)
    return written.find(text)


def _told(logprob: float) -> float:
    return max(logprob, NEVER)


def _of_hex(data: str) -> TokenText:
    spelled = bytes.fromhex(data)
    return TokenText(spelled.decode(errors="replace"), spelled)
