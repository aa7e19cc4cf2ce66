"""What a chain is worth: less where a slower tier has it too, for it costs less to come back."""

import pytest

from model.costs import CostModel
from model.eviction import EvictionPolicy
from model.messages import TierName
from model.prefix_index import BlockHash
from model.tiers.base import Hold, Record
from model.tiers.tree import RecordTree
from model.worth import Worth

FIRST = Record(BlockHash(b"1" * 32), None, 0, 4)
SECOND = Record(BlockHash(b"2" * 32), FIRST.key, 1, 4)
HOLD = Hold("conv", "turn", SECOND.key, 8, used_at=100.0, num_uses=1)


class Shelf:
    """A tier, as far as it is asked here."""

    def __init__(self, name: TierName, *records: Record) -> None:
        self.name = name
        self.tree = RecordTree()
        self.tree.rebuild(records)


def costs(restore_s: float) -> CostModel:
    """A second a token; so many for a megabyte from disk, and a hundred for asking at all."""
    model = CostModel(4, 1_000_000)
    for num_rows in (32, 64, 128):
        model.observe_compute(num_rows, 0, float(num_rows))
    for num_blocks in (1, 2, 8):
        model.observe_restore(TierName.DISK, num_blocks, 100.0 + restore_s * num_blocks)
    return model


def value(tier: TierName, tiers, restore_s: float = 1.0) -> float:
    worth = Worth(EvictionPolicy.VALUE, costs(restore_s), 4, 1_000_000, lambda: 100.0)
    worth.tiers = tiers
    return worth.of_record(tier, SECOND, HOLD)[2]


def test_a_copy_in_a_slower_tier_leaves_the_price_of_restoring_it():
    cpu = Shelf(TierName.CPU, FIRST, SECOND)
    alone = value(TierName.CPU, [cpu, Shelf(TierName.DISK)])
    copied = value(TierName.CPU, [cpu, Shelf(TierName.DISK, FIRST, SECOND)])

    # Four tokens' computing against a block more in a transfer that comes anyway.
    assert alone / copied == pytest.approx(4.0)


def test_a_copy_that_comes_back_slower_than_computing_is_none():
    tiers = [Shelf(TierName.CPU, FIRST, SECOND), Shelf(TierName.DISK, FIRST, SECOND)]

    assert value(TierName.CPU, tiers, restore_s=50.0) == value(TierName.CPU, tiers[:1])


def test_a_copy_in_a_quicker_tier_is_worth_nothing_to_the_slower():
    disk = Shelf(TierName.DISK, FIRST, SECOND)

    assert value(TierName.DISK, [Shelf(TierName.CPU, FIRST, SECOND), disk]) == value(
        TierName.DISK, [Shelf(TierName.CPU), disk]
    )
