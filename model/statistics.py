"""What the engine counts, as plain numbers; snapshots cross to the front end.

Counters only go up. Histograms are cumulative, as Prometheus wants them.
"""

from bisect import bisect_left
from collections import Counter

from model.messages import (
    ClaimReport,
    EngineStats,
    FinishReason,
    Histogram,
    StepStats,
    TierStats,
)
from model.step_budget import StepWork

_LATENCY_BOUNDS_S = (
    0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.2, 0.3, 0.5, 0.75, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0,
)  # fmt: skip


class LatencyHistogram:
    """Counts seconds by upper bound."""

    def __init__(self, bounds_s: tuple[float, ...] = _LATENCY_BOUNDS_S) -> None:
        self._bounds_s = bounds_s
        self._counts = [0] * (len(bounds_s) + 1)
        self._total_s = 0.0

    def observe(self, seconds: float) -> None:
        """Count one duration."""
        self._counts[bisect_left(self._bounds_s, seconds)] += 1
        self._total_s += seconds

    def snapshot(self) -> Histogram:
        """The counts so far, each bound's including those below it."""
        cumulative, total = [], 0
        for count in self._counts:
            total += count
            cumulative.append(total)
        return Histogram(
            bounds=(*self._bounds_s, float("inf")), counts=tuple(cumulative), total=self._total_s
        )


class Statistics:
    """The engine core's counters."""

    def __init__(self) -> None:
        self.num_steps = 0
        self.num_tokens = 0
        self.num_failed = 0
        self.num_books_failures = 0
        self.first_token_s = LatencyHistogram()
        self.inter_token_s = LatencyHistogram()
        self.restore_s = LatencyHistogram()
        self._queue_s = LatencyHistogram()
        self._step_s = LatencyHistogram()
        self._num_late_steps = 0
        self._rows: Counter[str] = Counter()
        self._tokens_by_source: Counter[str] = Counter()
        self._misses_by_reason: Counter[str] = Counter()
        self._finished_by_reason: Counter[str] = Counter()

    def record_start(self, claim: ClaimReport, queue_s: float) -> None:
        """A generation got its blocks after waiting for `queue_s`."""
        self._queue_s.observe(queue_s)
        self._tokens_by_source.update(
            device=claim.from_device,
            cpu=claim.from_cpu,
            disk=claim.from_disk,
            computed=claim.computed,
        )
        if claim.reason is not None:
            self._misses_by_reason[claim.reason.value] += 1

    def record_step(
        self, work: StepWork, num_chunks: int, seconds: float, *, is_late: bool
    ) -> None:
        """A step computed `work`, prompts in so many chunks."""
        self.num_steps += 1
        self._step_s.observe(seconds)
        self._num_late_steps += is_late
        self._rows.update(reply=work.num_replies, prompt=work.num_rows, chunk=num_chunks)

    def record_finish(self, reason: FinishReason) -> None:
        """A generation ended by itself or was cancelled."""
        self._finished_by_reason[reason.value] += 1

    def snapshot(
        self,
        *,
        num_blocks: int,
        blocks: tuple[int, int, int, int],
        queues: tuple[int, int, int],
        rows_computed_total: int,
        setbacks: tuple[int, int],
        evicted_blocks_total: int,
        tiers: tuple[TierStats, ...] = (),
    ) -> EngineStats:
        """Everything counted here, with what only others know: `blocks` running, parked, cached and
        empty; `queues` running and waiting sequences and parked tables; `setbacks` preemptions, and
        steps that were held."""
        finished = {
            **self._finished_by_reason,
            **({"failed": self.num_failed} if self.num_failed else {}),
        }
        return EngineStats(
            num_blocks=num_blocks,
            blocks_running=blocks[0],
            blocks_parked=blocks[1],
            blocks_cached=blocks[2],
            blocks_empty=blocks[3],
            num_running=queues[0],
            num_waiting=queues[1],
            num_parked_tables=queues[2],
            rows_computed_total=rows_computed_total,
            tokens_generated_total=self.num_tokens,
            tokens_by_source=tuple(self._tokens_by_source.items()),
            misses_by_reason=tuple(self._misses_by_reason.items()),
            finished_by_reason=tuple(finished.items()),
            preemptions_total=setbacks[0],
            evicted_blocks_total=evicted_blocks_total,
            books_failures_total=self.num_books_failures,
            steps_total=self.num_steps,
            first_token_s=self.first_token_s.snapshot(),
            inter_token_s=self.inter_token_s.snapshot(),
            queue_s=self._queue_s.snapshot(),
            restore_s=self.restore_s.snapshot(),
            steps=StepStats(
                seconds=self._step_s.snapshot(),
                reply_rows_total=self._rows["reply"],
                prompt_rows_total=self._rows["prompt"],
                chunks_total=self._rows["chunk"],
                held_total=setbacks[1],
                late_total=self._num_late_steps,
            ),
            tiers=tiers,
        )
