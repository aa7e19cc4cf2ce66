"""Threads that help with a call: however late they come, all of it is done, and once."""

import random
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
import torch

from model.attention.base import AttentionSpec
from model.attention.cpu import CpuBackend
from model.native import build
from model.packed_weights import quantize_packed
from tests.support.live_server import ROOT
from tests.support.native_kernels import native_ops, threads
from tests.support.paged_steps import PagedStep, Shape

PATIENCE_S = 0.004
"""How long a helper looks out for a call before it sleeps."""


class Products:
    """Linear layers with packed weights, for few rows and for many, and what one thread makes."""

    def __init__(self) -> None:
        generator = torch.Generator().manual_seed(0)
        weights = [torch.randn(n, 96, generator=generator) for n in (160, 64)]
        self._packed = [quantize_packed(weight, 4) for weight in weights]
        self._inputs = [torch.randn(n, 96, generator=generator) for n in (1, 5, 40)]
        with threads(1):
            self._expected = [self._multiply(inputs) for inputs in self._inputs]

    def _multiply(self, inputs):
        return native_ops().linears_packed(inputs, self._packed, [160, 64], 4, 16, -1)

    def hold(self) -> bool:
        """Whether they come out the same, to the last bit."""
        found = [self._multiply(inputs) for inputs in self._inputs]
        return all(map(torch.equal, found, self._expected))


@pytest.fixture(scope="module")
def products():
    return Products()


@pytest.mark.parametrize("number", [2, 3, 8], ids="{} threads".format)
def test_with_more_threads_than_processors_too(products, number):
    with threads(number):
        assert all(products.hold() for _ in range(200))


def test_whoever_slept_helps_again(products):
    pauses = random.Random(0)
    with threads(3):
        for _ in range(40):
            time.sleep(PATIENCE_S * pauses.choice([0.0, 0.5, 0.9, 1.0, 1.1, 3.0]))
            assert products.hold()


def test_calls_of_several_threads_at_once_are_each_their_own(products):
    held = []
    with threads(3):
        callers = [
            threading.Thread(target=lambda: held.append(all(products.hold() for _ in range(100))))
            for _ in range(4)
        ]
        for caller in callers:
            caller.start()
        for caller in callers:
            caller.join(60)

    assert held == [True] * 4


def test_attention_is_shared_out_as_well():
    step = PagedStep(Shape(((700, 1), (0, 90)), block_size=16, num_kv_heads=3, head_size=64))
    spec = AttentionSpec(0.125)

    def attend():
        return CpuBackend(native_ops()).plan(step.batch).attend(step.query, step.kv, spec)

    with threads(3):
        first = attend()
        assert all(torch.equal(first, attend()) for _ in range(50))
    torch.testing.assert_close(first.double(), step.dense(spec), atol=1e-4, rtol=1e-4)


CASES = Path(__file__).with_name("crew_cases.cpp")
SCRIPT = """
import ctypes, os, sys
import torch

torch.set_num_threads(3)
parts_done = ctypes.CDLL(sys.argv[1]).parts_done
parts_done.restype = ctypes.c_int64
parts_done.argtypes = [ctypes.c_int64] * 3
NOBODY, CALLER, HELPER = range(3)
"""


@pytest.fixture(scope="module")
def run_alone(tmp_path_factory):
    """Runs a script with the crew in a process of its own; gives what it prints."""
    folder = tmp_path_factory.mktemp("crew")
    library = folder / "crew_cases.so"
    torch_folder = Path(torch.__file__).parent
    include = f"-I{torch_folder / 'include'}"
    flags = ["-DTORCH_FEATURE_VERSION=TORCH_VERSION_2_10_0", include, f"-I{ROOT}/model/native"]
    job = build._compile(str(CASES), folder / "crew_cases.o", flags)
    build._run(build.find_compiler(), [job])
    build._run(build.find_compiler(), [build._link([job.output], library)])

    def run(script, **kwargs):
        done = subprocess.run(
            [sys.executable, "-c", SCRIPT + script, library],
            capture_output=True,
            text=True,
            timeout=100,
            **kwargs,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.split()

    return run


def test_what_is_thrown_at_work_reaches_the_caller_and_the_next_call_is_whole(run_alone):
    printed = run_alone("""
for thrower in (HELPER, CALLER, HELPER, NOBODY):
    print(parts_done(3, 1000, thrower), parts_done(3, 1000, NOBODY))
""")
    assert printed == ["-1", "1000"] * 3 + ["1000", "1000"]


def test_a_forked_process_has_helpers_of_its_own(run_alone):
    printed = run_alone("""
assert parts_done(3, 1000, HELPER) == -1
if not (child := os.fork()):
    print(parts_done(3, 1000, HELPER), parts_done(3, 1000, NOBODY), flush=True)
    os._exit(0)
os.waitpid(child, 0)
print(parts_done(3, 1000, HELPER), parts_done(3, 1000, NOBODY))
""")
    assert printed == ["-1", "1000"] * 2


def test_where_its_caller_is_bound_to_a_processor_torchs_threads_help(run_alone):
    printed = run_alone("""
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
print(parts_done(3, 1000, HELPER), parts_done(3, 1000, NOBODY))
""")
    assert printed == ["-1", "1000"]


def test_whoever_may_have_no_thread_does_it_without_and_has_them_later(run_alone):
    printed = run_alone("""
import resource, time

torch.set_num_threads(1)
soft, hard = resource.getrlimit(resource.RLIMIT_AS)
resource.setrlimit(resource.RLIMIT_AS, (1, hard))
alone = parts_done(2, 1000, NOBODY)
resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
time.sleep(1.1)
print(alone, parts_done(2, 1000, HELPER))
""")
    assert printed == ["1000", "-1"]


def test_other_python_threads_run_while_a_caller_who_holds_the_interpreter_computes(run_alone):
    printed = run_alone("""
import threading, time

held = ctypes.PyDLL(sys.argv[1])  # as a compiled step does, unlike CDLL
held.compute.argtypes = [ctypes.c_int64]
looks, is_over = [], threading.Event()

def look():
    while not is_over.is_set():
        looks.append(time.perf_counter())
        time.sleep(0.001)

looking = threading.Thread(target=look)
looking.start()
for num_threads in (1, 3):
    begun = time.perf_counter()
    held.compute(num_threads)
    ended = time.perf_counter()
    print(sum(begun < at < ended for at in looks) > 5)
is_over.set()
looking.join()
""")
    assert printed == ["True", "True"]


def test_the_end_of_the_interpreter_waits_for_no_thread_that_computes(run_alone):
    printed = run_alone("""
import threading, time

held = ctypes.PyDLL(sys.argv[1])
held.compute.argtypes = [ctypes.c_int64]

def compute():
    while True:
        held.compute(2)

threading.Thread(target=compute, daemon=True).start()
time.sleep(0.2)
print("over")
""")
    assert printed == ["over"]
