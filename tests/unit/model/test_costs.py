"""What computing and restoring cost, learnt from what they took."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from model.costs import CostLine, CostModel, TierRun
from model.messages import TierName

BLOCK_SIZE, BLOCK_BYTES = 16, 1_000_000


def model(*, row_s=0.001, pair_s=0.0, transfer_s=0.0, disk_s=0.001, cpu_s=0.0001):
    """A machine that takes so long for a row, for a thousand attention pairs, for a transfer, and
    for a block of each tier."""
    costs = CostModel(BLOCK_SIZE, BLOCK_BYTES)
    for rows, before in ((64, 0), (128, 0), (64, 1000), (256, 4000)):
        end = before + rows
        pairs = (end * (end + 1) - before * (before + 1)) / 2000
        costs.observe_compute(rows, before, rows * row_s + pairs * pair_s)
    for num in (1, 10, 100):
        costs.observe_restore(TierName.DISK, num, transfer_s + num * disk_s)
        costs.observe_restore(TierName.CPU, num, transfer_s + num * cpu_s)
    return costs


@given(
    a=st.floats(1e-5, 1e-2),
    b=st.floats(1e-5, 1e-2),
    points=st.lists(st.tuples(st.integers(1, 500), st.integers(1, 500)), min_size=3, unique=True),
)
def test_a_line_tells_its_own_points(a, b, points):
    line = CostLine()
    for x, y in points:
        line.observe(x, y, a * x + b * y)

    for x, y in points:
        assert line.seconds(x, y) == pytest.approx(a * x + b * y, rel=0.02)


def test_a_line_is_never_negative_and_knows_nothing_at_first():
    line = CostLine()
    assert (line.is_known, line.seconds(5, 5)) == (False, 0.0)
    line.observe(10, 1, 1.0)
    line.observe(1, 10, 0.0)

    assert line.is_known
    assert line.seconds(0, 1) >= 0.0
    assert line.seconds(1, 0) >= 0.0


def test_a_machine_that_slows_down_is_believed_after_a_while():
    costs = model(row_s=0.001)
    for _ in range(60):
        costs.observe_compute(64, 0, 64 * 0.005)

    assert costs.compute_s(0, 100) == pytest.approx(0.5, rel=0.1)


def test_later_tokens_are_dearer_to_compute():
    costs = model(row_s=0.001, pair_s=0.0005)

    assert costs.compute_s(4000, 4100) > 2 * costs.compute_s(0, 100)
    assert costs.compute_s(10, 10) == 0.0


def test_all_is_restored_where_that_is_cheaper():
    runs = [TierRun(TierName.CPU, 3), TierRun(TierName.DISK, 4)]

    assert model().num_blocks_to_restore(0, 112, runs) == 7


def test_nothing_is_restored_where_computing_is_cheaper():
    assert model(disk_s=0.1).num_blocks_to_restore(0, 64, [TierRun(TierName.DISK, 4)]) == 0


def test_a_prefix_is_restored_and_the_rest_computed_where_only_that_pays():
    runs = [TierRun(TierName.CPU, 3), TierRun(TierName.DISK, 4)]

    assert model(disk_s=0.1).num_blocks_to_restore(0, 112, runs) == 3


def test_a_few_tokens_are_not_worth_a_transfer():
    costs = model(transfer_s=0.05)

    assert costs.num_blocks_to_restore(160, 163, [TierRun(TierName.DISK, 1)]) == 0
    assert costs.num_blocks_to_restore(0, 163, [TierRun(TierName.DISK, 11)]) == 11


def test_as_long_as_a_cost_is_unknown_everything_is_restored():
    costs = CostModel(BLOCK_SIZE, BLOCK_BYTES)
    costs.observe_compute(64, 0, 1e-9)

    assert costs.num_blocks_to_restore(0, 64, [TierRun(TierName.DISK, 4)]) == 4
