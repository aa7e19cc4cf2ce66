"""What it costs to have tokens' keys and values again: computing them, or restoring them.

Both are measured, at start and with every step and transfer since, and forgotten slowly, so that
the choice between them follows the machine. Pure bookkeeping; whoever has a clock tells the times.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from model.messages import TierName

_MEMORY = 0.95
"""What an observation still weighs when the next one comes: some twenty count."""


class CostLine:
    """seconds ≈ a·x + b·y, both at least 0: decayed least squares over two features."""

    def __init__(self) -> None:
        self._xx = self._xy = self._yy = self._xs = self._ys = 0.0

    @property
    def is_known(self) -> bool:
        """Whether anything was observed."""
        return self._xx > 0.0 or self._yy > 0.0

    def observe(self, x: float, y: float, seconds: float) -> None:
        """Note what `x` and `y` took."""
        self._xx = self._xx * _MEMORY + x * x
        self._xy = self._xy * _MEMORY + x * y
        self._yy = self._yy * _MEMORY + y * y
        self._xs = self._xs * _MEMORY + x * seconds
        self._ys = self._ys * _MEMORY + y * seconds

    def seconds(self, x: float, y: float) -> float:
        """What `x` and `y` would take; 0 as long as nothing is known."""
        a, b = self._coefficients()
        return a * x + b * y

    def _coefficients(self) -> tuple[float, float]:
        """The least squares solution, or that with one feature where it would be negative, or where
        the observations can't tell the two features apart."""
        alone_x = self._xs / self._xx if self._xx else 0.0
        alone_y = self._ys / self._yy if self._yy else 0.0
        determinant = self._xx * self._yy - self._xy * self._xy
        if determinant <= 1e-9 * self._xx * self._yy:
            return (alone_x, 0.0) if self._xx else (0.0, alone_y)
        a = (self._xs * self._yy - self._ys * self._xy) / determinant
        b = (self._ys * self._xx - self._xs * self._xy) / determinant
        if a < 0.0:
            return 0.0, alone_y
        return (a, b) if b >= 0.0 else (alone_x, 0.0)


@dataclass(frozen=True, slots=True)
class TierRun:
    """So many blocks, one after the other, that lie in one tier."""

    tier: TierName
    num_blocks: int


class CostModel:
    """Seconds to compute tokens again, and to restore blocks from each tier."""

    def __init__(self, block_size: int, block_bytes: int) -> None:
        self._block_size = block_size
        self._block_bytes = block_bytes
        self._compute = CostLine()  # of rows, and of rows times the tokens they look back on
        self._restore = {tier: CostLine() for tier in TierName}  # of transfers, and of megabytes

    def observe_compute(self, num_rows: int, num_before: int, seconds: float) -> None:
        """A step computed `num_rows` tokens behind `num_before` others."""
        self._compute.observe(num_rows, num_pairs(num_before, num_before + num_rows), seconds)

    def observe_restore(self, tier: TierName, num_blocks: int, seconds: float) -> None:
        """A transfer brought `num_blocks` blocks to the device."""
        self._restore[tier].observe(1.0, self._megabytes(num_blocks), seconds)

    def compute_s(self, start: int, end: int) -> float:
        """To compute the tokens from position `start` to `end`."""
        if end <= start:
            return 0.0
        return self._compute.seconds(end - start, num_pairs(start, end))

    def restore_s(self, tier: TierName, num_blocks: int) -> float:
        """To restore so many blocks in one transfer."""
        return self._restore[tier].seconds(1.0, self._megabytes(num_blocks)) if num_blocks else 0.0

    def restore_more_s(self, tier: TierName, num_blocks: int) -> float:
        """To restore so many blocks more in a transfer that is made anyway."""
        return self.restore_s(tier, num_blocks + 1) - self.restore_s(tier, 1)

    def num_blocks_to_restore(self, start: int, end: int, runs: Sequence[TierRun]) -> int:
        """How many blocks of `runs`, which hold the tokens from `start` to `end`, to restore so
        that restoring them and computing the others takes least; all of them while either cost is
        unknown.

        The time is linear in the blocks of a run but for the attention, which makes later tokens
        dearer to compute: so the least lies at an end of a run, or at none.
        """
        if not self._compute.is_known or not all(self._restore[r.tier].is_known for r in runs):
            return sum(run.num_blocks for run in runs)
        best, best_s, num_blocks, restored_s = 0, self.compute_s(start, end), 0, 0.0
        for run in runs:
            num_blocks += run.num_blocks
            restored_s += self.restore_s(run.tier, run.num_blocks)
            total_s = restored_s + self.compute_s(start + num_blocks * self._block_size, end)
            if total_s < best_s:
                best, best_s = num_blocks, total_s
        return best

    def _megabytes(self, num_blocks: int) -> float:
        return num_blocks * self._block_bytes / 1e6


def num_pairs(start: int, end: int) -> float:
    """How many (query, key) pairs causal attention has from `start` to `end`, in thousands, so that
    the two features are of a size."""
    return (end * (end + 1) - start * (start + 1)) / 2e3
