"""Counters and histograms, as Prometheus wants them."""

import math

from model.messages import ClaimReport, FinishReason, MissReason
from model.statistics import LatencyHistogram, Statistics


def test_a_histogram_counts_up_to_and_including_each_bound():
    histogram = LatencyHistogram((0.1, 1.0))
    for seconds in (0.0, 0.1, 0.100001, 1.0, 7.0):
        histogram.observe(seconds)

    snapshot = histogram.snapshot()

    assert snapshot.bounds == (0.1, 1.0, math.inf)
    assert snapshot.counts == (2, 4, 5)
    assert snapshot.total == 0.0 + 0.1 + 0.100001 + 1.0 + 7.0


def test_bounds_rise_and_cover_a_token_as_well_as_a_long_wait():
    bounds = LatencyHistogram().snapshot().bounds

    assert list(bounds) == sorted(set(bounds))
    assert bounds[0] < 0.01
    assert bounds[-2] >= 60


def take(statistics: Statistics):
    return statistics.snapshot(
        num_blocks=10,
        blocks=(1, 2, 3, 4),
        queues=(5, 6, 7),
        rows_computed_total=8,
        setbacks=(9, 12),
        evicted_blocks_total=11,
    )


def test_a_fresh_snapshot_has_what_only_others_know():
    stats = take(Statistics())

    assert (stats.blocks_running, stats.blocks_parked) == (1, 2)
    assert (stats.blocks_cached, stats.blocks_empty) == (3, 4)
    assert (stats.num_running, stats.num_waiting, stats.num_parked_tables) == (5, 6, 7)
    assert (stats.num_blocks, stats.rows_computed_total) == (10, 8)
    assert (stats.preemptions_total, stats.evicted_blocks_total) == (9, 11)
    assert stats.finished_by_reason == stats.misses_by_reason == ()


def test_claims_and_ends_are_counted_by_source_and_reason():
    statistics = Statistics()
    statistics.record_start(
        ClaimReport(num_prompt_tokens=9, from_device=6, from_cpu=1, computed=2), 0.02
    )
    statistics.record_start(
        ClaimReport(num_prompt_tokens=4, computed=4, reason=MissReason.NEW), 0.5
    )
    statistics.record_finish(FinishReason.STOP)
    statistics.record_finish(FinishReason.STOP)
    statistics.num_failed += 1

    stats = take(statistics)

    assert dict(stats.tokens_by_source) == {"device": 6, "cpu": 1, "disk": 0, "computed": 6}
    assert dict(stats.misses_by_reason) == {"new": 1}
    assert dict(stats.finished_by_reason) == {"stop": 2, "failed": 1}
    assert stats.queue_s.counts[-1] == 2
    assert stats.queue_s.total == 0.52


def test_a_snapshot_does_not_change_with_what_comes_after():
    statistics = Statistics()
    before = take(statistics)

    statistics.first_token_s.observe(1.0)
    statistics.record_finish(FinishReason.LENGTH)

    assert before.first_token_s.counts[-1] == 0
    assert before.finished_by_reason == ()
