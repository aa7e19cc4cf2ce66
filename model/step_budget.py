"""How many prompt tokens a step may take, so that running replies don't stutter.

What a step takes is learnt from the steps before it: seconds ≈ what any step costs, and something
for each reply, for what replies look back on, for each prompt row, and for each pair of a prompt's
query and key. Pure bookkeeping; whoever has a clock tells the times.

Invariants:
    whoever asks a step's room first gets something, so no prompt waits for ever
    a prompt never gets more than `token_budget` leaves, whatever the times say
"""

import math
from dataclasses import dataclass

from model.costs import num_pairs

LEAST_ROWS = 8
"""A step that computes prompts at all computes so many rows: fewer hardly cost less."""

_ROWS_APART = 32
"""Fewer never wait for a step of their own, whatever the times say."""
_MARGIN = 0.9
"""Of the bound that is planned with; the rest is for what differs from step to step."""
_PROMPT_SHARE = 0.5
"""Of the time that the replies take alone, which prompts get however late that makes the step:
where replies alone take the bound's whole time, a new turn still begins."""
_ALONE = 2.0
"""Without replies a step may take so many times the bound: who comes meanwhile waits for it."""
_TRUSTED_ROWS = 64
_TRUSTED_GROWTH = 2
_ROWS_MEMORY = 0.9
"""Times are believed for so many times the rows of the largest step of late, and no more: behind
long histories, say, rows and pairs of query and key can't be told apart, and one of them seems to
cost nothing."""
_MEMORY = 0.995
"""What an observation still weighs when the next one of its kind comes: some two hundred count."""
_PACE = 0.2
_MOST_SURPRISE = 2.0
"""How fast the pace follows what is seen, and the most that one step says of it: one that took ten
times as long tells that the machine was elsewhere for a moment."""
_MOST_PACE = 2.0
"""A pace beyond it, or below its inverse, becomes a part of the coefficients: steps whose times
scatter let it drift by a little each, which in days would be out of a float's range."""
_NUM_SURE = 4
"""So many observations of a kind make an expectation."""
_TRUST_IN_BEFORE = 1e-3
"""Of an observation's weight, for the coefficients that there were: what steps leave open, as which
of two things that always came together was dear, stays as it was."""


@dataclass(frozen=True, slots=True)
class StepWork:
    """What one step computes: the next tokens of `num_replies`, which look back on `num_read`
    tokens together, and `num_rows` of prompts with so many thousand pairs of query and key."""

    num_replies: int = 0
    num_read: int = 0
    num_rows: int = 0
    num_kpairs: float = 0.0

    def features(self) -> tuple[float, ...]:
        """What the times are linear in."""
        return (
            float(self.num_rows),
            self.num_kpairs,
            1.0,
            float(self.num_replies),
            self.num_read / 1e3,
        )


_NUM_FEATURES = len(StepWork().features())


class _Sums:
    """Decayed sums of least squares: of the features' products, row by row, each row followed by
    the sum of its feature times seconds."""

    def __init__(self) -> None:
        self.rows = [[0.0] * (_NUM_FEATURES + 1) for _ in range(_NUM_FEATURES)]
        self.num_seen = 0

    def add(self, features: tuple[float, ...], seconds: float) -> None:
        columns = (*features, seconds)
        for i, x in enumerate(features):
            row = self.rows[i]
            self.rows[i] = [_MEMORY * s + x * y for s, y in zip(row, columns, strict=True)]
        self.num_seen += 1

    def scale_times(self, factor: float) -> None:
        for row in self.rows:
            row[-1] *= factor


class StepTimes:
    """Seconds of a step by what it computes: a pace times a sum of what is computed.

    The pace follows the machine within some ten steps: who else uses it slows everything alike. The
    coefficients are least squares, none below 0, over many more steps, so that replies, rows and
    pairs come in enough variety to be told apart. Steps without prompts and steps with some are
    summed apart, so that a long reply alone doesn't wear off what prompts cost.
    """

    def __init__(self) -> None:
        self._without, self._with = _Sums(), _Sums()
        self._coefficients = [0.0] * _NUM_FEATURES
        self._pace = 1.0

    def seconds(self, work: StepWork) -> float:
        """What it would take; 0 while nothing is known."""
        pairs = zip(self._coefficients, work.features(), strict=True)
        return self._pace * math.fsum(c * x for c, x in pairs)

    def rows_s(self, start: int, num_rows: int) -> float:
        """What `num_rows` of a prompt from position `start` on add to a step."""
        row_s, kpair_s = self._coefficients[:2]
        return self._pace * (row_s * num_rows + kpair_s * num_pairs(start, start + num_rows))

    def observe(self, work: StepWork, seconds: float) -> None:
        """A step took so long. Costs some 50 µs."""
        sums = self._with if work.num_rows else self._without
        expected_s = self.seconds(work)
        if sums.num_seen >= _NUM_SURE and expected_s > 0.0:
            surprise = min(max(seconds / expected_s, 1 / _MOST_SURPRISE), _MOST_SURPRISE)
            seconds = surprise * expected_s
            self._pace *= surprise**_PACE
        sums.add(work.features(), seconds / self._pace)
        self._fit()
        if not 1 / _MOST_PACE <= self._pace <= _MOST_PACE:
            self._settle_pace()

    def _settle_pace(self) -> None:
        """Count in this pace from now on; what is expected stays the same."""
        for sums in (self._without, self._with):
            sums.scale_times(self._pace)
        self._coefficients = [c * self._pace for c in self._coefficients]
        self._pace = 1.0

    def _fit(self) -> None:
        """Solve the normal equations; what came out below 0 is 0, and the others are solved for
        again."""
        rows = []
        for i, (ours, theirs) in enumerate(zip(self._without.rows, self._with.rows, strict=True)):
            row = [a + b for a, b in zip(ours, theirs, strict=True)]
            weight = _TRUST_IN_BEFORE * row[i]
            row[i] += weight
            row[-1] += weight * self._coefficients[i]
            rows.append(row)
        free = [i for i in range(_NUM_FEATURES) if rows[i][i] > 0.0]
        while free:
            found = _solve([[rows[i][j] for j in (*free, -1)] for i in free])
            if min(found) >= 0.0:
                break
            free = [i for i, x in zip(free, found, strict=True) if x > 0.0]
        solved = dict(zip(free, found, strict=True)) if free else {}
        self._coefficients = [solved.get(i, 0.0) for i in range(_NUM_FEATURES)]


