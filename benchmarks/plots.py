"""Plots of a comparison, one file a workload; they need matplotlib (the extra `bench`)."""

import statistics
from collections.abc import Sequence
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure as Canvas

from benchmarks.comparison import FIGURES, Figure, turn_median_ms
from benchmarks.rounds import Round, Rounds
from benchmarks.workloads import Workload

_SIZE_INCHES = (11.0, 3.6)
_DOTS_PER_INCH = 110


def draw(workload: Workload, rounds: Rounds, folder: Path) -> Path:
    """Write `folder/NAME.png`: the first token by turn, with a band from the least to the most
    round's median, and bars for what lies between tokens and for throughput."""
    canvas = Canvas(figsize=_SIZE_INCHES, dpi=_DOTS_PER_INCH, layout="constrained")
    by_turn, *bars = canvas.subplots(1, len(FIGURES), width_ratios=(2, *[1] * (len(FIGURES) - 1)))
    _draw_turns(by_turn, workload, rounds)
    for axes, figure in zip(bars, FIGURES[1:], strict=True):
        _draw_bars(axes, figure, rounds)
    canvas.suptitle(workload.name)
    canvas.legend(*by_turn.get_legend_handles_labels(), loc="outside lower center", ncols=4)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{workload.name}.png"
    canvas.savefig(path)
    return path


def _draw_turns(axes: Axes, workload: Workload, rounds: Rounds) -> None:
    for name, measured in rounds.items():
        turns = [t for t in range(workload.longest) if turn_median_ms(measured, t) is not None]
        of_rounds = [_medians_of_rounds(measured, turn) for turn in turns]
        places = [turn + 1 for turn in turns]
        (line,) = axes.plot(places, list(map(statistics.median, of_rounds)), "o-", label=name, ms=3)
        least, most = list(map(min, of_rounds)), list(map(max, of_rounds))
        axes.fill_between(places, least, most, color=line.get_color(), alpha=0.15)
    axes.set(title="first token (ms)", xlabel="turn", yscale="log")
    axes.grid(visible=True, which="both", alpha=0.2)


def _medians_of_rounds(measured: Sequence[Round], turn: int) -> list[float]:
    medians = (turn_median_ms([r], turn) for r in measured)
    return [m for m in medians if m is not None]


def _draw_bars(axes: Axes, figure: Figure, rounds: Rounds) -> None:
    for place, measured in enumerate(rounds.values()):
        values = sorted(map(figure.of, measured))
        median = statistics.median(values)
        reach = [[median - values[0]], [values[-1] - median]]
        axes.bar(place, median, yerr=reach, color=f"C{place}", capsize=3)
    axes.set(title=figure.title, xticks=[])
