"""Times a new turn behind a long history, kept and dropped: `python -m benchmarks reuse`.

Everything goes through the real engine process, as the server uses it; the time is what passes on
this side of it from the request to the first token. Rows are those that entered the model's
embedding, counted by the engine's own hook on it. Both cases alternate, so that what else the
machine does meets both alike, and each pair gives a ratio of its own.
"""

import argparse
import asyncio
import json
import random
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from pathlib import Path

from model.config import Device, EngineConfig, Mode, SamplingParams
from model.engine import Engine
from model.messages import EngineInfo, GenerationDelta, GenerationRequest

HISTORIES = (500, 1000, 2000, 4000)
NEW_TOKENS = 50
BLOCK_SIZE = 16


@dataclass(frozen=True, slots=True)
class Turn:
    """One measured turn."""

    rows: int
    first_token_s: float
    reply: tuple[int, ...]


@dataclass(slots=True)
class Comparison:
    """The same turn behind the same history, several times, as `(kept, dropped)` pairs."""

    history: int
    new_tokens: int
    pairs: list[tuple[Turn, Turn]] = field(default_factory=list)

    def rows(self, case: int) -> int:
        """How many rows every turn of a case computed; they must all be the same."""
        (rows,) = {pair[case].rows for pair in self.pairs}
        return rows

    def median_s(self, case: int) -> float:
        """Seconds to the first token."""
        return statistics.median(pair[case].first_token_s for pair in self.pairs)

    @property
    def ratios(self) -> list[float]:
        """Dropped to kept, pair by pair, from the least to the most."""
        return sorted(b.first_token_s / a.first_token_s for a, b in self.pairs)


def main(arguments: list[str]) -> int:
    """Measure and print. The exit code."""
    options = _parser().parse_args(arguments)
    config = EngineConfig(
        model=options.model,
        models_dir=options.models_dir,
        device=Device(options.device),
        mode=Mode(options.mode),
        num_threads=options.num_threads,
        block_size=BLOCK_SIZE,
        num_blocks=8 + (max(options.histories) + options.new_tokens) // BLOCK_SIZE,
    )

    def say(text: str) -> None:
        print(text, file=sys.stderr, flush=True)

    info, comparisons = asyncio.run(
        measure(config, options.histories, options.new_tokens, options.repeats, say)
    )
    if options.json:
        print(json.dumps(as_json(info, comparisons), indent=1))
    else:
        print("\n".join(table(info, comparisons)))
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks reuse", description=__doc__)
    parser.add_argument("--model", default="default", help="as `splice serve --model`")
    parser.add_argument("--models-dir", type=Path, default=Path("data/models"))
    parser.add_argument("--device", default="auto", choices=[d.value for d in Device])
    parser.add_argument("--mode", default="fast", choices=[m.value for m in Mode])
    parser.add_argument("--num-threads", type=int, default=0, help="0: torch's own number")
    parser.add_argument("--histories", type=_counts, default=HISTORIES, metavar="N,N,…")
    parser.add_argument("--new-tokens", type=int, default=NEW_TOKENS)
    parser.add_argument("--repeats", type=int, default=7, help="pairs for each history")
    parser.add_argument("--json", action="store_true", help="every sample, instead of the table")
    return parser


def _counts(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(","))


async def measure(
    config: EngineConfig,
    histories: Iterable[int],
    new_tokens: int,
    repeats: int,
    say: Callable[[str], None],
) -> tuple[EngineInfo, list[Comparison]]:
    """Start an engine and compare behind each history. Raises ModelError."""
    engine = Engine(config, on_progress=say)
    info = await engine.start()
    try:
        comparisons = []
        for history in histories:
            say(f"behind {history} tokens")
            comparisons.append(await _compare(engine, history, new_tokens, repeats))
    finally:
        await engine.close()
    return info, comparisons


async def _compare(engine: Engine, history: int, new_tokens: int, repeats: int) -> Comparison:
    """Pairs of turns; the first pair warms up and is not kept."""
    comparison = Comparison(history, new_tokens)
    ids = random.Random(history)
    for number in range(repeats + 1):
        await engine.evict()
        past = _request(f"{history}/{number}", _draw(engine, ids, history - 1))
        begun = await _run(engine, past)
        log = (*past.token_ids, *begun.reply)
        new = _draw(engine, ids, new_tokens)
        following = _request(f"{past.request_id}/kept", (*log, *new), parent=past.request_id)
        kept = await _run(engine, following)
        await engine.evict()
        following = _request(f"{past.request_id}/dropped", (*log, *new), parent=past.request_id)
        dropped = await _run(engine, following)
        if number:
            comparison.pairs.append((kept, dropped))
    return comparison


def _draw(engine: Engine, ids: random.Random, count: int) -> tuple[int, ...]:
    return tuple(ids.randrange(engine.info.vocab_size) for _ in range(count))


def _request(name: str, ids: Sequence[int], parent: str | None = None) -> GenerationRequest:
    return GenerationRequest(
        request_id=name,
        token_ids=tuple(ids),
        params=SamplingParams(temperature=0.0, max_output_tokens=1, ignore_eos=True),
        conversation_id="conversation",
        parent_turn_id=parent,
    )


async def _run(engine: Engine, request: GenerationRequest) -> Turn:
    rows_before = (await engine.stats()).rows_computed_total
    began, first_token_s = time.perf_counter(), 0.0
    reply: list[int] = []
    async for event in engine.generate(request):
        if isinstance(event, GenerationDelta) and event.token_ids:
            first_token_s = first_token_s or time.perf_counter() - began
            reply += event.token_ids
    rows = (await engine.stats()).rows_computed_total - rows_before
    return Turn(rows, first_token_s, tuple(reply))


def table(info: EngineInfo, comparisons: Sequence[Comparison]) -> list[str]:
    """Lines for people; milliseconds are medians, the ratio's spread its least and most, and the
    cut what reuse takes off the time to the first token, by the median ratio."""
    lines = [
        f"{info.model_id} on {info.device}, {info.dtype}, mode {info.mode}, attention "
        f"{info.attention}; torch {version('torch')}, transformers {version('transformers')}",
        "history  rows with  rows without  first token with    without   ratio  (least to most)"
        "  cut",
    ]
    for comparison in comparisons:
        ratios = comparison.ratios
        lines.append(
            f"{comparison.history:7d}  {comparison.rows(0):9d}  {comparison.rows(1):12d}"
            f"  {1000 * comparison.median_s(0):13.1f} ms  {1000 * comparison.median_s(1):7.1f} ms"
            f"  {statistics.median(ratios):5.1f}x  ({ratios[0]:.1f} to {ratios[-1]:.1f})"
            f"  {1 - 1 / statistics.median(ratios):.1%}"
        )
    return lines


def as_json(info: EngineInfo, comparisons: Sequence[Comparison]) -> dict[str, object]:
    """Every sample, with what it was measured on."""
    return {
        "model": info.model_id,
        "device": info.device,
        "dtype": info.dtype,
        "mode": info.mode,
        "attention": info.attention,
        "torch": version("torch"),
        "transformers": version("transformers"),
        "histories": [
            {
                "history": c.history,
                "new_tokens": c.new_tokens,
                "kept": [_sample(kept) for kept, _ in c.pairs],
                "dropped": [_sample(dropped) for _, dropped in c.pairs],
                "median_ratio": statistics.median(c.ratios),
            }
            for c in comparisons
        ],
    }


def _sample(turn: Turn) -> dict[str, object]:
    sample = asdict(turn)
    del sample["reply"]
    return sample
