"""One tier's thread: what it moves, what goes wrong, what nobody waits for any more."""

import hashlib
import threading

import pytest

from model.messages import TierName
from model.tiers.base import (
    Record,
    RecordLostError,
    TierError,
    TierUnavailableError,
)
from model.tiers.jobs import Chore, Errand, Item, Transfer, Urgency
from model.tiers.transfers import Transfers
from tests.support.memory_storage import MemoryStorage, NumberedBlocks


class GatedStorage(MemoryStorage):
    """Answers when it is let."""

    def __init__(self):
        super().__init__()
        self.gate = threading.Event()
        self.gate.set()
        self.entered = threading.Event()

    def write(self, record, payload):
        self._wait()
        super().write(record, payload)

    def read(self, record, into):
        self._wait()
        super().read(record, into)

    def _wait(self):
        self.entered.set()
        assert self.gate.wait(10)


class Bench:
    def __init__(self, storage=None, clock=lambda: 0.0, max_blocks=1):
        self.storage = storage or GatedStorage()
        self.blocks = NumberedBlocks(16, max_blocks)
        self.blocks.contents[:] = range(16)
        self.woken = threading.Semaphore(0)
        self.transfers = Transfers(self.storage, self.blocks, clock, self.woken.release)

    def done(self, num_jobs=1):
        """The next jobs that are over."""
        for _ in range(num_jobs):
            assert self.woken.acquire(timeout=10)
        return self.transfers.take_done()


@pytest.fixture
def bench():
    bench = Bench()
    yield bench
    bench.storage.gate.set()
    assert bench.transfers.close(10.0)


def record(number):
    return Record(hashlib.sha256(bytes([number])).digest(), None, 0, 1)


def transfer(urgency, *numbers, **fields):
    items = tuple(Item(record(n), n) for n in numbers)
    return Transfer(TierName.DISK, urgency, items, **fields)


def test_blocks_go_there_and_back(bench):
    spill = transfer(Urgency.SPILL, 3, 4)
    bench.transfers.start(spill)
    assert bench.done() == [spill]
    assert (spill.num_done, spill.error) == (2, None)

    bench.blocks.contents[3] = bench.blocks.contents[4] = 0
    restore = transfer(Urgency.RESTORE, 3, 4)
    bench.transfers.start(restore)

    assert bench.done() == [restore]
    assert bench.blocks.contents[3:5] == bytes([3, 4])


def test_a_restore_goes_before_spills_that_wait(bench):
    bench.storage.gate.clear()
    first, second, restore = (
        transfer(Urgency.SPILL, 1),
        transfer(Urgency.SPILL, 2),
        transfer(Urgency.RESTORE, 1),
    )
    bench.transfers.start(first)
    assert bench.storage.entered.wait(10)
    bench.transfers.start(second)
    bench.transfers.start(restore)
    bench.storage.gate.set()

    assert bench.done(3) == [first, restore, second]


def test_an_error_of_the_medium_ends_a_job_and_says_how_far_it_came(bench):
    bench.transfers.start(transfer(Urgency.SPILL, 1, 2, 3))
    bench.done()
    bench.storage.damaged.add(record(2).key)
    restore = transfer(Urgency.RESTORE, 1, 2, 3)

    bench.transfers.start(restore)

    bench.done()
    assert restore.num_done == 1
    assert isinstance(restore.error, RecordLostError)


def test_a_bug_of_the_medium_is_an_error_and_the_thread_lives_on(bench, caplog):
    def fail(storage):
        raise ZeroDivisionError("a bug")

    errand = Errand(TierName.DISK, Urgency.ERASE, fail)
    bench.transfers.start(errand)
    bench.done()

    assert isinstance(errand.error, TierError)
    assert "a bug" in str(errand.error)
    assert "Traceback" in caplog.text
    spill = transfer(Urgency.SPILL, 1)
    bench.transfers.start(spill)
    assert bench.done() == [spill]
    assert spill.error is None


def test_an_errand_s_result_comes_back(bench):
    errand = Errand(TierName.DISK, Urgency.SPILL, lambda storage: storage.name)
    bench.transfers.start(errand)

    bench.done()
    assert errand.result is TierName.DISK


def test_who_is_abandoned_touches_nothing_but_what_it_is_busy_with(bench):
    bench.transfers.start(transfer(Urgency.SPILL, 5, 6, 7))
    bench.done()
    bench.storage.gate.clear()
    bench.storage.entered.clear()
    bench.blocks.contents[5:8] = bytes(3)
    restore = transfer(Urgency.RESTORE, 5, 6, 7)
    bench.transfers.start(restore)
    assert bench.storage.entered.wait(10)

    num_done, busy = restore.abandon()
    assert (num_done, busy) == (0, {5})
    bench.storage.gate.set()

    assert bench.done() == [restore]
    assert bench.blocks.contents[5:8] == bytes([5, 0, 0])


def test_who_is_abandoned_before_it_began_touches_nothing():
    waiting = transfer(Urgency.RESTORE, 5)

    assert waiting.abandon() == (0, frozenset())
    assert waiting.begin(3) == ()


