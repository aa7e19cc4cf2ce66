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

from model.messages import EngineStats, Histogram

_LAG_BOUNDS_S: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)


class AppMetrics:
    """The front end's own counters; one a server, in a registry of its own."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self._requests = Counter(
            "splice_http_requests",
            "Answered requests.",
            ["method", "route", "status"],
            registry=self._registry,
        )
        self._connections = Gauge(
            "splice_ws_connections", "Open websockets.", registry=self._registry
        )
        self._frames = Counter(
            "splice_ws_frames",
            "Frames received by type; `error` are those that could not be taken.",
            ["type"],
            registry=self._registry,
        )
        self._streams = Gauge(
            "splice_streams", "Replies being read.", ["transport"], registry=self._registry
        )
        self._slow_readers = Counter(
            "splice_slow_readers",
            "Connections dropped because the peer took nothing.",
            ["transport"],
            registry=self._registry,
        )
        self._active_turns = Gauge(
            "splice_active_turns", "Turns that have not ended.", registry=self._registry
        )
        self._ready = Gauge(
            "splice_ready", "Whether the server takes work.", registry=self._registry
        )

        self._loop_lag = LiveHistogram(
            "splice_loop_lag_seconds",
            "How late the front end's event loop came to what was due, twenty times a second.",
            buckets=_LAG_BOUNDS_S,
            registry=self._registry,
        )

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

    def render(self, *, num_active: int, is_ready: bool, engine: EngineStats | None) -> bytes:
        """Write everything in Prometheus' text format."""
        self._active_turns.set(num_active)
        self._ready.set(is_ready)
        text = generate_latest(self._registry)
        if engine is None:
            return text
        snapshot = CollectorRegistry()
        snapshot.register(EngineCollector(engine))
        return text + generate_latest(snapshot)


class EngineCollector(Collector):
    """One snapshot of the engine, as Prometheus wants it."""

    def __init__(self, stats: EngineStats) -> None:
        self._stats = stats

    def collect(self) -> Iterable[Metric]:
        """Yield the families; called once a scrape."""
        yield from self._times()
        yield from self._gauges()
        yield from self._counters()

    def _times(self) -> Iterator[Metric]:
        stats = self._stats
        yield _histogram(
            "splice_ttft_seconds",
            "From a request's arrival to its first token.",
            stats.first_token_s,
        )
        yield _histogram(
            "splice_inter_token_seconds", "Between two tokens of a reply.", stats.inter_token_s
        )
        yield _histogram(
            "splice_queue_seconds", "From a request's arrival to its blocks.", stats.queue_s
        )

    def _gauges(self) -> Iterator[Metric]:
        stats = self._stats
        blocks = GaugeMetricFamily(
            "splice_blocks",
            "Blocks by what they hold: running and parked tables, reusable contents, nothing.",
            labels=["state"],
        )
        blocks.add_metric(["running"], stats.blocks_running)
        blocks.add_metric(["parked"], stats.blocks_parked)
        blocks.add_metric(["cached"], stats.blocks_cached)
        blocks.add_metric(["empty"], stats.blocks_empty)
        yield blocks
        yield _gauge("splice_queue_depth", "Generations that wait for blocks.", stats.num_waiting)
        yield _gauge("splice_running", "Generations in flight.", stats.num_running)
        yield _gauge("splice_parked_tables", "Block tables between turns.", stats.num_parked_tables)

    def _counters(self) -> Iterator[Metric]:
        stats = self._stats
        yield _labelled(
            "splice_prompt_tokens",
            "Prompt tokens by where their state came from.",
            "source",
            stats.tokens_by_source,
        )
        yield _labelled(
            "splice_misses",
            "Claims that reused less than they could have.",
            "reason",
            stats.misses_by_reason,
        )
        yield _labelled(
            "splice_generations", "Ended generations.", "reason", stats.finished_by_reason
        )
        for name, text, value in (
            ("generated_tokens", "Sampled tokens.", stats.tokens_generated_total),
            ("computed_rows", "Rows that entered the model.", stats.rows_computed_total),
            ("preemptions", "Generations set back for want of blocks.", stats.preemptions_total),
            ("evicted_blocks", "Blocks whose contents were dropped.", stats.evicted_blocks_total),
            ("books_failures", "Failed checks of the block pool.", stats.books_failures_total),
            ("engine_steps", "Steps of the engine.", stats.steps_total),
            ("engine_restarts", "Times the engine was started again.", stats.num_restarts),
        ):
            yield CounterMetricFamily(f"splice_{name}", text, value=value)


def _gauge(name: str, text: str, value: float) -> Metric:
    return GaugeMetricFamily(name, text, value=value)


def _labelled(name: str, text: str, label: str, counts: tuple[tuple[str, int], ...]) -> Metric:
    family = CounterMetricFamily(name, text, labels=[label])
    for key, count in counts:
        family.add_metric([str(key)], count)
    return family


def _histogram(name: str, text: str, histogram: Histogram) -> Metric:
    pairs = zip(histogram.bounds, histogram.counts, strict=True)
    buckets = [
        ("+Inf" if math.isinf(bound) else repr(float(bound)), float(count))
        for bound, count in pairs
    ]
    return HistogramMetricFamily(name, text, buckets=buckets, sum_value=histogram.total)
