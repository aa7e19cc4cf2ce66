"""What a step's time bound does for many at once: `python -m benchmarks packing`.

Two scenes on the engine's core, without a server around it, once with each `--bounds`, in turns, so
that what else the machine does meets all of them alike. In the first so many chats go on at once,
each sending its next turn when its reply is there. In the second some replies run, then a long
prompt comes, and shortly after it a short turn of somebody else. With one thread all seconds, the
engine's own too, are those of its CPU time, which other processes hardly disturb.
"""

import argparse
import math
import random
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

from model.assembly import assemble
from model.config import Device, EngineConfig, SamplingParams
from model.core import EngineCore
from model.errors import ModelError
from model.messages import GenerationDelta, GenerationFinished, GenerationRequest

SHORT_TOKENS, SHORT_AFTER_S = 50, 0.3


@dataclass(slots=True)
class Reply:
    """When a generation was asked for, and when each of its tokens came; seconds."""

    asked_s: float
    token_s: list[float] = field(default_factory=list)
    token_ids: tuple[int, ...] = ()

    @property
    def first_token_s(self) -> float:
        """How long the first token took."""
        return self.token_s[0] - self.asked_s

    def gaps(self, since_s: float = 0.0, until_s: float = math.inf) -> list[float]:
        """Seconds between neighbours, as far as they overlap a span of time."""
        pairs = pairwise(self.token_s)
        return [b - a for a, b in pairs if b >= since_s and a <= until_s]


class Stage:
    """A core, what runs on it, and who wants to hear of an end."""

    def __init__(self, core: EngineCore) -> None:
        self.clock = core.clock
        self._core = core
        self._replies: dict[str, Reply] = {}
        self._next: dict[str, Callable[[Reply], None]] = {}

    def ask(
        self,
        name: str,
        token_ids: Sequence[int],
        num_tokens: int,
        parent: str | None = None,
        then: Callable[[Reply], None] = lambda reply: None,
    ) -> Reply:
        """Send a turn whose reply has so many tokens; `then` is called at its end."""
        chat = name.split("/")[0]
        params = SamplingParams(temperature=0.0, max_output_tokens=num_tokens, ignore_eos=True)
        self._core.submit(
            GenerationRequest(
                request_id=name,
                token_ids=tuple(token_ids),
                params=params,
                conversation_id=chat,
                parent_turn_id=parent,
            )
        )
        self._next[name] = then
        reply = self._replies[name] = Reply(self.clock())
        return reply

    def run(self, is_over: Callable[[], bool]) -> None:
        """Step until it is over, or nothing is left to do. Raises what a generation fails with."""
        while self._core.has_work and not is_over():
            for output in self._core.step():
                event, reply = output.event, self._replies[output.request_id]
                if isinstance(event, ModelError):
                    raise event
                if isinstance(event, GenerationDelta) and event.token_ids:
                    reply.token_s.append(self.clock())
                elif isinstance(event, GenerationFinished):
                    reply.token_ids = event.token_ids
                    self._next[output.request_id](reply)


def chats_at_once(core: EngineCore, options: argparse.Namespace, seed: int) -> dict[str, float]:
    """So many chats, each turn sent as soon as the one before it is answered."""
    core.evict(None)
    stage, ids = Stage(core), random.Random(seed)
    turns: list[tuple[int, Reply]] = []

    def send(chat: int, turn: int, log: Sequence[int]) -> None:
        num_new = options.turn_tokens if turn else options.first_tokens
        prompt = (*log, *_draw(core, ids, num_new))
        name = f"{seed}-{chat}/{turn}"
        parent = f"{seed}-{chat}/{turn - 1}" if turn else None

        def go_on(reply: Reply) -> None:
            if turn + 1 < options.turns:
                send(chat, turn + 1, (*prompt, *reply.token_ids))

        turns.append((turn, stage.ask(name, prompt, options.reply_tokens, parent, go_on)))

    began = stage.clock()
    for chat in range(options.chats):
        send(chat, 0, ())
    stage.run(lambda: False)
    total_s = stage.clock() - began
    gaps = [gap for _, reply in turns for gap in reply.gaps()]
    return {
        "chats: later-turn first token p50, ms": 1e3
        * statistics.median(reply.first_token_s for turn, reply in turns if turn),
        "chats: reply tokens a second": sum(len(r.token_s) for _, r in turns) / total_s,
        "chats: between tokens p50, ms": 1e3 * statistics.median(gaps),
        "chats: between tokens p99, ms": 1e3 * _p99(gaps),
    }


