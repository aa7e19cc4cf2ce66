"""Having a step compiled: when, by whom, and what happens when it goes wrong.

What compiles is a few lines of Python in these tests, what is loaded is the folder.
"""

import logging
import os
import sys
from functools import partial
from pathlib import Path

import filelock
import pytest
import torch

from model.batch import Batch, BatchRow
from model.compiled.builder import IDLE_S, Site, StepBuilder
from model.compiled.faults import FaultLog
from model.compiled.order import BuildOrder
from model.kv_cache import KVShape
from model.messages import CompiledState

COMPILES = """
import sys
from functools import partial
from pathlib import Path
from model.compiled.folder import seal
folder = Path(sys.argv[1])
(folder / "code").write_text(str(len(sys.stdin.buffer.read1(1 << 20))))
with (folder.parent.parent / "calls").open("a") as calls:
    calls.write("x")
seal(folder)
"""
SAYS_WHY = "import sys; print('Unsupported: a loop over its tokens'); sys.exit(1)"
SAYS_NOTHING = "import sys; sys.exit(3)"
IS_KILLED = "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"
SPOILS = COMPILES + "(folder / 'code').write_text('another')"

BATCH = Batch.build(
    [BatchRow(token_ids=[1], start=0, block_ids=[0], has_logits=True)], 4, torch.device("cpu")
)


class Step:
    """Stands for what was loaded."""

    def __init__(self, folder: Path) -> None:
        self.code = (folder / "code").read_text()

    def takes(self, batch: Batch) -> bool:
        return len(batch.spans) == 1


class Clock:
    """Time passes while somebody waits; other things may happen then, too."""

    def __init__(self, *events) -> None:
        self.now = 1000.0
        self.waits = 0
        self._events = list(events)

    def __call__(self) -> float:
        return self.now

    def wait(self, seconds: float) -> None:
        self.now += seconds
        self.waits += 1
        assert self.waits < 1000
        if self._events:
            self._events.pop(0)()


def builder(folder, script=COMPILES, *, load=Step, clock=None, compiler="c++"):
    clock = clock or Clock()
    order = BuildOrder(
        blueprint=b"model",
        native_dir=folder,
        windows=(None,),
        kv=KVShape(num_layers=1, block_size=4, num_kv_heads=1, head_size=8, dtype=torch.float32),
        embedding_size=8,
        dtype=torch.float32,
        max_rows=4,
        compiler=compiler,
    )
    command = (sys.executable, "-c", script)
    # This process's faults are pytest's.
    site = Site(folder, clock, clock.wait, command, partial(FaultLog, watch=lambda _: None))
    return StepBuilder("name", order, load, site)


def num_calls(folder: Path) -> int:
    calls = folder / "calls"
    return len(calls.read_text()) if calls.exists() else 0


def left_over(folder: Path) -> list[str]:
    known = ("calls", "step.lock", "step-name.faults")
    return sorted(p.name for p in folder.iterdir() if p.name not in known)


def test_a_step_is_compiled_once_and_then_found(tmp_path):
    first = builder(tmp_path)
    assert first.step_for(BATCH) is None
    first.obtain()
    second = builder(tmp_path, SAYS_WHY)
    second.obtain()

    assert num_calls(tmp_path) == 1
    assert left_over(tmp_path) == ["step-name"]
    for made in (first, second):
        step = made.step_for(BATCH)
        assert isinstance(step, Step)
        assert int(step.code) > 100  # bytes of the order
        assert made.stats().state is CompiledState.READY
        assert made.stats().num_steps == 1


def test_what_a_step_does_not_take_is_computed_without_it(tmp_path):
    made = builder(tmp_path)
    made.obtain()
    rows = [BatchRow(token_ids=[1], start=0, block_ids=[i], has_logits=True) for i in (0, 1)]

    assert made.step_for(Batch.build(rows, 4, torch.device("cpu"))) is None
    assert made.stats().num_steps == 0


def test_it_waits_until_nobody_has_computed_for_a_while(tmp_path):
    uses = []
    clock = Clock(*[lambda: uses.append(made.step_for(BATCH))] * 7)
    made = builder(tmp_path, clock=clock)
    made.obtain()

    assert uses == [None] * 7
    assert clock.waits == 7 + IDLE_S


def test_at_once_is_at_once(tmp_path):
    clock = Clock()
    made = builder(tmp_path, clock=clock)
    made.obtain(at_once=True)

    assert clock.waits == 0
    assert made.step_for(BATCH) is not None


@pytest.mark.parametrize("at_once", [False, True])
def test_who_compiles_is_told_whether_somebody_waits(tmp_path, at_once):
    script = "import pickle\n" + COMPILES.replace(
        "len(sys.stdin.buffer.read1(1 << 20))", "pickle.load(sys.stdin.buffer).is_urgent"
    )
    made = builder(tmp_path, script)
    made.obtain(at_once=at_once)

    assert made.step_for(BATCH).code == str(at_once)


