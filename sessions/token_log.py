"""The token log: the exact ids that every turn fed and sampled, never encoded twice.

A turn's log is the first `keep_tokens` of its base's log, then its own ids; its base is the turn
whose log it was built on. The whole history of a turn is therefore a walk along bases.

Invariants:
    the ids of an ended turn never change
    `num_prompt_tokens` splits a log into what was fed and what was sampled
"""

import sys
from array import array
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from sessions.types import TurnId


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenSpan:
    """One turn's own part of the log, and where it leaves its base's."""

    turn_id: TurnId
    base_id: TurnId | None
    keep_tokens: int
    num_prompt_tokens: int
    ids: tuple[int, ...]
    fingerprint: str

    @property
    def prompt_ids(self) -> tuple[int, ...]:
        """Those of its own ids that were fed."""
        return self.ids[: self.num_prompt_tokens - self.keep_tokens]

    @property
    def reply_ids(self) -> tuple[int, ...]:
        """Those that were sampled; all of them are its own."""
        return self.ids[self.num_prompt_tokens - self.keep_tokens :]


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnLog:
    """A turn's whole log, from the conversation's first token on."""

    span: TokenSpan
    token_ids: tuple[int, ...]


def unroll(spans: Iterable[TokenSpan]) -> tuple[int, ...]:
    """The whole ids of the last span, given the chain of its bases, oldest first."""
    token_ids: list[int] = []  # cut and grown in place: a long chat has thousands of spans
    for span in spans:
        assert span.keep_tokens <= len(token_ids), f"{span.turn_id} keeps more than there is"
        token_ids[span.keep_tokens :] = span.ids
    return tuple(token_ids)


def common_prefix(first: Sequence[object], second: Sequence[object]) -> int:
    """How many leading items two sequences share."""
    most = min(len(first), len(second))
    if first[:most] == second[:most]:
        return most
    return next((n for n in range(most) if first[n] != second[n]), most)


def common_spelling(first: Sequence[str], second: Sequence[str]) -> tuple[int, int]:
    """How many leading pieces of each make up the longest text that both begin with."""
    numbers = (0, 0)
    ahead = 0  # characters that the first has more of than the second, up to here
    tail = ""  # those characters, of whichever has more
    i = j = 0
    while i < len(first) or j < len(second):
        if ahead <= 0 and i < len(first):
            piece, sign = first[i], 1
            i += 1
        elif ahead > 0 and j < len(second):
            piece, sign = second[j], -1
            j += 1
        else:
            break
        if ahead * sign >= 0:
            tail += piece
        elif tail.startswith(piece):
            tail = tail[len(piece) :]
        elif piece.startswith(tail):
            tail = piece[len(tail) :]
        else:
            break
        ahead += sign * len(piece)
        if ahead == 0:
            numbers = (i, j)
    return numbers


def pack_ids(token_ids: Iterable[int]) -> bytes:
    """Ids as stored: int32, little-endian."""
    packed = array("i", token_ids)
    if sys.byteorder == "big":
        packed.byteswap()
    return packed.tobytes()


def unpack_ids(data: bytes) -> tuple[int, ...]:
    """The inverse of `pack_ids`."""
    packed = array("i")
    packed.frombytes(data)
    if sys.byteorder == "big":
        packed.byteswap()
    return tuple(packed)


class RecentLogs:
    """Whole logs of the turns used last, so that a chat need not read its history each turn.

    Bounded by the tokens it holds; what falls out is read from the store again. Safe because an
    ended turn's log never changes: only ended turns' logs may be put in.
    """

    def __init__(self, max_tokens: int) -> None:
        self._max_tokens = max_tokens
        self._num_tokens = 0
        self._logs: OrderedDict[TurnId, TurnLog] = OrderedDict()

    def get(self, turn_id: TurnId) -> TurnLog | None:
        """The log, which is then the most recently used one."""
        log = self._logs.get(turn_id)
        if log is not None:
            self._logs.move_to_end(turn_id)
        return log

    def put(self, log: TurnLog) -> None:
        """Keep a log, and drop the least recently used ones that no longer fit."""
        self.drop(log.span.turn_id)
        self._logs[log.span.turn_id] = log
        self._num_tokens += len(log.token_ids)
        while self._num_tokens > self._max_tokens:
            _, oldest = self._logs.popitem(last=False)
            self._num_tokens -= len(oldest.token_ids)

    def drop(self, turn_id: TurnId) -> None:
        """Forget a log, if it is there."""
        log = self._logs.pop(turn_id, None)
        if log is not None:
            self._num_tokens -= len(log.token_ids)
