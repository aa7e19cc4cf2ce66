"""What a step's parts cost against their floors: `python -m benchmarks micro --steps`.

The embedded model on the CPU, in what `fast` mode computes in there; random keys and values. Each
part is run by plain torch, by the compiled kernels and, where weights matter, with the file's own 4
and 8 bits, in turns, so that all meet the same neighbours. The floor is what must be read at least
over the bandwidth of a plain sum in the same rounds: weights with the file's bits, keys and values
in bfloat16, or both for a step. With one thread its own CPU time is taken, which other processes
hardly disturb; with more, the time that passes.
"""

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import torch
from torch import nn
from transformers import PreTrainedModel

from model.assembly import choose_dtype, load_served
from model.attention.base import AttentionBackend, AttentionSpec
from model.attention.batched import BatchedBackend
from model.attention.cpu import CpuBackend
from model.batch import Batch, BatchRow
from model.config import Device, EngineConfig, Quantization
from model.kv_cache import KVCache
from model.native.build import load_ops
from model.provision import DEFAULT_MODEL, obtain
from model.runner import ModelRunner, ModelShape
from model.weights import prepare

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
    Case(8, 500, 1),
    Case(8, 2000, 1),
    Case(1, 500, 50),
    Case(1, 4000, 50),
)


NUM_ROWS = (1, 2, 4, 8, 12, 16, 24, 32, 50, 90, 256)
PLAIN, KERNELS, PACKED = "plain", "kernels", "packed"

Action = Callable[[], object]


