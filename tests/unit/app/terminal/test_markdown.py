"""Markdown drawn piece by piece comes to what it would be drawn as a whole."""

import io
import re

import pytest
from rich.console import Console

from app.terminal.markdown import GrowingMarkdown, clean, split_blocks

REPLY = """# Three things

One is **this**.

1. first

   still first
2. second

```python
a = 1

b = 2
```

The end.
"""


def drawn(pieces):
    console = Console(file=io.StringIO(), force_terminal=True, width=40, color_system=None)
    with GrowingMarkdown(console) as reply:
        for piece in pieces:
            reply.add(piece)
    return console.file.getvalue()


def last_lines(text):
    """What is left to read on a terminal: cursor up, clear line and the rest of the codes."""
    lines, row = [""], 0
    for part in re.findall(r"\x1b\[[?\d;]*[A-Za-z]|\n|\r|[^\x1b\n\r]+", text):
        if part == "\n":
            row += 1
            lines += [""] * (row == len(lines))
        elif part == "\x1b[1A":
            row -= 1
        elif part == "\x1b[2K":
            lines[row] = ""
        elif part[0] not in "\x1b\r":
            lines[row] += part
    return [line.strip() for line in lines if line.strip()]


def test_a_block_is_whole_when_another_has_begun_behind_a_blank_line():
    assert split_blocks("one\n\ntwo") == (["one"], "two")
    assert split_blocks("one\n\n") == ([], "one\n\n")
    assert split_blocks("one\ntwo") == ([], "one\ntwo")


def test_a_fence_is_one_block_whatever_is_in_it():
    text = "```\na\n\nb\n\n~~~\n```\n\nbehind"

    assert split_blocks(text) == (["```\na\n\nb\n\n~~~\n```"], "behind")


def test_what_is_indented_belongs_to_what_is_above_it():
    assert split_blocks("- a\n\n  b\n\nc") == (["- a\n\n  b"], "c")


@pytest.mark.parametrize("size", [1, 7, 10_000])
def test_the_blocks_are_the_same_however_the_pieces_are_cut(size):
    rest, found = "", []
    for place in range(0, len(REPLY), size):
        blocks, rest = split_blocks(rest + REPLY[place : place + size])
        found += blocks

    assert found[0] == "# Three things"
    assert found[-1] == "```python\na = 1\n\nb = 2\n```"
    assert rest.strip() == "The end."


def test_what_is_drawn_in_pieces_has_every_line_once():
    shown = last_lines(drawn(REPLY[i : i + 3] for i in range(0, len(REPLY), 3)))

    for line in ("One is this.", "a = 1", "b = 2", "The end."):
        assert sum(line in seen for seen in shown) == 1, shown


def test_a_reply_of_nothing_draws_nothing():
    assert drawn([]) == ""
    assert drawn(["", "\n"]) == ""


def test_a_model_cannot_steer_the_terminal():
    assert clean("a\x1b[2Jb\x07\x9b1mc\r\n\td") == "a[2Jb1mc\n\td"
    assert "\x1b]0;" not in drawn(["\x1b]0;owned\x07 hello"])
