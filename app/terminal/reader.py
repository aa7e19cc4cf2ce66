"""Where a chat's lines come from: the keyboard, with history and editing as in a shell."""

import contextlib
from pathlib import Path
from typing import Protocol

MAX_HISTORY_LINES = 1000


class Reader(Protocol):
    """Gives one message after the other."""

    def read(self, prompt: str, *, prefill: str = "") -> str:
        """The next message, `prefill` being there to edit. Raises EOFError behind the last, and
        KeyboardInterrupt at a Ctrl-C."""
        ...


class KeyboardReader:
    """Reads with readline; a line that ends in a backslash goes on in the next.

    What was typed is kept in `history`, a file that only its owner can read.
    """

    def __init__(self, history: Path) -> None:
        import readline  # importing it changes how `input` reads

        self._readline = readline
        self._history = history
        with contextlib.suppress(OSError):  # none yet; or one that can't be kept, which is no loss
            history.parent.mkdir(parents=True, exist_ok=True)
            history.touch(mode=0o600)
            readline.read_history_file(history)

    def read(self, prompt: str, *, prefill: str = "") -> str:
        """The next message."""
        self._readline.set_startup_hook(lambda: self._readline.insert_text(prefill))
        try:
            lines = [input(prompt)]
        finally:
            self._readline.set_startup_hook(None)
        while lines[-1].endswith("\\"):
            lines[-1] = lines[-1].removesuffix("\\")
            lines.append(input("… "))
        self._keep()
        return "\n".join(lines)

    def _keep(self) -> None:
        self._readline.set_history_length(MAX_HISTORY_LINES)
        with contextlib.suppress(OSError):
            self._readline.write_history_file(self._history)