def long_prompt(core: EngineCore, options: argparse.Namespace, seed: int) -> dict[str, float]:
    """Replies run, a long prompt comes, and a short turn behind it."""
    core.evict(None)
    stage, ids = Stage(core), random.Random(seed)
    others = [
        stage.ask(f"{seed}-o{i}/0", _draw(core, ids, options.first_tokens), 10**4)
        for i in range(options.replies)
    ]
    stage.run(lambda: all(len(reply.token_s) > 20 for reply in others))
    long = stage.ask(f"{seed}-long/0", _draw(core, ids, options.long_tokens), 2)
    stage.run(lambda: stage.clock() > long.asked_s + SHORT_AFTER_S)
    short = stage.ask(f"{seed}-short/0", _draw(core, ids, SHORT_TOKENS), 2)
    stage.run(lambda: bool(long.token_s and short.token_s))
    gaps = [g for r in others for g in r.gaps(long.asked_s, long.token_s[0])]
    for i in range(options.replies):
        core.cancel(f"{seed}-o{i}/0")
    stage.run(lambda: False)
    return {
        "long prompt: between others' tokens p50, ms": 1e3 * statistics.median(gaps),
        "long prompt: between others' tokens p99, ms": 1e3 * _p99(gaps),
        "long prompt: its first token, ms": 1e3 * long.first_token_s,
        "long prompt: a short turn's first token, ms": 1e3 * short.first_token_s,
    }


def _draw(core: EngineCore, ids: random.Random, count: int) -> tuple[int, ...]:
    return tuple(ids.randrange(core.limits.vocab_size) for _ in range(count))


def _p99(values: Sequence[float]) -> float:
    return sorted(values)[int(0.99 * (len(values) - 1))]


Figures = dict[str, list[float]]


def main(arguments: list[str]) -> int:
    """Measure and print. The exit code."""
    options = _parser().parse_args(arguments)
    cores = {bound: _core(options, bound) for bound in options.bounds}
    figures: dict[float, Figures] = {bound: {} for bound in options.bounds}
    for number in range(options.rounds + 1):
        for bound, core in cores.items():
            for scene in (chats_at_once, long_prompt):
                for name, value in scene(core, options, number).items():
                    if number:  # the first round warms up
                        figures[bound].setdefault(name, []).append(value)
    print("\n".join(table(figures)))
    return 0


def _core(options: argparse.Namespace, bound: float) -> EngineCore:
    def say(text: str) -> None:
        print(text, file=sys.stderr, flush=True)

    config = EngineConfig(
        model=options.model,
        models_dir=options.models_dir,
        device=Device(options.device),
        num_threads=options.num_threads,
        max_itl_s=bound,
        num_blocks=options.num_blocks,
    )
    core, _ = assemble(config, say)
    core.clock = time.thread_time if options.num_threads == 1 else time.perf_counter
    return core


def table(figures: dict[float, Figures]) -> Iterator[str]:
    """Medians of the rounds with each bound, and their ratios to the last one, round by round, with
    the least and the most."""
    bounds = list(figures)
    *_, last = bounds
    yield f"| | {' | '.join(f'{bound:g} s' for bound in bounds)} | ratio of the first to the last |"
    yield "|---|" + "---:|" * len(bounds) + "---|"
    for name in figures[last]:
        cells = [f"{statistics.median(figures[bound][name]):,.0f}" for bound in bounds]
        pairs = zip(figures[bounds[0]][name], figures[last][name], strict=True)
        ratios = sorted(first / other for first, other in pairs)
        spread = f"{statistics.median(ratios):.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f})"
        yield f"| {name} | {' | '.join(cells)} | {spread} |"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks packing", description=__doc__)
    parser.add_argument("--model", default="default", help="as `splice serve --model`")
    parser.add_argument("--models-dir", type=Path, default=Path("data/models"))
    parser.add_argument("--device", default="auto", choices=[d.value for d in Device])
    parser.add_argument("--num-threads", type=int, default=0, help="0: torch's own number")
    parser.add_argument("--num-blocks", type=int, default=1200)
    parser.add_argument("--bounds", type=_numbers, default=(0.2, 1000.0), metavar="S,S,…")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--chats", type=int, default=8)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--first-tokens", type=int, default=800)
    parser.add_argument("--turn-tokens", type=int, default=60)
    parser.add_argument("--reply-tokens", type=int, default=32)
    parser.add_argument("--long-tokens", type=int, default=4000)
    parser.add_argument("--replies", type=int, default=4, help="that run when a long prompt comes")
    return parser


def _numbers(text: str) -> tuple[float, ...]:
    return tuple(float(part) for part in text.split(","))
