"""Whether a compiled step has ended a process that computed with it.

A fault in compiled code leaves no exception: the process is gone, and the next one would do the
same again. So Python's `faulthandler` writes each thread's stack into a file beside the step, and
whoever finds the step's own code among them leaves it alone. A process that is killed, for want of
memory or by hand, leaves nothing there.
"""

import faulthandler
import os
from collections.abc import Callable
from pathlib import Path

_FRAME = str(Path("compiled", "step.py"))
"""All of `step`'s calls into compiled code are in its file."""
_FAULT, _CURRENT = "Fatal Python error", "Current thread"
"""What each fault begins with, and the stack of the thread that had it."""
_MAX_BYTES = 1 << 16
"""So much of other faults is kept."""


SUFFIX = ".faults"


def faults_in(folder: Path) -> tuple[Path, ...]:
    """The files in a folder of steps that tell of one that ended a process. Raises OSError."""
    return tuple(p for p in sorted(folder.glob(f"*{SUFFIX}")) if FaultLog(p).names_step)


class FaultLog:
    """Where faults of the processes that use one step are written down, and looked for."""

    def __init__(self, path: Path, watch: Callable[[int], None] = faulthandler.enable) -> None:
        """`watch` has this process's faults written to an open file, given by its descriptor."""
        self.path = path
        self._watch = watch
        self._is_open = False

    @property
    def names_step(self) -> bool:
        """Whether a process ended in a compiled step. Raises OSError."""
        if not self.path.exists():
            return False
        faults = self.path.read_text(errors="replace").split(_FAULT)
        return any(_FRAME in _culprit(fault) for fault in faults)

    def open(self) -> None:
        """From now on, and as long as this process lives, its faults are written there. Raises
        OSError."""
        if self._is_open:
            return
        # Appended, for other processes write there, too; and never closed.
        fd = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o666)
        if os.fstat(fd).st_size > _MAX_BYTES:
            os.ftruncate(fd, 0)
        self._watch(fd)
        self._is_open = True

    def remove(self) -> None:
        """Forget the faults of a step that is forgotten."""
        self.path.unlink(missing_ok=True)


def _culprit(fault: str) -> str:
    """The stack of the thread that had it; of all, where that is none of Python's, as the compiled
    code's own threads aren't."""
    _, current, stack = fault.partition(_CURRENT)
    return stack.partition("\n\n")[0] if current else fault
