"""How far `fast` mode's logits are from float32: `python -m benchmarks divergence`.

The embedded model reads a fixed text twice: in float32 by transformers' own attention, whole; and
as `fast` mode serves it here, in this device's dtype, with its attention backend and the packed
weights that `--quantization` stands for, through the paged cache, most of it in chunks and the end
as decoding rows. What differs at each position is the Kullback-Leibler divergence of the two
distributions. Exits with 1 above the stated limits.

`--peer NAME=URL` measures a running llama.cpp server with the same file against
the same float32, too, at each fifth position, and Splice once more at these alone.
"""

import argparse
import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import torch
from transformers import AutoTokenizer

from benchmarks.multiturn import named_url
from benchmarks.peer_logits import peer_log_probs
from model.assembly import (
    choose_backend,
    choose_device,
    choose_dtype,
    choose_kv_dtype,
    load_served,
)
from model.attention.base import IMPLEMENTATION, register
from model.config import Device, EngineConfig, Mode, Quantization
from model.provision import DEFAULT_MODEL, obtain
from model.quantized_linear import products_of
from model.runner import ModelShape
from model.self_check import paged_logits, plain_logits
from model.weights import load_model, prepare

TEXT = Path(__file__).with_name("fixed_text.txt")
CHUNK = 96
NUM_DECODED = 64
NUM_AT_ONCE = 4
BLOCK_SIZE = 4
PEER_STRIDE = 5
MODELS = Path("data/models")


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """The most that `fast` mode may differ from float32, in nats."""

    mean: float
    p99: float


