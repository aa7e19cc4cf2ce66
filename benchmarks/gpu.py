"""Checks and times the engine on a CUDA card: `python -m benchmarks gpu`.

Needs torch, transformers and `model` alone: no network, no weights (they are random), no server.
First turns, a regenerated and a forked reply, a rewind and eviction are held against a dense
forward with both attention backends, float32; then a new turn behind a long history is timed with
and without reuse, in bfloat16. Exits with 1 when a check fails.
"""

import argparse
import random
import statistics
import time
from collections.abc import Iterator
from dataclasses import dataclass

import torch
import transformers
from transformers import AutoModelForCausalLM, LlamaConfig, PreTrainedConfig, PreTrainedModel

from benchmarks.dense import VOCAB_SIZE, DenseOracle, build_model, tiny_llama, tiny_qwen3
from benchmarks.driver import Prompt, RawTokenizer, run
from model.assembly import build_core
from model.attention.base import IMPLEMENTATION, AttentionBackend, register
from model.attention.batched import BatchedBackend
from model.attention.reference import ReferenceBackend
from model.config import EngineConfig
from model.core import EngineCore

HISTORIES = (500, 1000, 2000, 4000, 8000)
NEW_TOKENS = 50
REPLY_TOKENS = 8
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
    if not check(device):
        return 1
    for shape in filter(None, options.shapes.split(",")):
        measure(shape, device, options.repeats)
    return 0


# Checks


@dataclass(frozen=True, slots=True)
class _Case:
    name: str
    config: PreTrainedConfig
    backend: AttentionBackend


def check(device: torch.device) -> bool:
    """Hold every backend against the dense oracle; prints a line a case, and whether all passed."""
    register()
    all_passed = True
    for case in _cases(device):
        oracle = DenseOracle(case.config, device)
        try:
            num_tokens = _scenario(_tiny_core(case, device), oracle)
        except AssertionError as exc:
            all_passed = False
            print(f"FAILED  {case.name}: {exc}")
        else:
            print(f"passed  {case.name}: {num_tokens} tokens, {oracle.near_ties} near ties")
    return all_passed


def _cases(device: torch.device) -> Iterator[_Case]:
    for config in (tiny_llama(), tiny_qwen3()):
        for backend in (ReferenceBackend(), BatchedBackend(device)):
            yield _Case(f"{config.model_type} with {backend.name} attention", config, backend)


def _tiny_core(case: _Case, device: torch.device) -> EngineCore:
    model = build_model(case.config, IMPLEMENTATION, device)
    config = EngineConfig(num_blocks=48, block_size=4, token_budget=32, check_books=True)
    return build_core(config, model, case.backend, RawTokenizer(), identity="tiny", eos=())


def _scenario(core: EngineCore, oracle: DenseOracle) -> int:
    """Turns, regenerate, fork, rewind and eviction; the number of tokens that were compared."""
    ids = random.Random(3)
    num_tokens = 0

    def turn(prompt: Prompt, least_reused: int) -> list[int]:
        nonlocal num_tokens
        result = run(core, prompt, REPLY_TOKENS)
        oracle.assert_greedy(prompt.token_ids, result.token_ids)
        reused = result.claim.num_reused
        assert reused >= least_reused, f"{prompt.name}: {reused} reused, {least_reused} wanted"
        num_tokens += len(result.token_ids)
        return [*prompt.token_ids, *result.token_ids]

    def more(log: list[int], count: int) -> list[int]:
        return log + [ids.randrange(VOCAB_SIZE) for _ in range(count)]

    logs: list[list[int]] = [[]]
    for i in range(5):
        parent = f"t{i - 1}" if i else None
        prompt = Prompt(name=f"t{i}", token_ids=more(logs[-1], 7 + i), parent=parent)
        logs.append(turn(prompt, max(0, len(logs[-1]) - 1)))
    last = logs[-1]
    turn(Prompt(name="again", token_ids=last[:-REPLY_TOKENS], parent="t3"), len(logs[4]) - 1)
    fork = Prompt(name="f", token_ids=more(last, 5), conversation="fork", parent="t4", origin="c")
    turn(fork, len(last) - 1)
    turn(Prompt(name="rewind", token_ids=more(logs[2], 9), parent="t1"), len(logs[2]) - 1)
    core.evict(None)
    turn(Prompt(name="evicted", token_ids=more(last, 3), parent="t4"), 0)
    return num_tokens


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
