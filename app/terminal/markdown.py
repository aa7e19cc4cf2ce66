"""A reply's Markdown, rendered while it grows.

What is whole is printed for good, block by block; only the last block is drawn again with each
piece. So a long reply scrolls as any output does, and costs no more to draw at its end than at its
beginning. What a model writes can't steer the terminal: control characters are left out.
"""

import unicodedata
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.live import Live
from rich.markdown import Markdown

_FENCES = ("```", "~~~")
_REFRESHES_PER_S = 12


def clean(text: str) -> str:
    """The text without control characters, of which line ends and tabs are none."""
    return "".join(c for c in text if c in "\n\t" or unicodedata.category(c) != "Cc")


def split_blocks(text: str) -> tuple[list[str], str]:
    """The blocks that can't change any more, and the rest.

    A block ends at a blank line outside of a code fence, once a line that is not indented has begun
    behind it; an indented one would belong to the block.
    """
    blocks: list[str] = []
    begin = place = 0
    fence = ""
    is_behind_blank = False
    for line in text.splitlines(keepends=True):
        mark = line.lstrip()[:3]
        if not fence and is_behind_blank and not line[:1].isspace():
            blocks.append(text[begin:place].strip("\n"))
            begin = place
        if mark in _FENCES and fence in ("", mark):
            fence = "" if fence else mark
        is_behind_blank = not line.strip()
        place += len(line)
    return [block for block in blocks if block], text[begin:]


class GrowingMarkdown:
    """One reply on the console; a context manager, for what is left is printed at its end."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._rest = ""
        self._live: Live | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._live is not None:
            self._finish(self._rest)

    def add(self, piece: str) -> None:
        """Draw more of the reply."""
        whole, self._rest = split_blocks(self._rest + clean(piece))
        for block in whole:
            self._finish(block)
            self._console.print()
        if self._rest.strip():
            self._draw(self._rest)

    def _draw(self, block: str) -> None:
        if self._live is None:
            self._live = Live(console=self._console, refresh_per_second=_REFRESHES_PER_S)
            self._live.start()
        self._live.update(Markdown(block))

    def _finish(self, block: str) -> None:
        self._draw(block)
        assert self._live is not None, "just drawn"
        self._live.stop()
        self._live = None
