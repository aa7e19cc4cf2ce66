"""Copies are what they are copies of, and the checksum is xxHash's own of what arrived."""

import random
import threading

import pytest
import torch
import xxhash

from model.native.copier import CompiledCopier
from model.tiers.copies import PlainCopier
from tests.support.native_kernels import native_ops

BLOCK_BYTES = 368_640


@pytest.fixture(params=["plain", "compiled"])
def copier(request):
    made = PlainCopier() if request.param == "plain" else CompiledCopier(native_ops())
    yield made
    made.close()


def some_bytes(num_bytes, seed):
    return bytearray(random.Random(seed).randbytes(num_bytes))


def blocks(count, num_bytes=BLOCK_BYTES):
    return [memoryview(some_bytes(num_bytes, seed)) for seed in range(count)]


def places(count, num_bytes=BLOCK_BYTES):
    return [memoryview(bytearray(num_bytes)) for _ in range(count)]


@pytest.mark.parametrize("count", [0, 1, 3, 4, 17])
@pytest.mark.parametrize("num_bytes", [1, 240, 241, 5000, BLOCK_BYTES])
def test_all_are_copied_and_each_has_its_checksum(copier, count, num_bytes):
    check_copies(copier, blocks(count, num_bytes), places(count, num_bytes))


@pytest.mark.parametrize("offset", [0, 1, 16, 32])
def test_so_many_that_a_second_thread_helps_wherever_they_lie(copier, offset):
    memory = memoryview(torch.zeros(100 * BLOCK_BYTES + offset, dtype=torch.uint8).numpy())
    targets = [memory[offset + i * BLOCK_BYTES :][:BLOCK_BYTES] for i in range(100)]

    for _ in range(3):
        check_copies(copier, blocks(100), targets)


def check_copies(copier, sources, targets):
    checksums = copier.copy(sources, targets)

    assert targets == sources
    assert checksums == [xxhash.xxh3_128_digest(source) for source in sources]


def test_the_checksum_is_the_copys_where_others_write_to_the_source_meanwhile(copier):
    sources, targets, is_over = blocks(100), places(100), threading.Event()

    def scribble():
        while not is_over.is_set():
            for source in sources:
                source[::4096] = bytes([sources[0][0] ^ 1]) * len(source[::4096])

    scribbling = threading.Thread(target=scribble)
    scribbling.start()
    try:
        for _ in range(10):
            checksums = copier.copy(sources, targets)
            assert checksums == [xxhash.xxh3_128_digest(target) for target in targets]
    finally:
        is_over.set()
        scribbling.join()


def test_copies_of_different_sizes_are_refused_before_anything_is_overwritten(copier):
    sources, targets = blocks(2, 500), [*places(1, 500), *places(1, 499)]

    with pytest.raises(ValueError, match=r"size|shape"):
        copier.copy(sources[::-1], targets[::-1])

    assert not any(targets[1])
