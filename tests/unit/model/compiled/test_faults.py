"""A process that a compiled step ends leaves word of it; others don't."""

import signal
import subprocess
import sys

import pytest

from model.compiled.faults import FaultLog

pytestmark = pytest.mark.timeout(300)  # each of its processes imports torch

RUNS = """
import ctypes, os, signal, sys, threading
from pathlib import Path
from types import SimpleNamespace
import torch
from model.compiled.faults import FaultLog
from model.compiled.step import CompiledStep

def segfault(inputs):
    ctypes.string_at(0)

def wait_for_compiled_thread(inputs):
    libc = ctypes.CDLL(None)
    thread = ctypes.c_ulong()
    libc.pthread_create(ctypes.byref(thread), None, ctypes.cast(libc.abort, ctypes.c_void_p), None)
    threading.Event().wait()

def wait_for_another_thread(inputs):
    threading.Thread(target=os.abort).start()
    threading.Event().wait()

step = object.__new__(CompiledStep)
batch = SimpleNamespace(places=[torch.zeros(1)], positions=None, logits_rows=torch.zeros(1))
plan = SimpleNamespace(tables=None, sequences=None)
FaultLog(Path(sys.argv[1])).open()

def run(what):
    step._loader = SimpleNamespace(run=what)
    step.run(None, batch, plan, SimpleNamespace(tensor=None))
"""


def end_by(path, code):
    """How a process with that code ends."""
    command = [sys.executable, "-c", RUNS + code, str(path)]
    return subprocess.run(command, check=False, capture_output=True, timeout=120).returncode


@pytest.mark.parametrize(
    ("code", "by"),
    [
        ("run(segfault)", signal.SIGSEGV),
        ("run(lambda _: os.abort())", signal.SIGABRT),
        ("run(wait_for_compiled_thread)", signal.SIGABRT),
    ],
)
def test_a_fault_in_a_step_is_written_down_whatever_thread_has_it(tmp_path, code, by):
    assert end_by(tmp_path / "faults", code) == -by

    assert FaultLog(tmp_path / "faults").names_step


@pytest.mark.parametrize(
    ("code", "by"),
    [
        ("run(lambda _: os.kill(os.getpid(), signal.SIGKILL))", signal.SIGKILL),
        ("os.abort()", signal.SIGABRT),
        ("run(wait_for_another_thread)", signal.SIGABRT),
    ],
)
def test_a_process_that_is_killed_or_fails_elsewhere_blames_no_step(tmp_path, code, by):
    assert end_by(tmp_path / "faults", code) == -by

    assert not FaultLog(tmp_path / "faults").names_step


def test_one_fault_of_several_is_enough(tmp_path):
    for code in ("run(segfault)", "os.abort()"):
        end_by(tmp_path / "faults", code)

    assert (tmp_path / "faults").read_text().count("Fatal Python error") == 2
    assert FaultLog(tmp_path / "faults").names_step


def test_what_other_faults_wrote_is_bounded_and_may_be_forgotten(tmp_path):
    path = tmp_path / "faults"
    path.write_bytes(b"x" * 100_000)

    FaultLog(path, lambda _: None).open()

    assert path.stat().st_size == 0
    assert not FaultLog(path).names_step
    FaultLog(path).remove()
    FaultLog(path).remove()
    assert not path.exists()
