"""Text as it is searched: without case and accents, the same on every database. Pure.

Invariant: `fold(text)` has as many characters as `composed(text)`, so that a place in one is the
same place in the other.
"""

import re
import unicodedata
from collections.abc import Sequence

_NUM_CHARS_BEFORE = 40
_NUM_CHARS = 160
_LETTER = r"[^\W_]"


def composed(text: str) -> str:
    """The text with each accent in its letter, where there is a character for both."""
    return unicodedata.normalize("NFC", text)


def fold(text: str) -> str:
    """The text without case and accents."""
    return composed(text).translate(_Folded())


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
    whole = composed(text)
    found = list(_pattern(words).finditer(fold(text)))
    first = found[0].start() if found else 0
    start = max(0, first - _NUM_CHARS_BEFORE)
    if start:
        start = min(whole.find(" ", start, first) + 1 or start, first)
    end = min(len(whole), start + _NUM_CHARS)
    lead = "…" if start else ""
    shift = len(lead) - start
    places = [(m.start() + shift, m.end() + shift) for m in found if m.end() <= end]
    return lead + whole[start:end] + ("…" if end < len(whole) else ""), tuple(places)


def _pattern(words: Sequence[str]) -> re.Pattern[str]:
    runs = [run for word in words for run in re.findall(f"{_LETTER}+", fold(word))]
    if not runs:
        return re.compile(r"(?!)")
    *before, last = map(re.escape, runs)
    choices = [rf"{run}(?!{_LETTER})" for run in before] + [rf"{last}{_LETTER}*"]
    return re.compile(rf"(?<!{_LETTER})(?:{'|'.join(choices)})")
