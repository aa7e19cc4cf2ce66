"""How deep JSON values stand in each other: who writes them again, or renders them, recurses."""

from typing import Final

MAX_NESTING: Final = 200
"""Levels; the writer of answers takes 254, and an answer stands around what it repeats."""


def is_too_deep(value: object, text: str | bytes) -> bool:
    """Whether a value, read from this text, has more than `MAX_NESTING` levels."""
    num_opened = (
        text.count("[") + text.count("{")
        if isinstance(text, str)
        else text.count(b"[") + text.count(b"{")
    )
    if num_opened <= MAX_NESTING:
        return False
    level: list[object] = [value]
    for _ in range(MAX_NESTING + 1):
        level = [child for each in level for child in _children(each)]
        if not level:
            return False
    return True


def _children(value: object) -> list[object]:
    if isinstance(value, dict):
        return list(value.values())
    return value if isinstance(value, list) else []
