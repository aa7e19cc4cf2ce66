"""Blocks in memory that was set aside: kept through a crash, erased, never half, never wrong."""

import errno
import os
import signal
import subprocess
import sys
import threading
from collections import Counter
from pathlib import Path

import pytest

from model.tiers.base import Identity, RecordLostError, Storage, TierFullError, TierUnavailableError
from model.tiers.cpu import CpuStorage, create_memory, slot_bytes
from tests.support.tier_records import (
    BLOCK_BYTES,
    IDENTITY,
    OTHER_IDENTITY,
    chain,
    fill,
    fill_up,
    key,
    payload,
    read_back,
    record,
)

ROOT = Path(__file__).parents[4]
SLOT = slot_bytes(IDENTITY)
NUM_SLOTS = 8


@pytest.fixture
def memory():
    fd = create_memory(NUM_SLOTS * SLOT)
    yield fd
    os.close(fd)


@pytest.fixture
def tier(memory):
    storage = opened(memory)
    yield storage
    storage.close()


def opened(memory, identity=IDENTITY, quota=NUM_SLOTS * SLOT):
    storage = CpuStorage(identity, quota, memory)
    storage.open()
    return storage


def contents(memory):
    return os.pread(memory, NUM_SLOTS * SLOT, 0)


def position_of(memory, number):
    """Where the record's header begins."""
    return contents(memory).index(key(number)) - 20


def flip(memory, offset):
    byte = os.pread(memory, 1, offset)[0]
    os.pwrite(memory, bytes([byte ^ 0x10]), offset)


def test_it_is_a_storage(tier):
    storage: Storage = tier

    assert storage.name == "cpu"
    assert storage.record_bytes() == SLOT


def test_what_was_written_is_read(tier):
    fill(tier, range(NUM_SLOTS))

    assert [read_back(tier, i) for i in range(8)] == [payload(i) for i in range(8)]
    assert tier.used_bytes == tier.live_bytes == NUM_SLOTS * SLOT


def test_a_record_can_be_looked_at_where_it_is(tier):
    fill(tier, [1])

    assert tier.payload_view(record(1)) == payload(1)


def test_a_view_that_is_still_held_does_not_keep_it_from_closing(memory):
    storage = opened(memory)
    fill(storage, [1])
    view = storage.payload_view(record(1))
    storage.close()

    assert view == payload(1)


def test_any_writable_buffer_will_do():
    storage = opened(memoryview(bytearray(3 * SLOT)))
    fill(storage, [1, 2, 3])

    assert read_back(storage, 2) == payload(2)
    with pytest.raises(TierFullError):
        fill(storage, [4])


def test_what_is_there_already_stays_as_it_is(tier):
    fill(tier, [1])
    tier.write(record(1), payload(2))

    assert read_back(tier, 1) == payload(1)
    assert tier.used_bytes == SLOT


def test_the_quota_bounds_what_is_used_of_the_memory(memory):
    storage = opened(memory, quota=3 * SLOT + 5)

    assert fill_up(storage) == 3
    assert storage.used_bytes == 3 * SLOT
    storage.close()


def test_a_removed_record_makes_room(tier):
    num = fill_up(tier)
    tier.remove([key(3), key(99)])
    fill(tier, [50])

    assert num == NUM_SLOTS
    assert read_back(tier, 50) == payload(50)
    with pytest.raises(RecordLostError):
        read_back(tier, 3)


def test_the_next_process_finds_the_records(memory):
    first = opened(memory)
    for r in chain(6):
        first.write(r, payload(r.position))
    first.remove([key(2)])
    second = CpuStorage(IDENTITY, NUM_SLOTS * SLOT, memory)

    assert sorted(r.position for r in second.open()) == [0, 1, 3, 4, 5]
    assert read_back(second, 3, 2) == payload(3)
    assert fill_up(second) > 0
    first.close()
    second.close()


