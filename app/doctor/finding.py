"""What a check found: good, worth a look, or in the way; and what to do."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum


class Level(StrEnum):
    """`fail`: the server won't start, or won't be able to work."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the report; `advice` is empty where there is nothing to do."""

    area: str
    level: Level
    text: str
    advice: str = ""


class Findings:
    """What was found in one area, in order."""

    def __init__(self, area: str) -> None:
        self._area = area
        self.all: list[Finding] = []

    def ok(self, text: str) -> None:
        """Nothing to do."""
        self.all.append(Finding(self._area, Level.OK, text))

    def warn(self, text: str, advice: str) -> None:
        """It works, but not well, or not yet."""
        self.all.append(Finding(self._area, Level.WARN, text, advice))

    def fail(self, text: str, advice: str = "") -> None:
        """It won't work."""
        self.all.append(Finding(self._area, Level.FAIL, text, advice))

    @contextmanager
    def failing(self, *kinds: type[Exception], advice: str = "") -> Iterator[None]:
        """Let these exceptions of the block be failures; their messages say what to do."""
        try:
            yield
        except kinds as exc:
            self.fail(str(exc), advice)


def size(num_bytes: float) -> str:
    """Bytes as a person says them."""
    for unit in ("bytes", "KiB", "MiB"):
        if num_bytes < 1024:
            return f"{num_bytes:.0f} {unit}"
        num_bytes /= 1024
    return f"{num_bytes:.1f} GiB"
