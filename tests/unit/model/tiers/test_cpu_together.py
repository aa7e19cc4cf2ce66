"""Records that are read together: those before the first that is not right, whoever copies."""

import threading
import time
from contextlib import suppress
from functools import partial

import pytest

from model.native.copier import CompiledCopier
from model.tiers.base import RecordLostError
from model.tiers.copies import PlainCopier
from model.tiers.cpu import CpuStorage, slot_bytes
from tests.support.native_kernels import native_ops
from tests.support.tier_records import (
    BLOCK_BYTES,
    IDENTITY,
    fill,
    key,
    payload,
    read_back,
    record,
)

SLOT = slot_bytes(IDENTITY)
NUM_SLOTS = 8


@pytest.fixture
def memory():
    return bytearray(NUM_SLOTS * SLOT)


@pytest.fixture(params=["plain", "compiled"])
def tier(memory, request):
    copier = PlainCopier if request.param == "plain" else partial(CompiledCopier, native_ops())
    storage = CpuStorage(IDENTITY, len(memory), memoryview(memory), copier)
    storage.open()
    yield storage
    storage.close()


def read_together(storage, numbers):
    """What was read before the first that could not be."""
    buffers = [memoryview(bytearray(BLOCK_BYTES)) for _ in numbers]
    read = []
    with suppress(RecordLostError):
        for _ in storage.read_all([record(i) for i in numbers], buffers):
            read.append(bytes(buffers[len(read)]))
    return read


@pytest.mark.parametrize("count", range(NUM_SLOTS + 1))
def test_however_many_are_read_together_each_is_what_it_was(tier, count):
    fill(tier, range(count))

    assert read_together(tier, range(count)) == [payload(i) for i in range(count)]


@pytest.mark.parametrize("wrong", range(NUM_SLOTS))
def test_of_many_together_those_before_a_damaged_one_are_read(tier, memory, wrong):
    fill(tier, range(NUM_SLOTS))
    memory[memory.index(key(wrong)) + 300] ^= 0x10

    assert read_together(tier, range(NUM_SLOTS)) == [payload(i) for i in range(wrong)]
    rest = [i for i in range(NUM_SLOTS) if i != wrong]
    assert read_together(tier, rest) == [payload(i) for i in rest]
    assert tier.used_bytes == len(rest) * SLOT


@pytest.mark.parametrize("missing", range(NUM_SLOTS))
def test_of_many_together_those_before_a_missing_one_are_read(tier, missing):
    fill(tier, [i for i in range(NUM_SLOTS) if i != missing])

    assert read_together(tier, range(NUM_SLOTS)) == [payload(i) for i in range(missing)]
    assert tier.used_bytes == (NUM_SLOTS - 1) * SLOT


def test_a_record_that_is_written_while_somebody_finds_it_missing_stays(memory):
    storage = CpuStorage(
        IDENTITY, len(memory), memoryview(memory), lambda: WritesMeanwhile(storage)
    )
    storage.open()
    storage._lock = GoesToWhoeverWaits()

    with pytest.raises(RecordLostError):
        read_back(storage, 0)
    storage._copier.writing.join()

    assert read_back(storage, 0) == payload(0)
    storage.close()


class WritesMeanwhile(PlainCopier):
    """While the first reader is at it, another thread writes what that doesn't find."""

    def __init__(self, storage):
        super().__init__()
        self.writing = threading.Thread(target=fill, args=(storage, [0]))

    def copy(self, sources, targets):
        if not self.writing.ident:
            self.writing.start()
            self.writing.join(0.1)
        return super().copy(sources, targets)


class GoesToWhoeverWaits:
    """A lock that its last holder doesn't get again before others had it."""

    def __init__(self):
        self._lock = threading.Lock()

    def __enter__(self):
        self._lock.acquire()

    def __exit__(self, *exc):
        self._lock.release()
        time.sleep(0.05)
