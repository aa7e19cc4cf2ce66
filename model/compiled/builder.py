"""Has a model's step compiled, once for this machine, and takes it up when it is there.

A thread of the engine's process looks whether the step is on disk. If not, it waits until nobody
has computed for a while, and until no other process on this machine compiles, and starts one of
its own with the lowest priority; if somebody waits for it, at once and with its own priority. What
is there is checked before it is used; whatever goes wrong leaves the engine as it was, with a
reason. A step that has ended a process isn't used again.
"""

import logging
import os
import pickle
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import filelock
from safetensors import SafetensorError

from model.batch import Batch
from model.compiled.faults import SUFFIX, FaultLog
from model.compiled.folder import DamagedStepError, check, discard, publish
from model.compiled.order import BuildOrder
from model.compiled.step import CompiledStep
from model.messages import CompiledState, CompiledStats

logger = logging.getLogger(__name__)

IDLE_S = 10.0
"""So long nobody has computed before a step is compiled: it takes a core for half a minute."""
_LOOK_S = 1.0
_TIMEOUT_S = 1800.0
_MAX_STEPS = 8
"""So many compiled steps are kept, those of other models and versions among them."""
_BUILDING = "step-build-"
_COMMAND = (sys.executable, "-m", "model.compiled.build")


class CompileError(Exception):
    """Why there is no compiled step."""


# What torch's loader finds wrong is a RuntimeError, what `load` does a ValueError.
_FAILURES = (
    CompileError,
    DamagedStepError,
    OSError,
    RuntimeError,
    SafetensorError,
    ValueError,
    subprocess.SubprocessError,
)


@dataclass(frozen=True, slots=True)
class Site:
    """Where steps lie and are made. `faults` is where those of one are looked for, by its path."""

    folder: Path
    clock: Callable[[], float] = time.monotonic
    wait: Callable[[float], object] = time.sleep
    command: tuple[str, ...] = _COMMAND
    faults: Callable[[Path], FaultLog] = FaultLog


class StepBuilder:
    """One model's compiled step. The thread that builds puts it there whole, and the thread that
    computes looks for it before each step, so nothing changes within one. `load` raises
    RuntimeError, OSError or ValueError for a step that can't be used."""

    def __init__(
        self,
        name: str,
        order: BuildOrder,
        load: Callable[[Path], CompiledStep],
        site: Site,
    ) -> None:
        self._step: CompiledStep | None = None
        self._num_steps = 0
        self._used_s = site.clock()
        self._order = order
        self._load_checked = load
        self._site = site
        self._folder = site.folder / f"step-{name}"
        self._faults = site.faults(_fault_path(self._folder))
        self._state = CompiledState.WAITING
        self._reason: str | None = None

    def stats(self) -> CompiledStats:
        """How it stands."""
        return CompiledStats(state=self._state, reason=self._reason, num_steps=self._num_steps)

    def step_for(self, batch: Batch) -> CompiledStep | None:
        """See `StepSource`."""
        self._used_s = self._site.clock()
        step = self._step
        if step is None or not step.takes(batch):
            return None
        self._num_steps += 1
        return step

    def give_up(self, reason: str) -> None:
        """See `StepSource`."""
        self._step = None
        self._state, self._reason = CompiledState.UNAVAILABLE, reason
        logger.warning("the compiled step failed and is used no more: %s", reason)

    def start(self) -> None:
        """Let a thread see to it."""
        threading.Thread(target=self.obtain, name="step-builder", daemon=True).start()

    def obtain(self, *, at_once: bool = False) -> None:
        """Load the step, compiled first where it must be; returns when it can be used, or never
        will be. `at_once`: whoever computes."""
        try:
            self._refuse_faulty()
            self._step = self._load() or self._compile(at_once=at_once)
        except _FAILURES as exc:
            self._state, self._reason = CompiledState.UNAVAILABLE, str(exc)
            logger.warning("the model's step stays as it is, not compiled: %s", exc)
        except Exception as exc:
            # A bug of ours or of torch's, of which the engine must not die.
            self._state, self._reason = CompiledState.UNAVAILABLE, f"{type(exc).__name__}: {exc}"
            logger.exception("the model's step stays as it is, not compiled")
        else:
            self._state = CompiledState.READY
            logger.info("the compiled step is in use")

    def _refuse_faulty(self) -> None:
        if self._faults.names_step:
            raise CompileError(
                f"it ended a process that computed with it, as {self._faults.path} tells; "
                "remove that file to try it again"
            )

    def _load(self) -> CompiledStep | None:
        """The step on disk, if it is there and whole."""
        if not self._folder.exists():
            return None
        try:
            check(self._folder)
        except DamagedStepError as exc:
            logger.warning("a compiled step is damaged and will be compiled again: %s", exc)
            discard(self._folder)
            return None
        self._faults.open()  # loading runs its code
        return self._load_checked(self._folder)

    def _compile(self, *, at_once: bool) -> CompiledStep:
        self._site.folder.mkdir(parents=True, exist_ok=True)
        lock = filelock.FileLock(self._site.folder / "step.lock")
        while True:
            if at_once or self._site.clock() - self._used_s >= IDLE_S:
                with suppress(filelock.Timeout), lock.acquire(timeout=0):
                    return self._compile_alone(replace(self._order, is_urgent=at_once))
            self._site.wait(_LOOK_S)

    def _compile_alone(self, order: BuildOrder) -> CompiledStep:
        """With the lock held, under which another process may have been first."""
        step = self._load()
        if step is not None:
            return step
        if not order.compiler:
            raise CompileError("no C++ compiler is installed")
        self._state = CompiledState.BUILDING
        when = "before anybody is served" if order.is_urgent else "in the background"
        logger.info("compiling the model's step for this machine, once, %s", when)
        for left in self._site.folder.glob(f"{_BUILDING}*"):
            discard(left)  # by a process that was killed
        with tempfile.TemporaryDirectory(dir=self._site.folder, prefix=_BUILDING) as name:
            target = Path(name) / "step"
            target.mkdir()
            _run((*self._site.command, str(target)), order)
            check(target)
            publish(target, self._folder)
        self._forget_old()
        step = self._load()
        if step is None:
            raise CompileError("what was compiled is gone")
        return step

    def _forget_old(self) -> None:
        steps = [p for p in self._site.folder.glob("step-*") if (p / "seal.json").exists()]
        for old in sorted(steps, key=lambda p: p.stat().st_mtime)[:-_MAX_STEPS]:
            discard(old)
            FaultLog(_fault_path(old)).remove()


def _fault_path(folder: Path) -> Path:
    return folder.with_name(folder.name + SUFFIX)


def _run(command: tuple[str, ...], order: BuildOrder) -> None:
    """Compile in a process of its own. Raises CompileError with what it says, if it fails."""
    with (
        tempfile.TemporaryFile() as said,
        subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=said,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # it ends its own compilers, when it must
        ) as process,
    ):
        assert process.stdin is not None
        try:
            with suppress(BrokenPipeError):  # it ended before it had read it: then it says why
                process.stdin.write(pickle.dumps(order, protocol=pickle.HIGHEST_PROTOCOL))
                process.stdin.flush()
            # Its standard input stays open: that is how it knows that somebody waits.
            code = process.wait(_TIMEOUT_S)
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
        said.seek(0)
        reason = said.read().decode(errors="replace").strip()
    if code < 0:
        raise CompileError(f"the process that compiles it was killed by signal {-code}")
    if code:
        raise CompileError(reason or f"the process that compiles it ended with {code}")
