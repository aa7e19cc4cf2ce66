"""Batches between a CPU tier and a device that isn't the CPU: straight where the device can reach
the tier's memory, through a buffer where it can't, and the same comes of both."""

import hashlib

import pytest
import torch

from model.kv_cache import KVCache, KVShape
from model.messages import TierName
from model.tiers.base import Identity, Record, RecordLostError, TierFullError
from model.tiers.cpu import CpuStorage, slot_bytes
from model.tiers.jobs import Item, Transfer, Urgency
from model.tiers.mover import Mover
from tests.support.counting_lane import CountingLane

both_ways = pytest.mark.parametrize(
    "refusal", [None, "no more locked memory"], ids=["straight", "staged"]
)


def key(number):
    return hashlib.sha256(bytes([number])).digest()


class StagedBench:
    """A CPU tier, and blocks of a device that isn't the CPU, as far as anybody can tell."""

    def __init__(self, refusal=None):
        shape = KVShape(
            num_layers=2, block_size=4, num_kv_heads=1, head_size=8, dtype=torch.float32
        )
        self.lane = CountingLane(refusal)
        self.blocks = KVCache(shape, 8, torch.device("cpu"), lane=lambda: self.lane)
        self.blocks._blocks.copy_(torch.randn(self.blocks._blocks.shape))
        identity = Identity("f", "float32", 4, 1, shape.block_bytes)
        self.memory = bytearray(6 * slot_bytes(identity))
        self.storage = CpuStorage(identity, len(self.memory), memoryview(self.memory))
        self.storage.open()
        self.mover = Mover(self.storage, self.blocks.carrier(), self.storage)

    def carry_out(self, urgency, *numbers, num_tokens=4):
        chain = [Record(key(n), None, n, num_tokens) for n in numbers]
        items = tuple(Item(r, n) for r, n in zip(chain, numbers, strict=True))
        moving = Transfer(TierName.CPU, urgency, items)
        assert self.mover.carry_out(moving, lambda: 0.0)
        return moving

    def contents(self):
        return self.blocks._blocks.clone()


@both_ways
def test_a_device_s_blocks_go_there_and_back_in_batches(refusal, caplog):
    bench = StagedBench(refusal)
    before = bench.contents()

    spill = bench.carry_out(Urgency.SPILL, 1, 3, 5, 6)
    assert (spill.num_done, spill.error, bench.lane.num_crossings) == (4, None, 1)
    bench.blocks.poison()
    restore = bench.carry_out(Urgency.RESTORE, 1, 3, 5, 6)

    assert (restore.num_done, restore.error, bench.lane.num_crossings) == (4, None, 2)
    after = bench.contents()
    assert torch.equal(after[[1, 3, 5, 6]], before[[1, 3, 5, 6]])
    assert after[[0, 2, 4, 7]].isnan().all()
    assert ("copied twice" in caplog.text) == (refusal is not None)
    bench.mover.close()
    assert bench.lane.locked == []


@both_ways
def test_a_partial_block_takes_nobody_else_s_tokens_along(refusal):
    bench = StagedBench(refusal)
    before = bench.contents()
    bench.carry_out(Urgency.SPILL, 2, num_tokens=3)
    bench.carry_out(Urgency.RESTORE, 2, num_tokens=3)

    after = bench.contents()[2]
    assert torch.equal(after[:, :, :3], before[2][:, :, :3])
    assert (after[:, :, 3:] == 0).all()


@both_ways
def test_a_damaged_block_reaches_no_device(refusal):
    bench = StagedBench(refusal)
    before = bench.contents()
    bench.carry_out(Urgency.SPILL, 1, 3, 5)
    at = bytes(bench.memory).index(before[3].numpy().tobytes())
    bench.memory[at] ^= 1
    bench.blocks.poison()

    restore = bench.carry_out(Urgency.RESTORE, 1, 3, 5)

    assert restore.num_done == 1
    assert isinstance(restore.error, RecordLostError)
    assert torch.equal(bench.contents()[1], before[1])
    assert bench.contents()[[3, 5]].isnan().all()


@both_ways
def test_what_a_full_tier_has_no_room_for_is_not_done(refusal):
    bench = StagedBench(refusal)
    spill = bench.carry_out(Urgency.SPILL, *range(8))

    assert spill.num_done == 6
    assert isinstance(spill.error, TierFullError)
    assert len(list(bench.storage.verify())) == 6
