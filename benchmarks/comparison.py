"""What rounds come to, as tables: medians with their spread, and ratios to the best peer.

A ratio is taken round by round, ours ÷ the peer's, so that what the machine did in a round is in
both; which peer is the best is decided figure by figure, by its median.
"""

import statistics
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass

from benchmarks.rounds import Round, Rounds
from benchmarks.workloads import Workload


@dataclass(frozen=True, slots=True)
class Figure:
    """One number of a round, and which way is better."""

    title: str
    of: Callable[[Round], float]
    is_more_better: bool = False

    def median(self, measured: Sequence[Round]) -> float:
        """Over the rounds."""
        return statistics.median(self.of(r) for r in measured)

    def ratios(self, ours: Sequence[Round], theirs: Sequence[Round]) -> list[float]:
        """Ours ÷ theirs, round by round, from the least to the most."""
        return sorted(self.of(a) / self.of(b) for a, b in zip(ours, theirs, strict=True))

    def best(self, rounds: Rounds, names: Collection[str]) -> str:
        """The name whose median is the best."""
        choose = max if self.is_more_better else min
        return choose(names, key=lambda name: self.median(rounds[name]))


FIRST_TOKEN = Figure("later-turn first token (ms)", lambda r: r.later_first_token_s * 1e3)
FIGURES = (
    FIRST_TOKEN,
    Figure("between tokens (ms)", lambda r: r.inter_token_s * 1e3),
    Figure("reply tokens a second", lambda r: r.tokens_per_s, is_more_better=True),
)


def report(workload: Workload, rounds: Rounds, peers: Collection[str]) -> str:
    """A section in Markdown. With peers ratios are to the best of them, else to the first target;
    a single target has none."""
    return "\n".join(
        [
            f"\n### {workload.name}\n",
            *_medians(rounds),
            *_ratios(rounds, peers),
            "\nFirst token by turn, ms:\n",
            *_by_turn(workload, rounds),
        ]
    )


def spread(ratios: Sequence[float]) -> str:
    """The median, with the least and the most of a sorted list."""
    return f"{statistics.median(ratios):.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f})"


def turn_median_ms(measured: Sequence[Round], turn: int) -> float | None:
    """Milliseconds to the first token of the chats' turn of that place; None without any."""
    times = [s.times.first_token_s for r in measured for s in r.said if s.turn == turn]
    return statistics.median(times) * 1e3 if times else None


def _medians(rounds: Rounds) -> Iterator[str]:
    yield "| | " + " | ".join(rounds) + " |"
    yield "|---" * (1 + len(rounds)) + "|"
    for figure in FIGURES:
        cells = []
        for measured in rounds.values():
            values = sorted(map(figure.of, measured))
            cells.append(f"{statistics.median(values):.1f} ({values[0]:.1f} to {values[-1]:.1f})")
        yield f"| {figure.title} | " + " | ".join(cells) + " |"
    shares = [_share(measured) for measured in rounds.values()]
    yield "| of the later prompts reused | " + " | ".join(shares) + " |"


def _share(measured: Sequence[Round]) -> str:
    shares = [share for r in measured if (share := r.later_reused) is not None]
    return f"{statistics.median(shares):.1%}" if shares else "not told"


def _ratios(rounds: Rounds, peers: Collection[str]) -> Iterator[str]:
    others = [name for name in rounds if name in peers] or [next(iter(rounds))]
    ours = [name for name in rounds if name not in others]
    if not ours:
        return
    yield "\n| ratio | to | " + " | ".join(ours) + " |"
    yield "|---" * (2 + len(ours)) + "|"
    for figure in FIGURES:
        best = figure.best(rounds, others)
        cells = [spread(figure.ratios(rounds[name], rounds[best])) for name in ours]
        yield f"| {figure.title} | {best} | " + " | ".join(cells) + " |"


def _by_turn(workload: Workload, rounds: Rounds) -> Iterator[str]:
    for name, measured in rounds.items():
        medians = (turn_median_ms(measured, turn) for turn in range(workload.longest))
        yield f"- {name}: " + ", ".join("-" if m is None else f"{m:.0f}" for m in medians)


def raw(workload: Workload, rounds: Rounds) -> list[dict[str, object]]:
    """Every turn, for JSON."""
    return [
        {
            "target": target,
            "workload": workload.name,
            "round": number,
            "total_s": measured.total_s,
            "turns": [
                {
                    "chat": s.chat,
                    "turn": s.turn,
                    "first_token_s": s.times.first_token_s,
                    "inter_token_s": s.times.inter_token_s,
                    "num_prompt": s.times.num_prompt,
                    "num_tokens": s.times.num_tokens,
                    "num_cached": s.times.num_cached,
                }
                for s in measured.said
            ],
        }
        for target, all_rounds in rounds.items()
        for number, measured in enumerate(all_rounds)
    ]