class Bench:
    """The model three times: as torch runs it, with the kernels, and with packed weights too."""

    def __init__(self, models_dir: Path, num_threads: int, rounds: int) -> None:
        torch.set_num_threads(num_threads)
        self._clock = time.thread_time if num_threads == 1 else time.perf_counter
        self._rounds = rounds
        self._unread = torch.zeros(BANDWIDTH_BYTES // 4)
        config = EngineConfig(device=Device.CPU)
        self.dtype = choose_dtype(config.mode, CPU)
        batched: AttentionBackend = BatchedBackend(CPU)
        native: AttentionBackend = CpuBackend(load_ops(config.native_dir, print))
        source = obtain(DEFAULT_MODEL, models_dir, print)
        folder = prepare(source, self.dtype, models_dir, print).folder
        none = replace(config, quantization=Quantization.NONE)
        self._backends = {PLAIN: batched, KERNELS: native, PACKED: native}
        configs = {PLAIN: none, KERNELS: none, PACKED: config}
        served = {
            name: load_served(configs[name], folder, backend, print)
            for name, backend in self._backends.items()
        }
        self._models = {name: one.model for name, one in served.items()}
        self._weight_bytes = served[PACKED].packed_bytes
        self._shape = ModelShape.of(self._models[PLAIN])
        self._caches = {name: self._filled(backend) for name, backend in self._backends.items()}

    def _filled(self, backend: AttentionBackend) -> KVCache:
        """A cache of the backend's own kind, random."""
        num_blocks = max(c.num_sequences * -(-c.length // BLOCK_SIZE) for c in CASES)
        kv_shape = self._shape.kv_shape(BLOCK_SIZE, backend.kv_dtype(self.dtype))
        cache = KVCache(kv_shape, num_blocks, CPU)
        for layer in range(kv_shape.num_layers):
            cache.layer(layer).normal_()
        return cache

    def attention(self, case: Case) -> None:
        """All layers' attention, without the rest of the step."""
        batch = Batch.build(case.rows(), BLOCK_SIZE, CPU)
        heads, size = self._models[PLAIN].config.num_attention_heads, self._shape.head_size
        query = torch.randn(len(batch.token_ids), heads, size).to(self.dtype)
        spec = AttentionSpec(size**-0.5)

        def run(name: str) -> None:
            plan, cache = self._backends[name].plan(batch), self._caches[name]
            for layer in range(self._shape.num_layers):
                plan.attend(query, cache.layer(layer), spec)

        actions = {name: partial(run, name) for name in (PLAIN, KERNELS)}
        self._compare(f"attention, {case}", actions, self._kv_bytes(case))

    def linears(self, num_rows: int) -> None:
        """All linear layers, one after the other."""

        def run(layers: list[nn.Linear]) -> None:
            for layer in layers:
                layer(inputs[layer.in_features])

        linears = {
            name: [m for m in model.modules() if isinstance(m, nn.Linear)]
            for name, model in self._models.items()
        }
        sizes = {layer.in_features for layer in linears[PLAIN]}
        inputs = {size: torch.randn(1, num_rows, size).to(self.dtype) for size in sizes}
        actions = {name: partial(run, layers) for name, layers in linears.items()}
        rows = f"{num_rows} row{'s' * (num_rows > 1)}"
        self._compare(f"linear layers, {rows}", actions, self._weight_bytes)

    def step(self, case: Case) -> None:
        """Everything up to the logits."""
        rows = case.rows()
        actions: dict[str, Action] = {}
        for name, model in self._models.items():
            actions[name] = partial(self._runner(name, model).forward, rows, [])
        self._compare(f"step, {case}", actions, self._weight_bytes + self._kv_bytes(case))

    def _runner(self, name: str, model: PreTrainedModel) -> ModelRunner:
        return ModelRunner(model, self._shape.windows, self._caches[name], self._backends[name])

    def between(self, short: Case, long: Case) -> None:
        """What a longer history costs a step, over nothing but the two products of attention with
        the tokens that it has more, by torch, keys and values lying together."""
        model = self._models[PACKED]
        runner = self._runner(PACKED, model)
        heads, size = model.config.num_attention_heads, self._shape.head_size
        more = long.history - short.history
        queries = torch.randn(heads, long.num_tokens, size).to(self.dtype)
        keys, values = (torch.randn(heads, more, size).to(self.dtype) for _ in range(2))

        def products() -> None:
            for _ in range(self._shape.num_layers):
                queries @ keys.mT @ values

        ms = self._medians(
            {
                "short": partial(runner.forward, short.rows(), []),
                "long": partial(runner.forward, long.rows(), []),
                "products": products,
            }
        )
        cost = ms["long"] - ms["short"]
        print(
            f"\n{long.num_tokens} tokens take {cost:.1f} ms more behind {long.history:,} "
            f"than behind {short.history:,}; the products alone {ms['products']:.1f}: "
            f"{cost / ms['products']:.2f} times"
        )

    def _medians(self, actions: dict[str, Action]) -> dict[str, float]:
        """Milliseconds, of taking turns."""
        times: dict[str, list[float]] = {key: [] for key in actions}
        with torch.inference_mode():
            for action in actions.values():
                action()
            for _ in range(self._rounds):
                for key, action in actions.items():
                    began = self._clock()
                    action()
                    times[key].append((self._clock() - began) * 1e3)
        return {key: statistics.median(values) for key, values in times.items()}

    def _compare(self, name: str, actions: dict[str, Action], num_bytes: int) -> None:
        ms = self._medians({**actions, "read": self._unread.sum})
        floor = num_bytes / BANDWIDTH_BYTES * ms["read"]
        best = ms.get(PACKED, ms[KERNELS])
        packed = f"{ms[PACKED]:.1f}" if PACKED in ms else ""
        print(
            f"| {name} | {ms[PLAIN]:.1f} | {ms[KERNELS]:.1f} | {packed} "
            f"| {ms[PLAIN] / best:.1f}x | {floor:.1f} | {best / floor:.1f} |"
        )

    def _kv_bytes(self, case: Case) -> int:
        size = self._shape.head_size * self._shape.num_kv_heads * self._shape.num_layers
        return case.num_sequences * case.length * size * 2 * 2


def measure(models_dir: Path, num_threads: int, rounds: int) -> None:
    """Print a table, in milliseconds."""
    bench = Bench(models_dir, num_threads, rounds)
    print(f"{bench.dtype}, {num_threads} threads, medians of {rounds} rounds, milliseconds")
    print("| part | plain torch | kernels | packed weights | ratio | floor | over the floor |")
    print("|---|---:|---:|---:|---:|---:|---:|")
    for case in CASES:
        bench.attention(case)
    for num_rows in NUM_ROWS:
        bench.linears(num_rows)
    for case in CASES:
        bench.step(case)
    bench.between(CASES[-2], CASES[-1])
