"""Checks and times blocks on their way between a device and a CPU tier, for `benchmarks gpu`.

The same blocks go to the tier and back three ways: straight, where the device can reach the tier's
memory; through a buffer, as where it can't; and, for comparison, one after the other. All bytes
must be the same; the times stand beside that of one bare copy of as many bytes. On a CPU, whose
blocks aren't carried, a lane stands in that does nothing by itself, to try the program.
"""

import os
import statistics
import time
from collections.abc import Iterator
from collections.abc import Sequence as Items
from contextlib import contextmanager

import torch

from model.carriers import CudaLane, Lane, StagedCarrier
from model.kv_cache import KVShape
from model.messages import TierName
from model.prefix_index import BlockHash
from model.tiers.base import Identity, Record
from model.tiers.cpu import CpuStorage, create_memory, slot_bytes
from model.tiers.jobs import Item, Transfer, Urgency
from model.tiers.mover import Mover

# Llama 3.2 1B's blocks: 512 KiB each.
SHAPE = KVShape(num_layers=16, block_size=16, num_kv_heads=8, head_size=64, dtype=torch.bfloat16)
NUM_BLOCKS = 256
WAYS = ("straight", "through a buffer", "one by one")


class PlainLane:
    """For a device that is this machine's memory."""

    def empty(self, shape: Items[int], dtype: torch.dtype) -> torch.Tensor:
        """Any memory."""
        return torch.empty(tuple(shape), dtype=dtype)

    @contextmanager
    def crossing(self) -> Iterator[None]:
        """Copies are done when they return."""
        yield

    def lock_pages(self, address: int, num_bytes: int) -> str | None:
        """Every address can be reached."""
        return None

    def unlock_pages(self, address: int) -> None:
        """Nothing was locked."""


def copy_blocks(device: torch.device, repeats: int = 5) -> bool:
    """Go every way `repeats` times; prints a row for each, and whether all bytes came back."""
    blocks = torch.randn(
        NUM_BLOCKS,
        SHAPE.num_layers,
        2,
        SHAPE.block_size,
        SHAPE.num_kv_heads,
        SHAPE.head_size,
        device=device,
    ).to(SHAPE.dtype)
    expected = blocks.clone()
    bare_ms = _bare_ms(blocks, repeats)
    num_mb = NUM_BLOCKS * SHAPE.block_bytes / 1e6
    print(
        f"\n{NUM_BLOCKS} blocks, {num_mb:.0f} MB; bare copies {bare_ms[0]:.1f} ms from the device"
    )
    print(f"and {bare_ms[1]:.1f} ms to it, through page-locked memory; with checksums:")
    are_right = True
    for way in WAYS:
        seconds = [_there_and_back(blocks, expected, way) for _ in range(repeats + 1)][1:]
        if None in seconds:
            print(f"{way}: WRONG BYTES, or not done")
            are_right = False
            continue
        there, back = (1000 * statistics.median(column) for column in zip(*seconds, strict=True))  # type: ignore[arg-type]
        print(f"{way:16}  to the tier {there:7.1f} ms   back {back:7.1f} ms", flush=True)
    return are_right


def _lane(device: torch.device) -> Lane:
    return CudaLane(device) if device.type == "cuda" else PlainLane()


def _there_and_back(
    blocks: torch.Tensor, expected: torch.Tensor, way: str
) -> tuple[float, float] | None:
    """Seconds there and back; None if something is missing or wrong."""
    identity = Identity("benchmark", "bfloat16", SHAPE.block_size, 1, SHAPE.block_bytes)
    num_bytes = NUM_BLOCKS * slot_bytes(identity)
    memory = create_memory(num_bytes)
    storage = CpuStorage(identity, num_bytes, memory)
    storage.open()
    carrier = StagedCarrier(blocks, _lane(blocks.device))
    if way == "one by one":
        carrier.max_blocks = 1
    mover = Mover(storage, carrier, storage if way == "straight" else None)
    blocks.copy_(expected)
    there = _move(mover, Urgency.SPILL)
    blocks.fill_(torch.nan)
    back = _move(mover, Urgency.RESTORE)
    mover.close()
    os.close(memory)
    is_right = torch.equal(blocks, expected)
    return (there, back) if there and back and is_right else None


def _move(mover: Mover, urgency: Urgency) -> float | None:
    """All blocks in one transfer; its seconds, None if it stopped."""
    _synchronise()
    items = tuple(
        Item(Record(BlockHash(i.to_bytes(32, "big")), None, i, SHAPE.block_size), i)
        for i in range(NUM_BLOCKS)
    )
    transfer = Transfer(TierName.CPU, urgency, items)
    mover.carry_out(transfer, time.perf_counter)
    return transfer.seconds if transfer.num_done == NUM_BLOCKS else None


def _bare_ms(blocks: torch.Tensor, repeats: int) -> tuple[float, float]:
    """One copy of everything from the device, and one to it."""
    host = _lane(blocks.device).empty(blocks.shape, blocks.dtype)
    times = []
    for source, target in [(blocks, host), (host, blocks)] * (repeats + 1):
        _synchronise()
        begun = time.perf_counter()
        target.copy_(source)
        _synchronise()
        times.append(1000 * (time.perf_counter() - begun))
    return statistics.median(times[2::2]), statistics.median(times[3::2])


def _synchronise() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()
