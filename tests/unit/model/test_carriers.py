"""Batches of blocks on their way from a device and back: whole, in order, waited for once."""

import mmap

import pytest
import torch

from model.carriers import InPlaceCarrier, StagedCarrier
from model.kv_cache import KVCache, KVShape
from tests.support.counting_lane import CountingLane

CPU = torch.device("cpu")
SHAPE = KVShape(num_layers=3, block_size=4, num_kv_heads=2, head_size=5, dtype=torch.bfloat16)
NUM_BLOCKS = 50


class Bench:
    """A cache of random blocks behind a lane."""

    def __init__(self, refusal=None) -> None:
        self.lane = CountingLane(refusal)
        self.cache = KVCache(SHAPE, NUM_BLOCKS, CPU, lane=lambda: self.lane)
        self.cache._blocks.copy_(torch.randn(self.cache._blocks.shape))
        self.carrier = self.cache.carrier()

    def bytes_of(self, block_id: int, num_tokens: int = 4) -> bytes:
        block = self.cache._blocks[block_id].clone()
        block[:, :, num_tokens:] = 0
        return block.view(torch.uint8).numpy().tobytes()

    def memory(self, num_places: int) -> tuple[memoryview, list[memoryview]]:
        """Memory of a tier's kind, and places in it that don't follow each other closely."""
        stride = SHAPE.block_bytes + 256
        memory = memoryview(mmap.mmap(-1, num_places * stride))
        starts = range(0, num_places * stride, stride)
        return memory, [memory[s + 256 : s + stride] for s in starts]


@pytest.fixture
def bench():
    return Bench()


def test_a_device_that_is_the_cpu_has_its_blocks_looked_at_where_they_are():
    cache = KVCache(SHAPE, 3, CPU)
    carrier = cache.carrier()
    (view,) = carrier.fetch([(1, 4)])
    (room,) = carrier.rooms([1])
    cache._blocks[1] = 7

    assert isinstance(carrier, InPlaceCarrier)
    assert bytes(view) == bytes(room) == cache._blocks[1].view(torch.uint8).numpy().tobytes()
    assert not carrier.reach(memoryview(bytearray(10)))


def test_a_batch_is_fetched_in_order_and_waited_for_once(bench):
    parts = [(7, 4), (3, 4), (49, 4), (3, 4)]

    payloads = bench.carrier.fetch(parts)

    assert [bytes(p) for p in payloads] == [bench.bytes_of(b) for b, _ in parts]
    assert bench.lane.num_crossings == 1


def test_what_lies_behind_a_part_s_tokens_stays_behind(bench):
    payloads = bench.carrier.fetch([(5, 1), (6, 4), (8, 3)])

    assert [bytes(p) for p in payloads] == [
        bench.bytes_of(5, 1),
        bench.bytes_of(6),
        bench.bytes_of(8, 3),
    ]
    assert (bench.cache._blocks[5] != 0).all()


def test_a_batch_is_put_where_it_belongs_and_nowhere_else(bench):
    before = bench.cache._blocks.clone()
    rooms = bench.carrier.rooms([9, 2, 30])
    for i, room in enumerate(rooms):
        room[:] = bench.bytes_of(40 + i)

    bench.carrier.put([9, 2])  # the third wasn't right

    assert [bench.bytes_of(b) for b in (9, 2)] == [bench.bytes_of(b) for b in (40, 41)]
    untouched = [b for b in range(NUM_BLOCKS) if b not in (9, 2)]
    assert torch.equal(bench.cache._blocks[untouched], before[untouched])
    assert bench.lane.num_crossings == 1


def test_nothing_is_waited_for_when_nothing_is_put(bench):
    bench.carrier.put([])

    assert bench.lane.num_crossings == 0


@pytest.mark.parametrize(
    ("block_bytes", "num_blocks"), [(240, 32), (360 << 10, 32), (2 << 20, 16), (64 << 20, 1)]
)
def test_a_batch_is_bounded_in_blocks_and_bytes(block_bytes, num_blocks):
    blocks = torch.empty(2, 1, 1, 1, 1, block_bytes, dtype=torch.uint8, device="meta")
    lane = CountingLane()
    lane.empty = lambda shape, dtype: torch.empty(tuple(shape), dtype=dtype)

    assert StagedCarrier(blocks, lane).max_blocks == num_blocks


def test_memory_that_is_reached_is_copied_to_and_from_straight(bench):
    memory, places = bench.memory(40)
    assert bench.carrier.reach(memory)
    parts = [(b, 3 if b == 11 else 4) for b in range(10, 45)]

    bench.carrier.fetch_into(parts, places[:35])

    assert [bytes(p) for p in places[:35]] == [bench.bytes_of(*part) for part in parts]
    assert bench.lane.num_crossings == 1
    bench.carrier.put_from([1, 0], places[4:6])
    assert [bench.bytes_of(b) for b in (1, 0)] == [bench.bytes_of(b) for b in (14, 15)]
    assert bench.lane.num_crossings == 2
    assert (bench.carrier._buffer == -1).all()


def test_memory_is_let_go_of_before_it_is_unmapped(bench):
    mapped = mmap.mmap(-1, 4096)
    memory = memoryview(mapped)
    assert bench.carrier.reach(memory)
    assert len(bench.lane.locked) == 1

    bench.carrier.let_go()
    bench.carrier.let_go()

    assert bench.lane.locked == []
    memory.release()
    mapped.close()


def test_memory_that_cant_be_locked_is_not_reached_and_the_log_says_why(caplog):
    bench = Bench(refusal="out of memory")
    memory, _ = bench.memory(1)

    assert not bench.carrier.reach(memory)
    assert "out of memory" in caplog.text
    assert "copied twice" in caplog.text
    bench.carrier.let_go()


def test_no_memory_is_not_reached_and_nothing_to_speak_of(bench, caplog):
    assert not bench.carrier.reach(memoryview(b""))
    assert caplog.text == ""
