"""The tiers in Prometheus' words, one snapshot."""

from collections.abc import Iterator, Sequence

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from app import metric_families as families
from app.tier_representation import COUNTED
from model.messages import TierStats


def tier_metrics(tiers: Sequence[TierStats]) -> Iterator[Metric]:
    """The families; without samples where there are no tiers."""
    for family, values in (
        (families.TIER_ON, [(t.name, int(t.is_on)) for t in tiers]),
        (families.TIER_BLOCKS, [(t.name, t.num_blocks) for t in tiers]),
        (families.TIER_CONVERSATIONS, [(t.name, t.num_conversations) for t in tiers]),
        (families.TIER_BYTES, [(t.name, t.used_bytes) for t in tiers]),
        (families.TIER_QUOTA, [(t.name, t.quota_bytes) for t in tiers]),
    ):
        gauge = GaugeMetricFamily(family.name, family.meaning, labels=family.label_names)
        for name, value in values:
            gauge.add_metric([str(name)], value)
        yield gauge
    family = families.TIER_EVENTS
    events = CounterMetricFamily(family.name, family.meaning, labels=family.label_names)
    for tier in tiers:
        counts = dict(tier.counts)
        for event in COUNTED:
            events.add_metric([str(tier.name), event], counts.get(event, 0))
    yield events