def _solve(rows: list[list[float]]) -> list[float]:
    """Gaussian elimination of equations with a positive definite matrix, each followed by its right
    side; in place."""
    size = len(rows)
    for i, pivot in enumerate(rows):
        for row in rows[i + 1 :]:
            factor = row[i] / pivot[i]
            for j in range(i, size + 1):
                row[j] -= factor * pivot[j]
    found = [0.0] * size
    for i in reversed(range(size)):
        left = rows[i][size] - sum(rows[i][j] * found[j] for j in range(i + 1, size))
        found[i] = left / rows[i][i]
    return found


class Room:
    """What one step has left for prompts: `num_rows`, and seconds. Without prompts it would take
    `alone_s`."""

    def __init__(
        self, times: StepTimes, num_rows: int, seconds: float, alone_s: float = 0.0
    ) -> None:
        self.num_rows = num_rows
        self._times = times
        self._seconds = seconds
        self._alone_s = alone_s
        self._is_untouched = True

    def fit(self, start: int, num_wanted: int, share: float = 1.0) -> int:
        """How many of the wanted rows, the first at position `start`, fit into a share of what is
        left; at least one for whoever asks first."""
        most = min(num_wanted, math.ceil(share * self.num_rows))
        least = min(most, LEAST_ROWS) if self._is_untouched else 0
        return max(least, self._in_time(start, most, share * self._seconds))

    def _in_time(self, start: int, most: int, seconds: float) -> int:
        if self._times.rows_s(start, most) <= seconds:
            return most
        low, high = 0, most  # `low` rows fit, `high` don't
        while high - low > 1:
            middle = (low + high) // 2
            if self._times.rows_s(start, middle) <= seconds:
                low = middle
            else:
                high = middle
        return low

    def is_better_apart(self, start: int, num_rows: int) -> bool:
        """Whether these rows would make those that are planned wait longer than a step of their own
        costs: the others' first tokens come sooner then, and these hardly later."""
        return num_rows >= _ROWS_APART and self._times.rows_s(start, num_rows) > self._alone_s

    def take(self, start: int, num_rows: int) -> None:
        """So many rows, the first at position `start`, are planned."""
        self.num_rows -= num_rows
        self._seconds -= self._times.rows_s(start, num_rows)
        self._is_untouched = False


class StepBudget:
    """Bounds a step's rows by `token_budget` and, unless `max_itl_s` is None, its seconds, so that
    running replies wait no longer than that from token to token."""

    def __init__(self, token_budget: int, max_itl_s: float | None = None) -> None:
        self.token_budget = token_budget
        self._max_itl_s = max_itl_s
        self._times = StepTimes()
        self._most_rows = 0.0  # of the steps with prompts, the largest of late

    def open(self, num_replies: int, num_read: int) -> Room:
        """What a step has for prompts beside so many replies, which look back on `num_read` tokens
        together."""
        num_rows = self.token_budget - num_replies
        if self._max_itl_s is None:
            return Room(self._times, num_rows, math.inf)
        alone_s = self._times.seconds(StepWork(num_replies, num_read))
        bound_s = self._max_itl_s * (1.0 if num_replies else _ALONE)
        seconds = max(_MARGIN * bound_s - alone_s, _PROMPT_SHARE * alone_s)
        trusted = max(_TRUSTED_ROWS, int(_TRUSTED_GROWTH * self._most_rows))
        return Room(self._times, min(num_rows, trusted), seconds, alone_s)

    def observe(self, work: StepWork, seconds: float) -> bool:
        """Learn from a step; whether it kept replies waiting for longer than they should."""
        if self._max_itl_s is None:
            return False
        if work.num_rows:
            self._most_rows = max(float(work.num_rows), _ROWS_MEMORY * self._most_rows)
        self._times.observe(work, seconds)
        return work.num_replies > 0 and seconds > self._max_itl_s
