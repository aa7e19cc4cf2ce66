"""What bookkeeping costs as a conversation grows: `python -m benchmarks micro`.

Times the parts of a turn that involve no tensors (submit, claim, fork, commit with its hashes,
park) behind histories of up to 32,000 tokens, for a turn of 48 new tokens. Each must cost what its
new blocks cost, not what its history does; what remains that grows is copying and comparing ids,
32 bits each, at memory speed. The same program prints how much of a whole claim hashing the whole
history afresh would take, as a server without parked tables does at every turn.

With `--steps` it times what a step's parts cost instead, with `--compiled` the step by the
model's modules and compiled, with `--overhead` what of an engine step is not the model's call:
`benchmarks.step_parts`, `compiled_step` and `step_overhead` have the words.

With `--tokenizer FOLDER` it times instead what a grammar costs a step with that vocabulary: its
mask, and forbidding one row of logits by it.
"""

import argparse
import statistics
import time
from array import array
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from model.block_table import BlockTable
from model.cache_manager import CacheManager
from model.config import SamplingParams
from model.messages import GenerationRequest
from model.prefix_index import BlockHash, BlockHasher
from model.sequence import Sequence

HISTORIES = (1000, 2000, 4000, 8000, 16000, 32000)
NEW_TOKENS = 48
BLOCK_SIZE = 16
PARTS = ("submit", "claim", "commit", "park", "fork", "rehash")


@dataclass(slots=True)
class Costs:
    """Seconds of each part, one entry a round."""

    seconds: dict[str, list[float]] = field(default_factory=lambda: {p: [] for p in PARTS})

    def time(self, part: str, action: Callable[[], object]) -> None:
        """Run an action and note how long it took."""
        began = time.perf_counter()
        action()
        self.seconds[part].append(time.perf_counter() - began)

    def median_us(self, part: str) -> float:
        """A part's median in microseconds."""
        return statistics.median(self.seconds[part]) * 1e6


def main(arguments: list[str]) -> int:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks micro", description=__doc__)
    parser.add_argument("--rounds", type=int, default=30, help="turns measured behind each history")
    parser.add_argument(
        "--longest", type=int, default=HISTORIES[-1], help="longest history, tokens"
    )
    parser.add_argument("--tokenizer", type=Path, help="folder of a model whose masks are timed")
    parser.add_argument("--steps", action="store_true", help="a step's parts on the CPU instead")
    parser.add_argument("--compiled", action="store_true", help="the compiled step instead")
    parser.add_argument("--overhead", action="store_true", help="a step without its model instead")
    parser.add_argument("--threads", type=int, default=1, help="torch's, for those")
    parser.add_argument("--native-dir", type=Path, help="where compiled steps lie, for --compiled")
    parser.add_argument("--models-dir", type=Path, default=Path("data/models"))
    options = parser.parse_args(arguments)
    if options.steps:
        from benchmarks.step_parts import measure as measure_steps  # bookkeeping needs no torch

        measure_steps(options.models_dir, options.threads, options.rounds)
        return 0
    if options.compiled:
        from benchmarks.compiled_step import measure as measure_compiled

        measure_compiled(options.models_dir, options.threads, options.rounds, options.native_dir)
        return 0
    if options.overhead:
        from benchmarks.step_overhead import measure as measure_overhead

        measure_overhead(options.models_dir, options.threads, options.rounds)
        return 0
    if options.tokenizer is not None:
        return _grammars(options.tokenizer, options.rounds)
    histories = [h for h in HISTORIES if h <= options.longest]
    print(f"microseconds (medians of {options.rounds}) for a turn of {NEW_TOKENS} new tokens")
    print("history " + "".join(f"{part:>10}" for part in PARTS))
    for history in histories:
        costs = measure(history, options.rounds)
        print(f"{history:7d} " + "".join(f"{costs.median_us(part):10.0f}" for part in PARTS))
    return 0


def _grammars(folder: Path, rounds: int) -> int:
    """Time masks as a sampler uses them."""
    from benchmarks.masks import measure_masks

    costs = measure_masks(folder, rounds)
    print(f"microseconds a step, of {len(costs.mask_s)} steps: median, p95, largest")
    for name, seconds in (("mask", costs.mask_s), ("applied", costs.apply_s)):
        ordered = sorted(seconds)
        p95 = ordered[int(0.95 * len(ordered))]
        shown = (statistics.median(ordered), p95, ordered[-1])
        print(f"{name:8} " + " ".join(f"{value * 1e6:8.0f}" for value in shown))
    print(f"compiled in {1e3 * max(costs.compile_s):.1f} ms at most")
    return 0


def measure(history: int, rounds: int) -> Costs:
    """The costs of turns and forks behind `history` tokens."""
    num_blocks = 4 * (history + rounds * NEW_TOKENS) // BLOCK_SIZE
    hasher = BlockHasher("micro", "none", BLOCK_SIZE)
    cache, costs = CacheManager(num_blocks, hasher), Costs()
    log = array("i", (i * 7919 % 49152 for i in range(history)))
    _turn(cache, Costs(), "t0", log, parent=None)
    for i in range(rounds):
        log = log + array("i", (i + j for j in range(NEW_TOKENS)))
        _turn(cache, costs, f"t{i + 1}", log, parent=f"t{i}")
        # A fork takes nothing from the turn it leaves and copies one block at most.
        fork = _sequence(f"f{i}", log, parent=f"t{i + 1}", conversation=f"fork{i}")
        costs.time("fork", lambda fork=fork: cache.claim(fork))  # type: ignore[misc]
        cache.release(fork)
        hashes: list[BlockHash] = []
        costs.time("rehash", lambda log=log, h=hashes: hasher.extend(h, log, ""))  # type: ignore[misc]
    return costs


def _turn(
    cache: CacheManager, costs: Costs, name: str, log: "array[int]", parent: str | None
) -> None:
    """One turn of the conversation, from its request to its parked table."""
    made: list[Sequence] = []
    costs.time("submit", lambda: made.append(_sequence(name, log, parent=parent)))
    sequence = made[0]
    costs.time("claim", lambda: cache.claim(sequence))
    cache.grow(sequence, sequence.num_uncomputed_tokens)
    sequence.num_computed_tokens = sequence.num_tokens - 1
    costs.time("commit", lambda: cache.commit(sequence))
    costs.time("park", lambda: cache.park(sequence, 0.0))
    cache.supply.take_edits()


def _sequence(
    name: str, log: "array[int]", *, parent: str | None, conversation: str = "c"
) -> Sequence:
    request = GenerationRequest(
        request_id=name,
        token_ids=log,
        params=SamplingParams(),
        conversation_id=conversation,
        parent_turn_id=parent,
        origin_conversation_id="c",
    )
    return Sequence(
        request=request, table=BlockTable(BLOCK_SIZE), arrived_s=0.0, seed=0, max_tokens=1 << 30
    )