_HALF = "bfloat16, packed weights"
_BYTES = "float32, packed weights"
_KV = "float32, keys and values in bfloat16"
# Three times what was measured, and docs/exactness.md states them; float32 differs by rounding
# alone (1e-11), which another machine does otherwise, or by its keys and values. Packed weights are
# exact, but multiply activations of 16 bits, which next to bfloat16 is nothing, or many rows of 8
# bits: that is held to twice what was measured where the rest is bfloat16: 8 bits throughout would
# have more.
BOUNDS = {
    "bfloat16": Bound(mean=0.004, p99=0.016),
    _HALF: Bound(mean=0.0036, p99=0.017),
    "float16": Bound(mean=0.004, p99=0.016),
    "float32": Bound(mean=1e-9, p99=1e-8),
    _BYTES: Bound(mean=0.0022, p99=0.01),
    _KV: Bound(mean=1.2e-4, p99=9.6e-4),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """Divergences at some positions, in nats, and how often the likeliest token is the same."""

    num_positions: int
    mean: float
    p99: float
    worst: float
    same_top: float

    @classmethod
    def of(cls, truth: torch.Tensor, logits: torch.Tensor) -> Self:
        """From logits, or what differs from them by a constant a row, `[T, V]`."""
        nats = divergence(truth, logits)
        return cls(
            num_positions=len(nats),
            mean=nats.mean().item(),
            p99=nats.quantile(0.99).item(),
            worst=nats.max().item(),
            same_top=(truth.argmax(-1) == logits.argmax(-1)).double().mean().item(),
        )

    def __str__(self) -> str:
        return (
            f"{self.num_positions} positions: mean {self.mean:.2g} nats, p99 {self.p99:.2g}, "
            f"worst {self.worst:.2g}, the same likeliest token at {self.same_top:.1%}"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """What was measured of Splice, and where peers were asked, of it and them at some positions."""

    device: str
    dtype: torch.dtype
    kv_dtype: torch.dtype
    attention: str
    quantization: str
    is_in_bytes: bool  # whether any activations had 8 bits
    num_decoded: int
    spread: Spread
    compared: dict[str, Spread]

    @property
    def numbers(self) -> str:
        """What was computed in, as BOUNDS has it."""
        if self.is_in_bytes:
            return _BYTES if self.dtype is torch.float32 else _HALF
        if self.dtype is not self.kv_dtype:
            return _KV
        is_half = self.dtype is torch.bfloat16 and self.quantization != "none"
        return _HALF if is_half else str(self.dtype).removeprefix("torch.")

    @property
    def is_within_bound(self) -> bool:
        """Whether these numbers' limits are kept; not when something isn't a number."""
        bound = BOUNDS[self.numbers]
        return self.spread.mean <= bound.mean and self.spread.p99 <= bound.p99

    def __str__(self) -> str:
        bound = BOUNDS[self.numbers]
        lines = [
            f"{self.device}, {str(self.dtype).removeprefix('torch.')}, {self.attention} attention, "
            f"quantization {self.quantization}, {self.num_decoded} tokens as decoding rows; "
            f"{self.spread} (limits {bound.mean:g} and {bound.p99:g})"
        ]
        return "\n".join(lines + [f"{name}, {spread}" for name, spread in self.compared.items()])


def main(arguments: list[str]) -> int:
    """Measure and print. The exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks divergence", description=__doc__)
    parser.add_argument("--device", default="auto", choices=list(Device))
    parser.add_argument("--quantization", default="auto", choices=list(Quantization))
    parser.add_argument(
        "--decoded",
        type=int,
        default=NUM_DECODED,
        help="the last tokens, which are read as decoding rows; all with a large number",
    )
    parser.add_argument("--models-dir", type=Path, default=MODELS)
    parser.add_argument("--peer", type=named_url, action="append", default=[], metavar="NAME=URL")
    options = parser.parse_args(arguments)
    measured = measure(
        options.models_dir,
        Device(options.device),
        Quantization(options.quantization),
        options.decoded,
        options.peer,
    )
    print(measured)
    if measured.dtype is torch.float32:
        kept = str(measured.kv_dtype).removeprefix("torch.")
        print(
            f"This device has no bfloat16: keys and values are kept in {kept}, and what is no "
            "product of bytes is computed in float32."
        )
    return 0 if measured.is_within_bound else 1


def measure(
    models_dir: Path,
    device_name: Device = Device.AUTO,
    quantization: Quantization = Quantization.AUTO,
    num_decoded: int = NUM_DECODED,
    peers: Sequence[tuple[str, str]] = (),
) -> Measured:
    """Load the embedded model twice, one after the other; the first time this fetches it."""
    register()
    config = EngineConfig(mode=Mode.FAST, device=device_name, quantization=quantization)
    device = choose_device(device_name)
    dtype, backend = choose_dtype(Mode.FAST, device), choose_backend(config, device)
    folder = _folder(models_dir, torch.float32)
    token_ids = _token_ids(folder)
    truth = plain_logits(load_model(folder, torch.float32, device, IMPLEMENTATION), token_ids)
    served = load_served(config, _folder(models_dir, dtype), backend, print)
    steps = list(_steps(token_ids, num_decoded))
    shape = ModelShape.of(served.model)
    kv_dtype = choose_kv_dtype(Mode.FAST, dtype, backend)
    kv = shape.kv_shape(BLOCK_SIZE, kv_dtype)
    logits = paged_logits(served.model, shape.windows, kv, backend, token_ids, steps)
    num_rows = max(sum(map(len, step)) for step in steps)
    return Measured(
        device=torch.cuda.get_device_name(device) if device.type == "cuda" else "CPU",
        dtype=dtype,
        kv_dtype=kv_dtype,
        attention=backend.name,
        quantization=served.quantization,
        is_in_bytes=any(
            product.takes_bytes and num_rows > product.max_rows
            for product in products_of(served.model)
        ),
        num_decoded=min(num_decoded, len(token_ids)),
        spread=Spread.of(truth, logits),
        compared=dict(_compared(peers, token_ids, truth, logits)),
    )


def _compared(
    peers: Sequence[tuple[str, str]],
    token_ids: Sequence[int],
    truth: torch.Tensor,
    logits: torch.Tensor,
) -> Iterator[tuple[str, Spread]]:
    """Splice and each peer where peers are asked; nothing without any."""
    if not peers:
        return
    positions = range(0, len(token_ids), PEER_STRIDE)
    some = list(positions)
    yield "Splice", Spread.of(truth[some], logits[some])
    for name, url in peers:
        log_probs = asyncio.run(peer_log_probs(url, token_ids, positions, truth.shape[-1]))
        yield name, Spread.of(truth[some], log_probs)


def divergence(truth: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    """Kullback-Leibler divergence of each position's distribution from the true one, in nats;
    logits `[T, V]` to float64 `[T]`."""
    logs, others = truth.double().log_softmax(-1), other.double().log_softmax(-1)
    return (logs.exp() * (logs - others)).sum(-1)


def _folder(models_dir: Path, dtype: torch.dtype) -> Path:
    return prepare(obtain(DEFAULT_MODEL, models_dir, print), dtype, models_dir, print).folder


def _token_ids(folder: Path) -> list[int]:
    tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    token_ids: list[int] = tokenizer.encode(
        TEXT.read_text(encoding="utf-8"), add_special_tokens=False
    )
    return token_ids


def _steps(token_ids: Sequence[int], num_decoded: int) -> Iterator[list[range]]:
    """Chunks; then the last tokens a few at once, a row and a sequence each, as decoding does."""
    num_chunked = max(0, len(token_ids) - num_decoded)
    for start in range(0, num_chunked, CHUNK):
        yield [range(start, min(start + CHUNK, num_chunked))]
    for start in range(num_chunked, len(token_ids), NUM_AT_ONCE):
        yield [range(i, i + 1) for i in range(start, min(start + NUM_AT_ONCE, len(token_ids)))]
