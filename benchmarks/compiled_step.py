"""A step by the model's modules and compiled: `python -m benchmarks micro --compiled`.

The embedded model as `fast` serves it on this CPU, random keys and values; both run in turns over
the same rows, so that both meet the same neighbours. Also what having it costs: building it in its
own process (where no step lies in the folder yet), loading and checking it, its first call, and
what the engine's memory grows by.
"""

import logging
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import psutil
import torch
from transformers import PreTrainedModel

from benchmarks.step_parts import BLOCK_SIZE, CPU, Case
from model.assembly import choose_backend, choose_dtype, load_served
from model.attention.cpu import CpuBackend
from model.compiled.commission import commission
from model.compiled.step import StepSource
from model.config import CompileMode, Device, EngineConfig, Mode
from model.kv_cache import KVCache, KVShape
from model.provision import DEFAULT_MODEL, obtain
from model.runner import ModelRunner, ModelShape
from model.weights import prepare

CASES = (Case(1, 500, 1), Case(1, 2000, 1), Case(8, 500, 1), Case(8, 2000, 1))


def resident_mib() -> float:
    """What of this process is in memory."""
    return float(psutil.Process().memory_info().rss) / 2**20


@dataclass(frozen=True, slots=True)
class Served:
    """The embedded model as `fast` serves it on a CPU, its cache, and its compiled step."""

    model: PreTrainedModel
    shape: ModelShape
    backend: CpuBackend
    kv: KVShape
    compiled: StepSource
    folder: Path
    commission: Callable[[], StepSource]

    @classmethod
    def load(cls, models_dir: Path, num_threads: int, config: EngineConfig) -> "Served":
        """Load it and have its step compiled."""
        torch.set_num_threads(num_threads)
        dtype = choose_dtype(Mode.FAST, CPU)
        folder = prepare(obtain(DEFAULT_MODEL, models_dir, print), dtype, models_dir, print).folder
        backend = choose_backend(config, CPU)
        assert isinstance(backend, CpuBackend)
        model = load_served(config, folder, backend, print).model
        shape = ModelShape.of(model)
        kv = shape.kv_shape(BLOCK_SIZE, backend.kv_dtype(model.dtype))

        def order() -> StepSource:
            return commission(config, model, shape.windows, kv, backend, "benchmark")

        return cls(model, shape, backend, kv, order(), folder, order)

    def cache(self, num_blocks: int) -> KVCache:
        """Random keys and values."""
        cache = KVCache(self.kv, num_blocks, CPU)
        for layer in range(self.shape.num_layers):
            cache.layer(layer).normal_()
        return cache

    def runner(self, cache: KVCache, compiled: StepSource | None) -> ModelRunner:
        """With a compiled step or without."""
        return ModelRunner(self.model, self.shape.windows, cache, self.backend, compiled)


def measure(models_dir: Path, num_threads: int, rounds: int, native_dir: Path | None) -> None:
    """Print what building, loading and running cost."""
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    config = EngineConfig(compile=CompileMode.FIRST, device=Device.CPU)
    began = time.perf_counter()
    served = Served.load(
        models_dir, num_threads, replace(config, native_dir=native_dir or config.native_dir)
    )
    print(f"the model and its step after {time.perf_counter() - began:.1f} s")
    print(f"the step: {served.compiled.stats()}")
    before, began = resident_mib(), time.perf_counter()
    served.commission()
    seconds = time.perf_counter() - began
    print(f"had once more after {seconds:.2f} s and {resident_mib() - before:.0f} MiB")
    cache = served.cache(max(c.num_sequences * -(-c.length // BLOCK_SIZE) for c in CASES))
    runners = [served.runner(cache, source) for source in (None, served.compiled)]
    print("| step | modules ms | compiled ms | ratio |\n|---|---:|---:|---:|")
    for case in CASES:
        _compare(case, runners, rounds)


def _compare(case: Case, runners: Sequence[ModelRunner], rounds: int) -> None:
    rows, times = case.rows(), [[], []]  # type: ignore[var-annotated]
    for _ in range(rounds):
        for runner, taken in zip(runners, times, strict=True):
            began = time.perf_counter()
            runner.forward(rows, [])
            taken.append((time.perf_counter() - began) * 1e3)
    plain, compiled = (statistics.median(taken[1:]) for taken in times)
    print(f"| {case} | {plain:.1f} | {compiled:.1f} | {compiled / plain:.2f} |")
