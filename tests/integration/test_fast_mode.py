"""`fast` mode's bound: how far the embedded model's logits are from float32, as documented."""

import pytest
import torch

from benchmarks.divergence import BOUNDS, divergence, measure
from model.assembly import choose_dtype
from model.config import Device, Mode
from tests.support.live_server import MODELS, ROOT

pytestmark = pytest.mark.timeout(300)


@pytest.fixture(scope="module")
def table():
    document = (ROOT / "docs" / "exactness.md").read_text(encoding="utf-8")
    _, _, rest = document.partition("<!-- divergence -->\n")
    rows = rest.partition("<!-- /divergence -->")[0].splitlines()[2:]
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]


def test_fast_mode_stays_within_its_bound_of_float32(record_property):
    measured = measure(MODELS, Device.CPU)

    record_property("divergence", str(measured))
    print(measured)
    assert measured.dtype is choose_dtype(Mode.FAST, torch.device("cpu"))
    spread = measured.spread
    assert spread.num_positions > 600
    assert 0 <= spread.mean <= spread.p99 <= spread.worst
    assert measured.is_within_bound, str(measured)
    assert spread.same_top > 0.9
    assert measured.kv_dtype is torch.bfloat16


def test_the_documented_limits_are_those_that_are_tested(table):
    assert [row[0] for row in table] == list(BOUNDS)
    for name, *_, mean, p99 in table:
        assert (mean, p99) == (f"{BOUNDS[name].mean:g}", f"{BOUNDS[name].p99:g}")


def test_the_documented_numbers_are_below_the_documented_limits(table):
    measured = [row for row in table if row[1] != "not measured"]

    assert {row[0] for row in measured} == BOUNDS.keys() - {"float16"}
    for name, mean, p99, limit_of_mean, limit_of_p99 in measured:
        margin = 2 if name == "bfloat16, packed weights" else 3
        assert float(mean) <= float(limit_of_mean) / margin
        assert float(p99) <= float(limit_of_p99) / margin


def test_the_divergence_is_zero_for_equal_distributions_and_as_defined_for_others():
    even = torch.tensor([[0.0, 0.0]])

    assert divergence(even, even + 5).item() == pytest.approx(0, abs=1e-15)
    assert divergence(even, torch.tensor([[0.75, 0.25]]).log()).item() == pytest.approx(0.1438410)
