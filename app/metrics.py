"""Prometheus: what the front end counts itself, and the engine's snapshot at the time of asking.

`/metrics` answers in every state; while the engine is away only its own numbers are missing.
"""

import math
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, generate_latest
from prometheus_client import Histogram as LiveHistogram
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from app import metric_families as families
from app.metric_families import Family
from app.tier_metrics import tier_metrics
from model.messages import CompiledState, EngineStats, Histogram
from sessions.warming import WarmingStats

_LAG_BOUNDS_S: Final = (
    0.001,
    0.0025,
    0.005,
    0.01,
    0.025,
    0.05,
    0.075,
    0.1,
    0.15,
    0.25,
    0.5,
    1,
    2.5,
)


NOTHING_WARMED: Final = WarmingStats((), ())


class AppMetrics:
    """The front end's own counters; one a server, in a registry of its own."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self._requests = self._counter(families.HTTP_REQUESTS)
        self._connections = self._gauge(families.WS_CONNECTIONS)
        self._frames = self._counter(families.WS_FRAMES)
        self._streams = self._gauge(families.STREAMS)
        self._slow_readers = self._counter(families.SLOW_READERS)
        self._active_turns = self._gauge(families.ACTIVE_TURNS)
        self._ready = self._gauge(families.READY)
        lag = families.LOOP_LAG
        self._loop_lag = LiveHistogram(
            lag.name, lag.meaning, buckets=_LAG_BOUNDS_S, registry=self._registry
        )

    def _counter(self, family: Family) -> Counter:
        names = family.label_names
        return Counter(family.name, family.meaning, names, registry=self._registry)

    def _gauge(self, family: Family) -> Gauge:
        names = family.label_names
        return Gauge(family.name, family.meaning, names, registry=self._registry)

    def request(self, method: str, route: str, status: int) -> None:
        """Count an answered request."""
        self._requests.labels(method, route, str(status)).inc()

    def frame(self, kind: str) -> None:
        """Count a received frame."""
        self._frames.labels(kind).inc()

    def slow_reader(self, transport: str) -> None:
        """Count a connection that was dropped."""
        self._slow_readers.labels(transport).inc()

    def loop_lag(self, late_s: float) -> None:
        """Count how late the event loop was once."""
        self._loop_lag.observe(late_s)

    @contextmanager
    def connection(self) -> Iterator[None]:
        """Count a websocket while it is open."""
        with self._connections.track_inprogress():
            yield

    @contextmanager
    def stream(self, transport: str) -> Iterator[None]:
        """Count a reply while it is read."""
        with self._streams.labels(transport).track_inprogress():
            yield

    def render(
        self,
        *,
        num_active: int,
        is_ready: bool,
        engine: EngineStats | None,
        warming: WarmingStats = NOTHING_WARMED,
    ) -> bytes:
        """Write everything in Prometheus' text format."""
        self._active_turns.set(num_active)
        self._ready.set(is_ready)
        text = generate_latest(_WithoutBirthdays(self._registry))
        text += generate_latest(WarmingCollector(warming))
        return text if engine is None else text + generate_latest(EngineCollector(engine))


class _WithoutBirthdays(Collector):
    """The same families without `…_created`, which says when a series began and nothing else."""

    def __init__(self, source: Collector) -> None:
        self._source = source

    def collect(self) -> Iterable[Metric]:
        for family in self._source.collect():
            family.samples = [s for s in family.samples if not s.name.endswith("_created")]
            yield family


class WarmingCollector(Collector):
    """Whether warming pays."""

    def __init__(self, stats: WarmingStats) -> None:
        self._stats = stats

    def collect(self) -> Iterable[Metric]:
        """Yield the families."""
        for family, counts in (
            (families.WARMINGS, self._stats.outcomes),
            (families.WARMED_TOKENS, self._stats.tokens),
        ):
            metric = CounterMetricFamily(family.name, family.meaning, labels=family.label_names)
            for labels, count in counts:
                metric.add_metric(labels, count)
            yield metric