def test_it_waits_while_another_process_compiles_and_takes_what_that_made(tmp_path):
    lock = filelock.FileLock(tmp_path / "step.lock")
    lock.acquire()

    def finish():
        lock.release()
        builder(tmp_path).obtain(at_once=True)

    made = builder(tmp_path, SAYS_WHY, clock=Clock(*[lambda: None] * 20, finish))
    made.obtain()

    assert made.stats().state is CompiledState.READY
    assert num_calls(tmp_path) == 1


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        (SAYS_WHY, "a loop over its tokens"),
        (SAYS_NOTHING, "ended with 3"),
        (IS_KILLED, "killed by signal 9"),
        (SPOILS, "code is damaged"),
    ],
)
def test_a_failure_is_said_once_and_leaves_nothing(tmp_path, caplog, script, reason):
    made = builder(tmp_path, script)
    made.obtain()

    stats = made.stats()
    assert stats.state is CompiledState.UNAVAILABLE
    assert reason in stats.reason
    assert made.step_for(BATCH) is None
    (record,) = [r for r in caplog.records if r.levelno == logging.WARNING]
    assert reason in record.getMessage()
    assert left_over(tmp_path) == []


def test_without_a_compiler_nothing_is_started(tmp_path, caplog):
    made = builder(tmp_path, compiler="")
    made.obtain()

    assert made.stats().state is CompiledState.UNAVAILABLE
    assert "no C++ compiler" in made.stats().reason
    assert num_calls(tmp_path) == 0


def test_a_damaged_step_is_compiled_again(tmp_path, caplog):
    builder(tmp_path).obtain()
    (tmp_path / "step-name" / "code").write_text("spoilt")

    made = builder(tmp_path)
    made.obtain()

    assert made.stats().state is CompiledState.READY
    assert made.step_for(BATCH).code != "spoilt"
    assert num_calls(tmp_path) == 2
    assert "code is damaged" in caplog.text


@pytest.mark.parametrize("error", [RuntimeError("no such symbol"), ValueError("other answers")])
def test_a_step_that_cannot_be_used_is_not(tmp_path, error):
    def load(folder):
        raise error

    made = builder(tmp_path, load=load)
    made.obtain()

    assert made.stats().state is CompiledState.UNAVAILABLE
    assert made.stats().reason == str(error)
    assert made.step_for(BATCH) is None


def test_what_nobody_thought_of_is_a_reason_too_and_leaves_its_traceback(tmp_path, caplog):
    def load(folder):
        raise KeyError("no such constant")

    made = builder(tmp_path, load=load)
    made.obtain(at_once=True)

    assert made.stats().state is CompiledState.UNAVAILABLE
    assert made.stats().reason == "KeyError: 'no such constant'"
    assert made.step_for(BATCH) is None
    assert any(record.exc_info for record in caplog.records)


def test_a_step_that_ended_a_process_is_neither_used_nor_compiled_again(tmp_path, caplog):
    builder(tmp_path).obtain()
    faults = tmp_path / "step-name.faults"
    faults.write_text('Fatal\n  File "/somewhere/model/compiled/step.py", line 50 in run\n')

    made = builder(tmp_path)
    made.obtain(at_once=True)

    assert made.stats().state is CompiledState.UNAVAILABLE
    assert made.step_for(BATCH) is None
    assert num_calls(tmp_path) == 1
    (record,) = [r for r in caplog.records if r.levelno == logging.WARNING]
    assert str(faults) in record.getMessage()
    faults.unlink()
    again = builder(tmp_path)
    again.obtain()
    assert again.stats().state is CompiledState.READY
    assert num_calls(tmp_path) == 1


def test_faults_are_watched_for_from_before_a_step_is_loaded(tmp_path):
    watched = []
    made = builder(tmp_path, load=lambda folder: Step(folder) if watched else None)
    made._faults = FaultLog(tmp_path / "step-name.faults", watched.append)
    made.obtain()

    assert made.stats().state is CompiledState.READY
    (fd,) = watched
    assert os.fstat(fd).st_ino == (tmp_path / "step-name.faults").stat().st_ino


def test_a_step_that_fails_is_given_up_and_said(tmp_path, caplog):
    made = builder(tmp_path)
    made.obtain()
    made.give_up("no room")

    assert made.step_for(BATCH) is None
    assert made.stats().state is CompiledState.UNAVAILABLE
    assert made.stats().reason == "no room"
    assert "no room" in caplog.text


def test_what_killed_processes_left_is_removed_and_old_steps_are_few(tmp_path):
    (tmp_path / "step-build-abc" / "step").mkdir(parents=True)
    for number in range(12):
        old = tmp_path / f"step-old{number}"
        old.mkdir()
        (old / "seal.json").write_text("{}")
        (tmp_path / f"step-old{number}.faults").touch()

    builder(tmp_path).obtain()

    left = left_over(tmp_path)
    folders = [name for name in left if not name.endswith(".faults")]
    assert len(folders) == 8
    assert {f"{name}.faults" for name in folders} - {"step-name.faults"} == set(left) - set(folders)
    assert "step-name" in left
    assert "step-build-abc" not in left


def test_a_folder_that_cannot_be_made_is_a_reason(tmp_path):
    (tmp_path / "file").touch()
    made = builder(tmp_path / "file")
    made.obtain()

    assert made.stats().state is CompiledState.UNAVAILABLE
