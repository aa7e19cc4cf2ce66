"""The compiled copies: xxHash's own checksums at every level, by one thread or two."""

import os
import random
import threading

import pytest
import torch
import xxhash

from model.native.copier import CompiledCopier
from model.native.operators import levels
from tests.support.native_kernels import native_ops

BLOCK_BYTES = 368_640
# Around whole stripes of 64 bytes and whole blocks of 16 stripes, where the algorithm turns.
TURNS = (1024, 2048, 4096, BLOCK_BYTES)
SIZES = [*range(241, 330), *(turn + i for turn in TURNS for i in range(-65, 66))]
ENOUGH_TO_SHARE = 100


def some_bytes(num_bytes):
    return torch.frombuffer(bytearray(random.Random(0).randbytes(num_bytes)), dtype=torch.uint8)


@pytest.mark.parametrize("offset", [0, 1, 16, 32])
def test_every_level_takes_xxhashs_checksum_of_every_size(offset):
    ops, source = native_ops(), some_bytes(max(SIZES))
    target = torch.zeros(offset + max(SIZES) + 8, dtype=torch.uint8)[offset:]
    addresses = torch.tensor([[source.data_ptr(), target.data_ptr()]])
    checksums = torch.empty(1, 16, dtype=torch.uint8)
    for num_bytes in SIZES:
        expected = xxhash.xxh3_128_digest(source[:num_bytes].numpy())
        for level, name in enumerate(levels(ops)):
            target.zero_()
            ops.copy(checksums, addresses, num_bytes, level)

            assert checksums.numpy().tobytes() == expected, (num_bytes, name)
            assert torch.equal(target[:num_bytes], source[:num_bytes]), (num_bytes, name)
            assert not target[num_bytes:].any(), (num_bytes, name)


@pytest.mark.parametrize("count", range(1, 11))
def test_each_of_several_has_its_own_checksum(count):
    ops, num_bytes = native_ops(), 5000
    sources = some_bytes(count * num_bytes).view(count, num_bytes)
    for offset in (0, 1):
        targets = torch.zeros(count * num_bytes + offset, dtype=torch.uint8)[offset:]
        targets = targets.view(count, num_bytes)
        pairs = zip(sources, targets, strict=True)
        addresses = torch.tensor([[s.data_ptr(), t.data_ptr()] for s, t in pairs])
        checksums = torch.empty(count, 16, dtype=torch.uint8)
        for level, name in enumerate(levels(ops)):
            targets.zero_()
            ops.copy(checksums, addresses, num_bytes, level)

            assert torch.equal(targets, sources), name
            found = [row.numpy().tobytes() for row in checksums]
            assert found == [xxhash.xxh3_128_digest(row.numpy()) for row in sources], name


def test_what_the_operator_can_t_do_it_refuses():
    ops, memory = native_ops(), torch.zeros(1000, dtype=torch.uint8)
    addresses = torch.tensor([[memory.data_ptr(), memory.data_ptr() + 500]])

    with pytest.raises(RuntimeError, match="at least 241 bytes"):
        ops.copy(torch.empty(1, 16, dtype=torch.uint8), addresses, 240, -1)
    with pytest.raises(RuntimeError, match="a checksum for each"):
        ops.copy(torch.empty(2, 16, dtype=torch.uint8), addresses, 300, -1)


def copies_are_right():
    source = memoryview(bytearray(some_bytes(BLOCK_BYTES).numpy()))
    targets = [memoryview(bytearray(BLOCK_BYTES)) for _ in range(ENOUGH_TO_SHARE)]

    checksums = CompiledCopier(native_ops()).copy([source] * ENOUGH_TO_SHARE, targets)

    return (
        set(checksums) == {xxhash.xxh3_128_digest(source)} and targets == [source] * ENOUGH_TO_SHARE
    )


def test_who_has_one_processor_only_copies_alone():
    answers = []

    def work():
        os.sched_setaffinity(0, [min(os.sched_getaffinity(0))])  # of this thread
        answers.append(copies_are_right())

    working = threading.Thread(target=work)
    working.start()
    working.join()

    assert answers == [True]


def test_many_threads_that_copy_at_once_have_each_their_own():
    answers = []
    threads = [
        threading.Thread(target=lambda: answers.append(copies_are_right())) for _ in range(6)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert answers == [True] * 6
