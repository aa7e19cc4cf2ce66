"""Checks and times the engine on a CUDA card: `python -m benchmarks gpu`.

Needs torch, transformers and `model` alone: no network, no weights (they are random), no server.
First some architectures go through their trials (`benchmarks.trial`) with both attention backends,
float32, and blocks go to host memory and back (`benchmarks.block_copies`); then a new turn behind a
long history is timed with and without reuse, in bfloat16. Exits with 1 when a check fails.
"""

import argparse
import random
import statistics
import time
from dataclasses import dataclass

import torch
import transformers
from transformers import AutoModelForCausalLM, LlamaConfig, PreTrainedModel

from benchmarks.architectures import try_served
from benchmarks.block_copies import copy_blocks
from benchmarks.driver import Prompt, RawTokenizer, run
from benchmarks.tiny_configs import SERVED
from model.assembly import build_core
from model.attention.base import IMPLEMENTATION, register
from model.attention.batched import BatchedBackend
from model.config import EngineConfig
from model.core import EngineCore

HISTORIES = (500, 1000, 2000, 4000, 8000)
NEW_TOKENS = 50
SHAPES: dict[str, dict[str, int]] = {
    # Llama 3.2 1B and Llama 2 13B in everything but the vocabulary.
    "1b": {
        "hidden_size": 2048,
        "intermediate_size": 8192,
        "num_hidden_layers": 16,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
    },
    "13b": {
        "hidden_size": 5120,
        "intermediate_size": 13824,
        "num_hidden_layers": 40,
        "num_attention_heads": 40,
        "num_key_value_heads": 40,
    },
}


def main(arguments: list[str]) -> int:
    """Check, then time. The exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks gpu", description=__doc__)
    parser.add_argument(
        "--device", default="cuda", help="cuda (default) or cpu, to try the program"
    )
    parser.add_argument(
        "--architectures", default="llama,qwen3,gemma2", help="model types to try, of the table's"
    )
    parser.add_argument(
        "--shapes", default="1b,13b", help=f"of {', '.join(SHAPES)}; empty: no timing"
    )
    parser.add_argument("--repeats", type=int, default=5, help="timed turns for each history")
    options = parser.parse_args(arguments)
    if options.device == "cuda" and not torch.cuda.is_available():
        print("this torch sees no CUDA device; --device cpu runs the checks here")
        return 2
    device = torch.device(options.device)
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else "CPU"
    print(f"{name}, torch {torch.__version__}, transformers {transformers.__version__}")
    if not check(device, set(options.architectures.split(","))) or not copy_blocks(device):
        return 1
    for shape in filter(None, options.shapes.split(",")):
        measure(shape, device, options.repeats)
    return 0


def check(device: torch.device, model_types: set[str]) -> bool:
    """Try these architectures with every backend; prints a row for each, and whether all passed."""
    all_passed = True
    for architecture in SERVED:
        if architecture.model_type in model_types:
            finding = try_served(architecture, device)
            print(finding.row, flush=True)
            all_passed = all_passed and finding.is_good
    return all_passed


# Timing


def measure(shape: str, device: torch.device, repeats: int) -> None:
    """Time a 50-token turn behind each history, its history kept and dropped; prints a table."""
    register()
    config = EngineConfig(num_blocks=1024, block_size=16, token_budget=2048)
    model = _random_model(shape, device)
    backend = BatchedBackend(device)
    core = build_core(config, model, backend, RawTokenizer(), identity=shape, eos=())
    num_parameters = sum(p.numel() for p in model.parameters())
    print(f"\n{shape}: {num_parameters / 1e9:.2f} G parameters, {model.dtype}, random weights")
    print("history  rows with  rows without  first token with  without   ratio")
    for history in HISTORIES:
        kept, dropped = _time_turns(core, history, repeats)
        with_ms, without_ms = (1000 * statistics.median(s) for s in (kept.seconds, dropped.seconds))
        print(
            f"{history:7d}  {kept.rows:9d}  {dropped.rows:12d}  {with_ms:13.1f} ms"
            f"  {without_ms:7.1f} ms  {without_ms / with_ms:5.1f}x"
        )


@dataclass(slots=True)
class _Series:
    rows: int
    seconds: list[float]


def _time_turns(core: EngineCore, history: int, repeats: int) -> tuple[_Series, _Series]:
    """The same turn with its history kept and dropped, alternating; the first pair warms up."""
    ids = random.Random(history)
    vocab = core.limits.vocab_size
    kept, dropped = _Series(0, []), _Series(0, [])
    for i in range(repeats + 1):
        log = [ids.randrange(vocab) for _ in range(history)]
        new = [ids.randrange(vocab) for _ in range(NEW_TOKENS)]
        first = run(core, Prompt(name=f"h{history}/{i}", token_ids=log), 1)
        log = [*log, *first.token_ids]
        for series, forget in ((kept, False), (dropped, True)):
            if forget:
                core.evict(None)
            name = f"n{history}/{i}/{forget}"
            prompt = Prompt(name=name, token_ids=log + new, parent=f"h{history}/{i}")
            result = run(core, prompt, 1)
            series.rows = result.claim.computed
            series.seconds += [result.first_token_s] if i else []
        core.evict(None)
    return kept, dropped


def _random_model(shape: str, device: torch.device) -> PreTrainedModel:
    config = LlamaConfig(**SHAPES[shape], vocab_size=32000, max_position_embeddings=16384)
    began = time.perf_counter()
    with device:
        model = AutoModelForCausalLM.from_config(
            config, attn_implementation=IMPLEMENTATION, dtype=torch.bfloat16
        )
    print(f"made a random {shape} model in {time.perf_counter() - began:.1f} s", flush=True)
    return model.eval().requires_grad_(requires_grad=False)
