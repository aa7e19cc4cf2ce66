"""Text as it is searched: without case and accents, the same on every database. Pure.

Invariant: `fold(text)` has as many characters as `composed(text)`, so that a place in one is the
same place in the other.
"""

import re
import unicodedata
from collections.abc import Sequence

_NUM_CHARS_BEFORE = 40
_NUM_CHARS = 160
_NUM_CHARS_AT_FIRST = 4096
_LETTER = r"[^\W_]"


def composed(text: str) -> str:
    """The text with each accent in its letter, where there is a character for both."""
    return unicodedata.normalize("NFC", text)


def fold(text: str) -> str:
    """The text without case and accents."""
    return _folded_text(composed(text))


def _folded_text(text: str) -> str:
    return text.translate(_Folded())


class _Folded(dict[int, str]):
    """Each character of a text is looked at once: a megabyte of them must not hold the loop."""

    def __missing__(self, code: int) -> str:
        folded = self[code] = _folded(chr(code))
        return folded


def _folded(character: str) -> str:
    if character.isascii():
        return character.lower()
    base = [c for c in unicodedata.normalize("NFD", character) if not unicodedata.combining(c)]
    plain = base[0] if len(base) == 1 else character
    small = plain.lower()
    return small if len(small) == 1 else plain


def excerpt(text: str, words: Sequence[str]) -> tuple[str, tuple[tuple[int, int], ...]]:
    """What stands around the first of the words, and where words stand in that.

    The last word may be the beginning of a longer one.
    """
    whole, pattern = composed(text), _pattern(words)
    first = _first_place(whole, pattern, longest=max(map(len, words), default=0))
    start = max(0, first - _NUM_CHARS_BEFORE)
    if start:
        start = min(whole.find(" ", start, first) + 1 or start, first)
    end = min(len(whole), start + _NUM_CHARS)
    lead = "…" if start else ""
    shift = len(lead) - start
    # With a character on either side, for a word ends where no letter follows.
    edge = max(0, start - 1)
    found = pattern.finditer(_folded_text(whole[edge : end + 1]))
    places = [(m.start() + edge, m.end() + edge) for m in found]
    inside = tuple((a + shift, b + shift) for a, b in places if start <= a and b <= end)
    return lead + whole[start:end] + ("…" if end < len(whole) else ""), inside


def _first_place(whole: str, pattern: re.Pattern[str], *, longest: int) -> int:
    """Where the pattern is first found, looked for piece by piece, for mostly that is near; 0 if it
    is nowhere."""
    begin, size = 0, _NUM_CHARS_AT_FIRST
    while begin < len(whole):
        edge, end = max(0, begin - 1), begin + size  # what is found there shows its neighbours
        for match in pattern.finditer(_folded_text(whole[edge : end + longest + 1])):
            if begin <= edge + match.start() < end:
                return edge + match.start()
        begin, size = end, 4 * size
    return 0


def _pattern(words: Sequence[str]) -> re.Pattern[str]:
    runs = [run for word in words for run in re.findall(f"{_LETTER}+", fold(word))]
    if not runs:
        return re.compile(r"(?!)")
    *before, last = map(re.escape, runs)
    choices = [rf"{run}(?!{_LETTER})" for run in before] + [rf"{last}{_LETTER}*"]
    return re.compile(rf"(?<!{_LETTER})(?:{'|'.join(choices)})")