CRASHING = """
import os, signal, sys
from model.tiers import cpu
from tests.support.tier_records import IDENTITY, payload, record

fd, num_bytes = int(sys.argv[1]), int(sys.argv[2])
storage = cpu.CpuStorage(IDENTITY, num_bytes, fd)
storage.open()
for number in range(3):
    storage.write(record(number), payload(number))
cpu.record_checksum = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
storage.write(record(3), payload(3))
"""


def test_a_process_killed_while_it_wrote_leaves_all_but_the_half_record(memory):
    command = [sys.executable, "-c", CRASHING, str(memory), str(NUM_SLOTS * SLOT)]
    result = subprocess.run(command, pass_fds=[memory], cwd=ROOT, check=False)
    storage = CpuStorage(IDENTITY, NUM_SLOTS * SLOT, memory)

    assert result.returncode == -signal.SIGKILL
    assert bytes(payload(3)) in contents(memory)
    assert sorted(r.position for r in storage.open()) == [0, 1, 2]
    assert [read_back(storage, i) for i in range(3)] == [payload(i) for i in range(3)]
    # Nobody would ask for it to be erased any more.
    assert bytes(payload(3))[:32] not in contents(memory)
    storage.close()


def test_a_removed_record_s_bytes_are_nowhere_in_the_memory(tier, memory):
    fill(tier, range(4))
    tier.remove([key(1), key(3)])

    assert not any(bytes(payload(number))[:32] in contents(memory) for number in (1, 3))
    assert [read_back(tier, number) for number in (0, 2)] == [payload(0), payload(2)]


def putting(numbers):
    """Fills each room with the bytes of the number at its place."""

    def fill(rooms):
        for place, room in rooms.items():
            room[:] = payload(numbers[place])

    return fill


def test_several_records_are_written_where_they_will_be(tier):
    fill(tier, [2])
    numbers = [1, 2, 3]
    steps = tier.write_with([record(n) for n in numbers], putting(numbers))

    assert sum(1 for _ in steps) == 3
    assert [read_back(tier, n) for n in numbers] == [payload(n) for n in numbers]
    assert tier.used_bytes == 3 * SLOT


def test_what_has_room_is_written_before_the_memory_is_full(tier):
    numbers = range(NUM_SLOTS + 2)
    steps = tier.write_with([record(n) for n in numbers], putting(numbers))

    assert [next(steps) for _ in range(NUM_SLOTS)] == [None] * NUM_SLOTS
    with pytest.raises(TierFullError):
        next(steps)
    assert len(list(tier.verify())) == NUM_SLOTS


def test_a_device_that_fails_to_write_takes_up_nothing(tier, memory):
    def fail(rooms):
        rooms[0][:] = payload(0)
        raise RuntimeError("the device is gone")

    with pytest.raises(RuntimeError):
        next(tier.write_with([record(0), record(1)], fail))

    assert tier.used_bytes == 0
    assert bytes(payload(0))[:32] not in contents(memory)
    assert fill_up(tier) == NUM_SLOTS


def test_erased_bytes_are_nowhere_in_the_memory(tier, memory):
    fill(tier, range(4))
    tier.remove([key(1)])
    tier.erase([key(1), key(2), key(99)])

    for number in (1, 2):
        assert bytes(payload(number))[:32] not in contents(memory)
        assert key(number) not in contents(memory)
    assert read_back(tier, 3) == payload(3)
    assert fill_up(tier) == NUM_SLOTS


# The state, each field of the header, the checksum, and both ends of the payload.
OFFSETS = [0, 1, 4, 20, 52, 84, 88, 92, 96, 97, 100, 112, 128, 256, 256 + BLOCK_BYTES - 1]


@pytest.mark.parametrize("offset", OFFSETS)
@pytest.mark.parametrize("is_reopened", [False, True])
def test_a_flipped_bit_loses_the_record_and_no_other(memory, offset, is_reopened):
    storage = opened(memory)
    fill(storage, range(3))
    flip(memory, position_of(memory, 1) + offset)
    if is_reopened:
        storage.close()
        storage.open()

    for _ in range(2):
        with pytest.raises(RecordLostError):
            read_back(storage, 1)
    assert [read_back(storage, i) for i in (0, 2)] == [payload(0), payload(2)]
    assert storage.used_bytes == 2 * SLOT
    storage.close()


