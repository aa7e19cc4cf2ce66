"""What a step's parts cost against their floors: `python -m benchmarks micro --steps`.

The embedded model in bfloat16 on the CPU, random keys and values. Each part is run by plain torch
and by the compiled kernels in turns, so that both meet the same neighbours. A floor is the bytes
that must be read (weights for the linear layers, keys and values for attention, both for a step)
over the bandwidth of a plain sum in the same rounds. With one thread its own CPU time is taken,
which other processes hardly disturb; with more, the time that passes.
"""

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn
from transformers import PreTrainedModel

from model.attention.base import IMPLEMENTATION, AttentionBackend, AttentionSpec, register
from model.attention.batched import BatchedBackend
from model.attention.cpu import CpuBackend
from model.attention.native.build import load_ops
from model.batch import Batch, BatchRow
from model.config import EngineConfig
from model.few_rows import speed_up
from model.kv_cache import KVCache
from model.provision import DEFAULT_MODEL, obtain
from model.runner import ModelRunner, ModelShape
from model.weights import load_model, prepare

BLOCK_SIZE = 16
CPU = torch.device("cpu")
BANDWIDTH_BYTES = 256 << 20


@dataclass(frozen=True, slots=True)
class Case:
    """So many sequences, each with so many tokens behind a history."""

    num_sequences: int
    history: int
    num_tokens: int

    def __str__(self) -> str:
        tokens = f"{self.num_tokens} token{'s' * (self.num_tokens > 1)}"
        return f"{self.num_sequences} x {tokens} behind {self.history:,}"

    @property
    def length(self) -> int:
        """Of each sequence after the step."""
        return self.history + self.num_tokens

    def rows(self) -> list[BatchRow]:
        """Blocks that lie scattered, as they come to after a while."""
        per = -(-self.length // BLOCK_SIZE)
        order = torch.randperm(self.num_sequences * per).tolist()
        return [
            BatchRow([7] * self.num_tokens, self.history, order[i * per : (i + 1) * per], True)
            for i in range(self.num_sequences)
        ]


CASES = (
    Case(1, 500, 1),
    Case(1, 2000, 1),
    Case(8, 2000, 1),
    Case(1, 500, 50),
    Case(1, 4000, 50),
)


class Bench:
    """The model twice: as it is, and with its linear layers sped up."""

    def __init__(self, models_dir: Path, num_threads: int, rounds: int) -> None:
        torch.set_num_threads(num_threads)
        self._clock = time.thread_time if num_threads == 1 else time.perf_counter
        self._rounds = rounds
        self._unread = torch.zeros(BANDWIDTH_BYTES // 4)
        register()
        folder = prepare(
            obtain(DEFAULT_MODEL, models_dir, print), torch.bfloat16, models_dir, print
        ).folder
        self._plain, self._fast = (
            load_model(folder, torch.bfloat16, CPU, IMPLEMENTATION) for _ in range(2)
        )
        self._shape = ModelShape.of(self._plain)
        kv_shape = self._shape.kv_shape(BLOCK_SIZE, torch.bfloat16)
        num_blocks = max(c.num_sequences * -(-c.length // BLOCK_SIZE) for c in CASES)
        self._cache = KVCache(kv_shape, num_blocks, CPU)
        for layer in range(kv_shape.num_layers):
            self._cache.layer(layer).normal_()
        ops = load_ops(EngineConfig().native_dir, print)
        speed_up(self._fast, ops)
        self._batched: AttentionBackend = BatchedBackend(CPU)
        self._native: AttentionBackend = CpuBackend(ops)

    def attention(self, case: Case) -> None:
        """All layers' attention, without the rest of the step."""
        batch = Batch.build(case.rows(), BLOCK_SIZE, CPU)
        config = self._plain.config
        heads, size = config.num_attention_heads, self._shape.head_size
        query = torch.randn(len(batch.token_ids), heads, size).bfloat16()
        spec = AttentionSpec(size**-0.5)

        def run(backend: AttentionBackend) -> None:
            plan = backend.plan(batch)
            for layer in range(self._shape.num_layers):
                plan.attend(query, self._cache.layer(layer), spec)

        self._compare(
            f"attention, {case}",
            lambda: run(self._batched),
            lambda: run(self._native),
            self._kv_bytes(case),
        )

    def linears(self, num_rows: int) -> None:
        """All linear layers, one after the other."""

        def run(model: PreTrainedModel) -> None:
            for layer in model.modules():
                if isinstance(layer, nn.Linear):
                    layer(inputs[layer.in_features])

        layers = [m for m in self._plain.modules() if isinstance(m, nn.Linear)]
        sizes = {layer.in_features for layer in layers}
        inputs = {size: torch.randn(1, num_rows, size).bfloat16() for size in sizes}
        self._compare(
            f"linear layers, {num_rows} row{'s' * (num_rows > 1)}",
            lambda: run(self._plain),
            lambda: run(self._fast),
            self._weight_bytes(),
        )

    def step(self, case: Case) -> None:
        """Everything up to the logits."""
        plain, fast = (
            ModelRunner(model, self._shape.windows, self._cache, backend)
            for model, backend in ((self._plain, self._batched), (self._fast, self._native))
        )
        rows = case.rows()
        self._compare(
            f"step, {case}",
            lambda: plain.forward(rows, []),
            lambda: fast.forward(rows, []),
            self._weight_bytes() + self._kv_bytes(case),
        )

    def _compare(
        self, name: str, plain: Callable[[], object], fast: Callable[[], object], num_bytes: int
    ) -> None:
        times: dict[str, list[float]] = {"plain": [], "fast": [], "read": []}
        actions = {"plain": plain, "fast": fast, "read": self._unread.sum}
        with torch.inference_mode():
            plain()
            fast()
            for _ in range(self._rounds):
                for key, action in actions.items():
                    began = self._clock()
                    action()
                    times[key].append((self._clock() - began) * 1e3)
        ms = {key: statistics.median(values) for key, values in times.items()}
        floor = num_bytes / BANDWIDTH_BYTES * ms["read"]
        print(
            f"| {name} | {ms['plain']:.1f} | {ms['fast']:.1f} | {ms['plain'] / ms['fast']:.1f}x "
            f"| {floor:.1f} | {ms['fast'] / floor:.1f} |"
        )

    def _kv_bytes(self, case: Case) -> int:
        token_bytes = self._cache.block_bytes // BLOCK_SIZE
        return case.num_sequences * case.length * token_bytes

    def _weight_bytes(self) -> int:
        layers = (m for m in self._plain.modules() if isinstance(m, nn.Linear))
        return sum(layer.weight.numel() * layer.weight.element_size() for layer in layers)


def measure(models_dir: Path, num_threads: int, rounds: int) -> None:
    """Print a table, in milliseconds."""
    bench = Bench(models_dir, num_threads, rounds)
    print(f"{num_threads} threads, medians of {rounds} rounds, milliseconds")
    print("| part | plain torch | kernels | ratio | floor | kernels over the floor |")
    print("|---|---:|---:|---:|---:|---:|")
    for case in CASES:
        bench.attention(case)
    for num_rows in (1, 2, 4, 8):
        bench.linears(num_rows)
    for case in CASES:
        bench.step(case)
