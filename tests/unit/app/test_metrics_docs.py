"""The page and the dashboard name the metrics that there are."""

import json
import re
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from app.metric_families import FAMILIES
from app.metrics import AppMetrics
from app.metrics_docs import page
from sessions.warming import WarmingStats
from tests.support.fake_manager import FakeEngine

WARMING = WarmingStats(outcomes=((("request", "used"), 2),), tokens=((("start", "disk"), 40),))
DOCS = Path(__file__).resolve().parents[3] / "docs"
DASHBOARD = json.loads((DOCS / "grafana" / "splice.json").read_text("utf-8"))
EXPRESSIONS = [target["expr"] for panel in DASHBOARD["panels"] for target in panel["targets"]]
VARIABLES = [variable["query"] for variable in DASHBOARD["templating"]["list"]]


async def shown():
    """What `/metrics` shows of a server on which everything has happened."""
    metrics = AppMetrics()
    metrics.request("GET", "/", 200)
    metrics.frame("ping")
    metrics.slow_reader("sse")
    with metrics.stream("sse"):
        text = metrics.render(
            num_active=0, is_ready=True, engine=await FakeEngine().stats(), warming=WARMING
        )
    return list(text_string_to_metric_families(text.decode()))


def test_the_page_is_up_to_date():
    assert (DOCS / "metrics.md").read_text("utf-8") == page(), "run `make docs`"


async def test_what_is_shown_is_what_is_listed_and_nothing_else():
    listed = {(f.name, str(f.kind), f.meaning) for f in FAMILIES}

    assert {(f.name, f.type, f.documentation) for f in await shown()} == listed


async def test_each_series_has_the_labels_that_are_listed():
    listed = {f.name: set(f.label_names) for f in FAMILIES}

    for family in await shown():
        for sample in family.samples:
            assert set(sample.labels) - {"le"} == listed[family.name], sample.name


async def test_no_series_says_when_it_began():
    names = [sample.name for family in await shown() for sample in family.samples]

    assert not [name for name in names if name.endswith("_created")]


@pytest.mark.parametrize("expression", [*EXPRESSIONS, *VARIABLES])
def test_an_expression_of_the_dashboard_names_series_that_there_are(expression):
    series = {name for family in FAMILIES for name in family.series}

    named = set(re.findall(r"splice_\w+", expression))

    assert named <= series
    assert named or expression == "prometheus"


def test_an_expression_groups_by_labels_that_the_series_has():
    labels = {name: {*f.label_names, "le"} for f in FAMILIES for name in f.series}

    for expression in EXPRESSIONS:
        (name, *_) = re.findall(r"splice_\w+", expression)
        grouped = set(re.findall(r"by \((\w+)\)", expression))
        assert grouped <= labels[name], expression


def test_the_dashboard_shows_every_metric():
    shown_there = " ".join(EXPRESSIONS)

    assert not [f.name for f in FAMILIES if not any(name in shown_there for name in f.series)]


def test_panels_have_ids_of_their_own_and_do_not_overlap():
    panels = DASHBOARD["panels"]
    cells = [
        (x, y)
        for place in (panel["gridPos"] for panel in panels)
        for x in range(place["x"], place["x"] + place["w"])
        for y in range(place["y"], place["y"] + place["h"])
    ]

    assert len({panel["id"] for panel in panels}) == len(panels)
    assert len(set(cells)) == len(cells)
    assert max(x for x, _ in cells) < 24