def test_verify_drops_what_is_damaged(tier, memory):
    fill(tier, range(4))
    flip(memory, position_of(memory, 2) + 300)

    assert list(tier.verify()) == [None, None, record(2), None]
    assert list(tier.verify()) == [None, None, None]


def test_verifying_goes_on_while_records_come_and_go(tier, memory):
    fill(tier, range(4))
    flip(memory, position_of(memory, 2) + 300)
    steps = tier.verify()
    assert next(steps) is None
    tier.remove([key(1)])
    fill(tier, [5])

    assert list(steps) == [record(2), None]


def test_exchanged_slots_lose_both_records(tier, memory):
    fill(tier, range(4))
    first, second = position_of(memory, 1), position_of(memory, 2)
    a, b = os.pread(memory, SLOT, first), os.pread(memory, SLOT, second)
    os.pwrite(memory, b, first)
    os.pwrite(memory, a, second)

    assert list(tier.verify()) == [None, record(1), record(2), None]


def test_memory_of_another_identity_is_as_good_as_empty(memory):
    other = opened(memory, OTHER_IDENTITY)
    fill(other, range(NUM_SLOTS))
    other.close()
    storage = opened(memory)

    assert storage.used_bytes == 0
    assert bytes(payload(1))[:32] not in contents(memory)
    assert fill_up(storage) == NUM_SLOTS
    storage.close()


def test_no_memory_is_full_from_the_start():
    fd = create_memory(0)
    storage = opened(fd)
    with pytest.raises(TierFullError):
        fill(storage, [1])

    storage.close()
    os.close(fd)


def test_a_descriptor_that_is_none_is_unavailable(tmp_path):
    with (tmp_path / "f").open("wb") as file:
        file.truncate(SLOT)
        with pytest.raises(TierUnavailableError):
            opened(file.fileno())


@pytest.mark.parametrize("call", ["memfd_create", "posix_fallocate"])
@pytest.mark.parametrize(
    ("code", "kind"), [(errno.ENOMEM, TierUnavailableError), (errno.ENOSPC, TierFullError)]
)
def test_memory_that_cannot_be_had_is_refused(monkeypatch, call, code, kind):
    def refuse(*_):
        raise OSError(code, os.strerror(code))

    before = len(list(Path("/proc/self/fd").iterdir()))
    monkeypatch.setattr(os, call, refuse)
    with pytest.raises(kind, match=os.strerror(code)):
        create_memory(1)

    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_memory_is_taken_up_when_it_is_set_aside(memory):
    assert os.fstat(memory).st_blocks * 512 >= NUM_SLOTS * SLOT


def test_payloads_begin_at_multiples_of_256_bytes():
    for num_bytes in (1, 256, 368_640):
        identity = Identity("f", "bfloat16", 16, 1, num_bytes)

        assert slot_bytes(identity) % 256 == 0
        assert slot_bytes(identity) >= 256 + num_bytes


def test_another_thread_reads_a_block_whole_or_not_at_all(tier):
    """As the disk tier's thread does while this one's gives slots to others."""
    stop, has_read = threading.Event(), threading.Event()
    answers = Counter()

    def read_all():
        while not stop.is_set():
            for number in range(2 * NUM_SLOTS):
                try:
                    answers[read_back(tier, number) == payload(number)] += 1
                except RecordLostError:
                    answers["lost"] += 1
            if answers[True]:
                has_read.set()

    reader = threading.Thread(target=read_all)
    reader.start()
    fill(tier, [0])
    assert has_read.wait(30)
    for number in range(3000):
        tier.write(record(number % 16), payload(number % 16))
        tier.remove([key((number + 10) % 16)])
        tier.erase([key((number + 9) % 16)])
    stop.set()
    reader.join()

    assert not answers[False]
    assert not any(tier.verify())
