"""Drives Splice and any OpenAI-compatible server with the same chats: `python -m benchmarks
multiturn --splice URL --peer NAME=URL …`.

Splice is measured both ways, through its session API and through stateless chat completions. All
targets get the same seeded words, interleaved round by round (A B A B …), so that what else the
machine does meets all alike; what is compared are ratios of one run. Replies are greedy and, where
a server knows `ignore_eos`, all of one length. Nothing is started here: the command lines of the
servers are in docs/benchmarks.md.
"""

import argparse
import asyncio
import json
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.targets import Chat, CompletionsTarget, SessionTarget, Target, TurnTimes
from benchmarks.workloads import WORKLOADS, Workload


@dataclass(slots=True)
class Round:
    """One workload sent once: the turns by their place in the chat, and how long it all took."""

    turns: list[tuple[int, TurnTimes]] = field(default_factory=list)
    total_s: float = 0.0

    @property
    def later_first_token_s(self) -> float:
        """The median over all turns but the chats' first."""
        return statistics.median(t.first_token_s for turn, t in self.turns if turn)

    @property
    def inter_token_s(self) -> float:
        """The median over the turns."""
        return statistics.median(t.inter_token_s for _, t in self.turns)

    @property
    def tokens_per_s(self) -> float:
        """Reply tokens of all chats together."""
        return sum(t.num_tokens for _, t in self.turns) / self.total_s


FIGURES: dict[str, Callable[[Round], float]] = {
    "later-turn first token (ms)": lambda r: r.later_first_token_s * 1e3,
    "between tokens (ms)": lambda r: r.inter_token_s * 1e3,
    "reply tokens a second": lambda r: r.tokens_per_s,
}


def main(arguments: list[str]) -> int:
    """Measure and print. The exit code."""
    options = _parser().parse_args(arguments)
    if not (options.splice or options.peer):
        print("name at least one server: --splice URL or --peer NAME=URL", file=sys.stderr)
        return 2
    if unknown := set(options.workloads) - WORKLOADS.keys():
        print(f"no workload {', '.join(sorted(unknown))}: {', '.join(WORKLOADS)}", file=sys.stderr)
        return 2
    chosen = [WORKLOADS[name] for name in options.workloads]
    rounds = asyncio.run(_measure(options, chosen))
    for workload in chosen:
        print(report(workload, {n: r for (n, w), r in rounds.items() if w == workload.name}))
    if options.json:
        options.json.write_text(json.dumps(_raw(rounds), indent=1), encoding="utf-8")
    return 0


def _targets(options: argparse.Namespace) -> dict[str, Target]:
    targets: dict[str, Target] = {}
    if options.splice:
        targets["splice sessions"] = SessionTarget(options.splice)
        targets["splice completions"] = CompletionsTarget(options.splice)
    for named in options.peer:
        name, _, url = named.partition("=")
        targets[name] = CompletionsTarget(url)
    return targets


Rounds = dict[tuple[str, str], list[Round]]


async def _measure(options: argparse.Namespace, workloads: Sequence[Workload]) -> Rounds:
    targets = _targets(options)
    rounds: Rounds = {(name, w.name): [] for name in targets for w in workloads}
    try:
        for workload in workloads:
            for number in range(options.rounds):
                for name, target in targets.items():
                    measured = await send(target, workload, number)
                    rounds[name, workload.name].append(measured)
                    print(f"{workload.name} round {number + 1}: {name}", file=sys.stderr)
    finally:
        for target in targets.values():
            await target.close()
    return rounds


async def send(target: Target, workload: Workload, number: int) -> Round:
    """Send a workload once. Raises what the target does."""
    measured = Round()
    chats = [await target.begin(workload.system(i, number)) for i in range(workload.num_chats)]
    begun = time.perf_counter()
    if workload.num_at_once == 1:
        for chat, turn in workload.order():
            await _say(chats[chat], workload, (chat, turn, number), measured)
    else:
        places = asyncio.Semaphore(workload.num_at_once)
        async with asyncio.TaskGroup() as tasks:
            for chat in range(workload.num_chats):
                tasks.create_task(_talk(chats[chat], workload, chat, number, places, measured))
    measured.total_s = time.perf_counter() - begun
    return measured


async def _talk(
    chat: Chat,
    workload: Workload,
    who: int,
    number: int,
    places: asyncio.Semaphore,
    measured: Round,
) -> None:
    async with places:
        for turn in range(workload.num_turns):
            await _say(chat, workload, (who, turn, number), measured)


async def _say(
    chat: Chat, workload: Workload, place: tuple[int, int, int], measured: Round
) -> None:
    times = await chat.say(workload.message(*place), workload.reply_tokens)
    if times.token_s:  # a reply without text says nothing of time
        measured.turns.append((place[1], times))


def report(workload: Workload, rounds: dict[str, list[Round]]) -> str:
    """A table of medians over the rounds, with their spread, and each target's ratio to the first
    round by round."""
    first = next(iter(rounds))
    lines = [f"\n### {workload.name}\n", "| | " + " | ".join(rounds) + " |"]
    lines.append("|---" * (1 + len(rounds)) + "|")
    for title, figure in FIGURES.items():
        cells = []
        for name, measured in rounds.items():
            values = sorted(figure(r) for r in measured)
            ratios = sorted(
                figure(a) / figure(b) for a, b in zip(measured, rounds[first], strict=True)
            )
            cell = f"{statistics.median(values):.1f} ({values[0]:.1f} to {values[-1]:.1f})"
            if name != first:
                cell += f"; {statistics.median(ratios):.2f} x"
            cells.append(cell)
        lines.append(f"| {title} | " + " | ".join(cells) + " |")
    by_turn = {
        name: [_median_of_turn(measured, turn) for turn in range(workload.num_turns)]
        for name, measured in rounds.items()
    }
    lines.append("\nFirst token by turn, ms:")
    lines += [f"- {name}: " + ", ".join(values) for name, values in by_turn.items()]
    return "\n".join(lines)


def _median_of_turn(measured: Sequence[Round], turn: int) -> str:
    times = [t.first_token_s for r in measured for place, t in r.turns if place == turn]
    return f"{statistics.median(times) * 1e3:.0f}" if times else "-"


def _raw(rounds: Rounds) -> list[dict[str, object]]:
    return [
        {
            "target": target,
            "workload": workload,
            "round": number,
            "total_s": measured.total_s,
            "turns": [
                [turn, t.first_token_s, t.inter_token_s, t.num_tokens, t.num_cached]
                for turn, t in measured.turns
            ],
        }
        for (target, workload), all_rounds in rounds.items()
        for number, measured in enumerate(all_rounds)
    ]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks multiturn", description=__doc__)
    parser.add_argument("workloads", nargs="*", default=["W1", "W2", "W3"], metavar="WORKLOAD")
    parser.add_argument("--splice", metavar="URL", help="a running Splice server")
    parser.add_argument(
        "--peer", metavar="NAME=URL", action="append", default=[], help="any OpenAI-compatible one"
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", type=Path, help="where every turn's figures go")
    return parser
