"""Histograms and counters reach Prometheus' own parser unharmed."""

from prometheus_client.parser import text_string_to_metric_families

from app.metrics import AppMetrics
from tests.support.fake_manager import FakeEngine


async def test_everything_is_readable_and_each_family_is_named_once():
    metrics = AppMetrics()
    metrics.request("GET", "/v1/sessions", 200)
    metrics.frame("ping")
    text = metrics.render(num_active=2, is_ready=True, engine=await FakeEngine().stats()).decode()

    names = [family.name for family in text_string_to_metric_families(text)]

    assert len(names) == len(set(names))
    assert {"splice_ttft_seconds", "splice_blocks", "splice_queue_depth"} <= set(names)
    assert all(name.startswith("splice_") for name in names)
    assert "splice_active_turns 2.0" in text


def test_two_servers_in_one_process_count_apart():
    one, other = AppMetrics(), AppMetrics()
    with one.connection():
        inside = one.render(num_active=0, is_ready=False, engine=None)
        assert b"splice_ws_connections 1.0" in inside
        assert b"splice_ws_connections 0.0" in other.render(
            num_active=0, is_ready=False, engine=None
        )