def test_a_batch_is_what_is_touched_at_once():
    moving = transfer(Urgency.RESTORE, 5, 6, 7, 8)

    assert [item.block_id for item in moving.begin(3)] == [5, 6, 7]
    moving.finish(1)
    assert moving.abandon() == (1, {6, 7})
    moving.finish(2)
    assert moving.num_done == 3
    assert moving.begin(3) == ()


def test_what_another_tier_has_is_copied_without_the_device(bench):
    upper = MemoryStorage(TierName.CPU)
    upper.write(record(9), memoryview(b"\x42"))
    copy = Transfer(TierName.DISK, Urgency.SPILL, (Item(record(9), -1),), source=upper)

    bench.transfers.start(copy)

    bench.done()
    assert bench.storage.payloads[record(9).key] == b"\x42"


class SlowToVerify(GatedStorage):
    """Each step of verifying is let, and takes a second."""

    def __init__(self):
        super().__init__()
        self.now = 0.0
        self.num_steps = 0
        self.step_gate = threading.Semaphore(0)
        self.has_begun = threading.Event()

    def verify(self):
        for found in super().verify():
            self.has_begun.set()
            assert self.step_gate.acquire(timeout=10)
            self.num_steps += 1
            self.now += 1.0
            yield found


def slow_bench():
    storage = SlowToVerify()
    for number in range(6):
        storage.write(record(number), memoryview(bytes([number])))
    return Bench(storage, lambda: storage.now)


def test_a_restore_during_a_long_verify_waits_for_one_step_only():
    bench = slow_bench()
    bench.storage.damaged.add(record(4).key)
    verify = Chore(TierName.DISK, Urgency.SPILL, lambda storage: storage.verify())
    bench.transfers.start(verify)
    assert bench.storage.has_begun.wait(10)
    restore = transfer(Urgency.RESTORE, 1, 2)
    bench.blocks.contents[1:3] = bytes(2)
    bench.transfers.start(restore)

    bench.storage.step_gate.release()
    assert bench.done() == [restore]
    assert bench.storage.num_steps == 1
    assert bench.blocks.contents[1:3] == bytes([1, 2])
    for _ in range(5):
        bench.storage.step_gate.release()
    assert bench.done() == [verify]
    assert verify.result == [record(4)]
    assert bench.transfers.close(10.0)


def test_closing_does_not_wait_for_what_is_left_of_a_chore():
    bench = slow_bench()
    verify = Chore(TierName.DISK, Urgency.SPILL, lambda storage: storage.verify())
    bench.transfers.start(verify)
    assert bench.storage.has_begun.wait(10)

    assert not bench.transfers.close(0.01)
    bench.storage.step_gate.release()
    assert bench.transfers.close(10.0)
    assert bench.storage.num_steps == 1
    assert bench.storage.is_closed


def test_a_chore_that_fails_is_over_and_says_what_it_had_found():
    bench = slow_bench()
    bench.storage.damaged.add(record(0).key)
    verify = Chore(TierName.DISK, Urgency.SPILL, lambda storage: storage.verify())
    bench.transfers.start(verify)
    assert bench.storage.has_begun.wait(10)
    bench.storage.is_broken = True
    for _ in range(2):
        bench.storage.step_gate.release()

    assert bench.done() == [verify]
    assert isinstance(verify.error, TierUnavailableError)
    assert verify.result == [record(0)]
    assert bench.transfers.close(10.0)


def test_what_was_read_of_a_batch_before_an_error_is_on_the_device():
    bench = Bench(max_blocks=3)
    bench.transfers.start(transfer(Urgency.SPILL, *range(8)))
    bench.done()
    bench.blocks.contents[:] = bytes(16)
    bench.storage.damaged.add(record(4).key)
    restore = transfer(Urgency.RESTORE, *range(8))

    bench.transfers.start(restore)

    bench.done()
    assert restore.num_done == 4
    assert isinstance(restore.error, RecordLostError)
    assert bench.blocks.contents[:8] == bytes([0, 1, 2, 3, 0, 0, 0, 0])
    assert bench.transfers.close(10.0)


def test_closing_carries_out_what_is_queued():
    bench = Bench()
    spill = transfer(Urgency.SPILL, 1)
    bench.transfers.start(spill)

    assert bench.transfers.close(10.0)
    assert record(1).key in bench.storage.records


def test_closing_waits_for_a_medium_that_hangs_only_so_long():
    bench = Bench()
    bench.storage.gate.clear()
    bench.transfers.start(transfer(Urgency.SPILL, 1))
    assert bench.storage.entered.wait(10)

    assert not bench.transfers.close(0.01)
    bench.storage.gate.set()
    assert bench.transfers.close(10.0)


def test_a_medium_that_is_not_there_is_an_error(bench):
    bench.storage.is_broken = True
    spill = transfer(Urgency.SPILL, 1)
    bench.transfers.start(spill)

    bench.done()
    assert isinstance(spill.error, TierUnavailableError)
