"""What an engine step costs beside the model's call: `python -m benchmarks micro --overhead`.

Eight sequences decode; each step is timed whole, and the model's call in it by itself. The rest is
ours: scheduling, blocks, sampling, text.
"""

import statistics
import time
from collections.abc import Sequence
from pathlib import Path

import torch

from benchmarks.compiled_step import Served
from model.assembly import TextTokenizer
from model.batch import BatchRow
from model.block_supply import BlockEdit
from model.cache_manager import CacheManager
from model.config import CompileMode, Device, EngineConfig, SamplingParams
from model.core import EngineCore
from model.messages import CompiledStats, GenerationRequest
from model.ports import CoreLimits
from model.prefix_index import BlockHasher
from model.runner import ModelRunner
from model.sampler import Draw, Sampled
from model.weights import load_tokenizer

NUM_SEQUENCES = 8
HISTORY = 500
MAX_ROUNDS = 200
SAMPLED = SamplingParams(temperature=0.7, top_p=0.9, ignore_eos=True)
GREEDY = SamplingParams(temperature=0.0, ignore_eos=True)


class TimedRunner:
    """A runner, and how long its last calls took. `num_decoding` counts the last one's rows."""

    def __init__(self, runner: ModelRunner) -> None:
        self.forward_s = self.sample_s = 0.0
        self.num_decoding = 0
        self._runner = runner

    @property
    def num_rows(self) -> int:
        """See `ports.Runner`."""
        return self._runner.num_rows

    def compiled(self) -> CompiledStats:
        """See `ports.Runner`."""
        return self._runner.compiled()

    def edit(self, edits: Sequence[BlockEdit]) -> None:
        """See `ports.Runner`."""
        self._runner.edit(edits)

    def forward(self, rows: Sequence[BatchRow], edits: Sequence[BlockEdit]) -> torch.Tensor:
        """See `ports.Runner`."""
        self.num_decoding = sum(len(row.token_ids) == 1 for row in rows)
        began = time.perf_counter()
        logits = self._runner.forward(rows, edits)
        self.forward_s = time.perf_counter() - began
        return logits

    def sample(self, logits: torch.Tensor, draws: Sequence[Draw]) -> list[Sampled]:
        """See `ports.Runner`."""
        began = time.perf_counter()
        sampled = self._runner.sample(logits, draws)
        self.sample_s = time.perf_counter() - began
        return sampled


def engine(models_dir: Path, num_threads: int) -> tuple[EngineCore, TimedRunner]:
    """The embedded model, as `fast` serves it on a CPU, and its timed runner."""
    config = EngineConfig(compile=CompileMode.FIRST, device=Device.CPU)
    served = Served.load(models_dir, num_threads, config)
    num_blocks = NUM_SEQUENCES * 2 * -(-(HISTORY + 2 * MAX_ROUNDS) // config.block_size)
    runner = TimedRunner(served.runner(served.cache(num_blocks), served.compiled))
    limits = CoreLimits(
        max_context_tokens=served.shape.max_positions,
        vocab_size=served.shape.vocab_size,
        eos_token_ids=frozenset(),
        block_bytes=1,
    )
    cache = CacheManager(num_blocks, BlockHasher("overhead", "none", config.block_size))
    tokenizer = TextTokenizer(load_tokenizer(served.folder))
    return EngineCore(config, limits, cache, runner, tokenizer, time.monotonic), runner


def measure(models_dir: Path, num_threads: int, rounds: int) -> None:
    """Print a table, in milliseconds."""
    core, runner = engine(models_dir, num_threads)
    print(f"{NUM_SEQUENCES} sequences behind {HISTORY} tokens, {num_threads} threads, medians, ms")
    print("| sampling | step | model's call | the rest | of it sampling |")
    print("|---|---:|---:|---:|---:|")
    for name, params in (("greedy", GREEDY), ("temperature 0.7, top-p 0.9", SAMPLED)):
        for number in range(NUM_SEQUENCES):
            core.submit(_request(f"{number} {name}", number, params))
        parts = _steps(core, runner, min(rounds, MAX_ROUNDS))
        for number in range(NUM_SEQUENCES):
            core.cancel(f"{number} {name}")
        whole, forward, sample = (statistics.median(times) * 1e3 for times in parts)
        rest = statistics.median([w - f for w, f in zip(*parts[:2], strict=True)]) * 1e3
        print(f"| {name} | {whole:.2f} | {forward:.2f} | {rest:.2f} | {sample:.2f} |")


def _request(name: str, number: int, params: SamplingParams) -> GenerationRequest:
    ids = [(number * HISTORY + i) * 7919 % 49152 for i in range(HISTORY)]
    return GenerationRequest(request_id=name, token_ids=ids, params=params, conversation_id=name)


def _steps(core: EngineCore, runner: TimedRunner, rounds: int) -> list[list[float]]:
    """Seconds of whole steps in which all sequences decode, of the model's calls, of sampling."""
    while runner.num_decoding < NUM_SEQUENCES:  # prompts first
        core.step()
    parts: list[list[float]] = [[], [], []]
    for _ in range(rounds):
        began = time.perf_counter()
        core.step()
        seconds = (time.perf_counter() - began, runner.forward_s, runner.sample_s)
        for times, part in zip(parts, seconds, strict=True):
            times.append(part)
    return parts