class EngineCollector(Collector):
    """One snapshot of the engine, as Prometheus wants it."""

    def __init__(self, stats: EngineStats) -> None:
        self._stats = stats

    def collect(self) -> Iterable[Metric]:
        """Yield the families; called once a scrape."""
        yield from self._times()
        yield from self._gauges()
        yield from self._counters()
        yield from tier_metrics(self._stats.tiers)

    def _times(self) -> Iterator[Metric]:
        stats = self._stats
        yield _histogram(families.TTFT, stats.first_token_s)
        yield _histogram(families.INTER_TOKEN, stats.inter_token_s)
        yield _histogram(families.QUEUE_TIME, stats.queue_s)
        yield _histogram(families.RESTORE_TIME, stats.restore_s)
        yield _histogram(families.STEP_TIME, stats.steps.seconds)

    def _gauges(self) -> Iterator[Metric]:
        stats = self._stats
        blocks = _empty_gauge(families.BLOCKS)
        blocks.add_metric(["running"], stats.blocks_running)
        blocks.add_metric(["parked"], stats.blocks_parked)
        blocks.add_metric(["cached"], stats.blocks_cached)
        blocks.add_metric(["empty"], stats.blocks_empty)
        yield blocks
        compiled = _empty_gauge(families.COMPILED_STATE)
        for state in CompiledState:
            compiled.add_metric([state], state is stats.compiled.state)
        yield compiled
        for family, value in (
            (families.QUEUE_DEPTH, stats.num_waiting),
            (families.RUNNING, stats.num_running),
            (families.PARKED_TABLES, stats.num_parked_tables),
        ):
            gauge = _empty_gauge(family)
            gauge.add_metric([], value)
            yield gauge

    def _counters(self) -> Iterator[Metric]:
        stats = self._stats
        yield _counter(families.PROMPT_TOKENS, stats.tokens_by_source)
        yield _counter(families.MISSES, stats.misses_by_reason)
        yield _counter(families.GENERATIONS, stats.finished_by_reason)
        steps = stats.steps
        rows = (("reply", steps.reply_rows_total), ("prompt", steps.prompt_rows_total))
        yield _counter(families.STEP_ROWS, rows)
        for family, value in (
            (families.GENERATED_TOKENS, stats.tokens_generated_total),
            (families.COMPUTED_ROWS, stats.rows_computed_total),
            (families.PREEMPTIONS, stats.preemptions_total),
            (families.EVICTED_BLOCKS, stats.evicted_blocks_total),
            (families.BOOKS_FAILURES, stats.books_failures_total),
            (families.ENGINE_STEPS, stats.steps_total),
            (families.PROMPT_CHUNKS, steps.chunks_total),
            (families.HELD_STEPS, steps.held_total),
            (families.LATE_STEPS, steps.late_total),
            (families.COMPILED_STEPS, stats.compiled.num_steps),
            (families.ENGINE_RESTARTS, stats.num_restarts),
        ):
            yield CounterMetricFamily(family.name, family.meaning, value=value)


def _empty_gauge(family: Family) -> GaugeMetricFamily:
    return GaugeMetricFamily(family.name, family.meaning, labels=family.label_names)


def _counter(family: Family, counts: tuple[tuple[str, int], ...]) -> Metric:
    metric = CounterMetricFamily(family.name, family.meaning, labels=family.label_names)
    for key, count in counts:
        metric.add_metric([str(key)], count)
    return metric


def _histogram(family: Family, histogram: Histogram) -> Metric:
    pairs = zip(histogram.bounds, histogram.counts, strict=True)
    buckets = [
        ("+Inf" if math.isinf(bound) else repr(float(bound)), float(count))
        for bound, count in pairs
    ]
    return HistogramMetricFamily(
        family.name, family.meaning, buckets=buckets, sum_value=histogram.total
    )
