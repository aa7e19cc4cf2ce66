"""Drives Splice and any OpenAI-compatible server with the same chats: `python -m benchmarks
multiturn --splice URL --peer NAME=URL …`.

Splice is measured both ways, through its session API and through stateless chat completions. All
targets get the same seeded words, interleaved round by round; what is compared are ratios of one
run. Replies are greedy and, where a server knows `ignore_eos`, all of one length. Nothing is
started here: the command lines of the servers are in docs/benchmarks.md.
"""

import argparse
import asyncio
import importlib
import json
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from benchmarks import comparison
from benchmarks.rounds import Rounds, measure, send
from benchmarks.targets import CompletionsTarget, SessionTarget, Target
from benchmarks.workloads import WARM_UP, WORKLOADS, Workload

Drawer = Callable[[Workload, Rounds, Path], Path]


def main(arguments: list[str]) -> int:
    """Measure and print. The exit code."""
    options = _parser().parse_args(arguments)
    if complaint := _complaint(options):
        print(complaint, file=sys.stderr)
        return 2
    draw = drawer() if options.plots else None
    chosen = [WORKLOADS[name] for name in options.workloads]
    measured = asyncio.run(_measure(options, chosen))
    peers = [name for name, _ in options.peer]
    for workload, rounds in zip(chosen, measured, strict=True):
        print(comparison.report(workload, rounds, peers))
        if draw:
            print(f"\n![{workload.name}]({draw(workload, rounds, options.plots)})")
    if options.json:
        write_raw(options.json, zip(chosen, measured, strict=True))
    return 0


def _complaint(options: argparse.Namespace) -> str | None:
    if not (options.splice or options.peer):
        return "name at least one server: --splice URL or --peer NAME=URL"
    if unknown := set(options.workloads) - WORKLOADS.keys():
        return f"no workload {', '.join(sorted(unknown))}: {', '.join(WORKLOADS)}"
    return None


def drawer() -> Drawer:
    """What draws the plots. Ends the program with an advice where matplotlib is missing, before
    minutes have been spent on measuring."""
    try:
        draw: Drawer = importlib.import_module("benchmarks.plots").draw
    except ModuleNotFoundError as exc:
        raise SystemExit(f"plots need matplotlib, the extra `bench`: {exc}") from exc
    return draw


def write_raw(path: Path, measured: Iterable[tuple[Workload, Rounds]]) -> None:
    """Write every turn's figures as JSON."""
    rows = [row for workload, rounds in measured for row in comparison.raw(workload, rounds)]
    path.write_text(json.dumps(rows, indent=1), encoding="utf-8")


async def _measure(options: argparse.Namespace, workloads: Sequence[Workload]) -> list[Rounds]:
    targets: dict[str, Target] = {}
    if options.splice:
        targets["splice sessions"] = SessionTarget(options.splice)
        targets["splice completions"] = CompletionsTarget(options.splice, opening="su ")
    targets |= {name: CompletionsTarget(url) for name, url in options.peer}
    try:
        for target in targets.values():
            await send(target, WARM_UP, 0)
        return [await measure(targets, w, round_numbers(options), say) for w in workloads]
    finally:
        for target in targets.values():
            await target.close()


def say(text: str) -> None:
    """Tell how far it is, beside the output."""
    print(text, file=sys.stderr, flush=True)


def named_url(text: str) -> tuple[str, str]:
    """Read `NAME=URL`. Raises ArgumentTypeError."""
    name, is_named, url = text.partition("=")
    if not (name and is_named and url):
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=URL")
    return name, url


def round_numbers(options: argparse.Namespace) -> range:
    """The rounds that are wanted, from 0."""
    first = max(1, options.first_round) - 1
    return range(first, first + options.rounds)


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options of whatever drives running servers."""
    parser.add_argument("--splice", metavar="URL", help="a running Splice server")
    parser.add_argument(
        "--peer",
        metavar="NAME=URL",
        action="append",
        default=[],
        type=named_url,
        help="any OpenAI-compatible server; may be given several times",
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--first-round",
        type=int,
        default=1,
        metavar="N",
        help="each round has its own words: those of N on, where servers know the ones before",
    )
    parser.add_argument("--json", type=Path, help="where every turn's figures go")
    parser.add_argument(
        "--plots", type=Path, metavar="FOLDER", help="where a plot a workload goes (extra `bench`)"
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks multiturn", description=__doc__)
    parser.add_argument("workloads", nargs="*", default=["W1", "W2", "W3"], metavar="WORKLOAD")
    add_options(parser)
    return parser
