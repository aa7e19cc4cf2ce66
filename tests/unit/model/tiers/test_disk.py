"""Blocks in segment files: kept, found again, given up, erased, within a quota."""

import errno
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from model.tiers import holes
from model.tiers.base import RecordLostError, Storage, TierUnavailableError
from model.tiers.cipher import Cipher
from model.tiers.disk import DiskStorage
from tests.support.tier_records import (
    BLOCK_BYTES,
    IDENTITY,
    OTHER_IDENTITY,
    chain,
    file_bytes,
    fill,
    fill_up,
    is_anywhere,
    key,
    payload,
    read_back,
    record,
)

ROOT = Path(__file__).parents[4]
QUOTA = 100_000
RECORD_BYTES = DiskStorage(Path("unused"), IDENTITY, 0).record_bytes()
SEGMENT = 4 * RECORD_BYTES


def opened(folder, identity=IDENTITY, quota=QUOTA, cipher=None) -> DiskStorage:
    storage = DiskStorage(folder, identity, quota, segment_bytes=SEGMENT, cipher=cipher)
    storage.open()
    return storage


@pytest.fixture
def disk(tmp_path):
    storage = opened(tmp_path)
    yield storage
    storage.close()


def segment_files(folder):
    return sorted(folder.rglob("*.kv"))


def test_it_is_a_storage(disk):
    storage: Storage = disk

    assert storage.name == "disk"
    assert storage.quota_bytes == QUOTA


def test_what_was_written_is_read(disk):
    fill(disk, range(9))

    assert [read_back(disk, i) for i in range(9)] == [bytes(payload(i)) for i in range(9)]


def test_buffers_of_other_items_than_bytes_are_taken_too(disk):
    disk.write(record(1), payload(1).cast("i"))
    into = memoryview(bytearray(BLOCK_BYTES)).cast("i")
    disk.read(record(1), into)

    assert into.tobytes() == payload(1)


def test_what_is_there_already_stays_as_it_is(disk):
    disk.write(record(1), payload(1))
    used = disk.used_bytes
    disk.write(record(1), payload(2))

    assert read_back(disk, 1) == payload(1)
    assert disk.used_bytes == used


def test_a_record_that_was_never_written_is_lost(disk):
    with pytest.raises(RecordLostError):
        read_back(disk, 1)


def test_a_record_asked_for_as_another_is_lost(disk):
    fill(disk, [1])

    with pytest.raises(RecordLostError):
        read_back(disk, 1, parent=0)
    with pytest.raises(RecordLostError):
        read_back(disk, 1)


def test_the_next_process_finds_the_records_as_they_were(tmp_path):
    first = opened(tmp_path)
    for r in chain(10):
        first.write(r, payload(r.position))
    first.close()
    second = DiskStorage(tmp_path, IDENTITY, QUOTA, segment_bytes=SEGMENT)

    assert second.open() == chain(10)
    assert [read_back(second, i, i - 1) for i in range(1, 10)] == [payload(i) for i in range(1, 10)]
    second.close()


def test_used_bytes_are_the_files_bytes(disk, tmp_path):
    fill(disk, range(7))
    disk.remove([key(1)])

    assert disk.used_bytes == file_bytes(tmp_path)
    assert disk.live_bytes == 6 * disk.record_bytes()


def test_when_it_is_full_it_says_so_and_keeps_what_it_has(disk, tmp_path):
    num = fill_up(disk)

    assert QUOTA - 4 * RECORD_BYTES < file_bytes(tmp_path) <= QUOTA
    assert [read_back(disk, i) for i in range(num)] == [payload(i) for i in range(num)]


def test_a_removed_record_makes_room_for_a_new_one_wherever_it_was(disk, tmp_path):
    num = fill_up(disk)
    for i in range(num):
        disk.remove([key(i)])
        disk.write(record(1000 + i), payload(1000 + i))
        assert file_bytes(tmp_path) <= QUOTA

    assert [read_back(disk, 1000 + i) for i in range(num)] == [
        payload(1000 + i) for i in range(num)
    ]


def test_a_removed_record_is_gone_and_stays_gone(tmp_path):
    first = opened(tmp_path)
    fill(first, range(6))
    first.remove([key(2), key(99), key(2)])
    with pytest.raises(RecordLostError):
        read_back(first, 2)
    first.close()

    second = DiskStorage(tmp_path, IDENTITY, QUOTA)
    assert {r.position for r in second.open()} == {0, 1, 3, 4, 5}
    second.close()


def test_a_segment_without_live_records_is_deleted(disk, tmp_path):
    fill(disk, range(8))
    disk.remove([key(i) for i in range(4)])

    assert [f.name for f in segment_files(tmp_path)] == ["00000002.kv"]


@pytest.mark.parametrize("is_supported", [True, False], ids=["holes", "no holes"])
def test_a_removed_record_s_bytes_are_in_no_file(tmp_path, monkeypatch, is_supported):
    if not is_supported:
        monkeypatch.setattr(holes, "_fallocate", lambda: lambda *_: errno.EOPNOTSUPP)
    disk = opened(tmp_path)
    fill(disk, range(6))
    disk.remove([key(1), key(4)])

    for number in (1, 4):
        assert not any(is_anywhere(tmp_path, payload(number)[i:][:32]) for i in (0, 500, 968))
    assert [read_back(disk, i) for i in (0, 2, 3, 5)] == [payload(i) for i in (0, 2, 3, 5)]
    assert disk.used_bytes == file_bytes(tmp_path)
    disk.close()
    again = DiskStorage(tmp_path, IDENTITY, QUOTA, segment_bytes=SEGMENT)
    assert {r.position for r in again.open()} == {0, 2, 3, 5}
    again.close()


def test_bytes_that_the_system_refuses_to_give_up_are_an_error(disk, monkeypatch):
    fill(disk, [1, 2])
    monkeypatch.setattr(holes, "_fallocate", lambda: lambda *_: errno.EIO)

    with pytest.raises(TierUnavailableError):
        disk.remove([key(1)])


def test_records_that_follow_each_other_are_read_in_one_go(disk):
    fill(disk, range(9))
    order = [2, 3, 7, 8, 0, 4]
    into = [memoryview(bytearray(BLOCK_BYTES)) for _ in order]

    assert sum(1 for _ in disk.read_all([record(n) for n in order], into)) == 6
    assert into == [payload(n) for n in order]


@pytest.mark.parametrize("lost", [0, 3, 5])
def test_what_comes_before_a_record_that_is_lost_is_read(disk, lost):
    fill(disk, [n for n in range(6) if n != lost])
    into = [memoryview(bytearray(BLOCK_BYTES)) for _ in range(6)]
    steps = disk.read_all([record(n) for n in range(6)], into)

    for number in range(lost):
        next(steps)
        assert into[number] == payload(number)
    with pytest.raises(RecordLostError):
        next(steps)


def test_a_segment_that_goes_while_records_are_read_loses_its_own(disk, tmp_path):
    fill(disk, range(6))
    into = [memoryview(bytearray(BLOCK_BYTES)) for _ in range(6)]
    segment_files(tmp_path)[1].unlink()
    steps = disk.read_all([record(n) for n in range(6)], into)

    assert [next(steps) for _ in range(4)] == [None] * 4
    with pytest.raises(RecordLostError, match="a segment is gone"):
        next(steps)
    assert disk.live_bytes == 4 * disk.record_bytes()


def test_verifying_goes_on_while_records_come_and_go(disk):
    fill(disk, range(4))
    steps = disk.verify()
    assert next(steps) is None
    disk.erase([key(1)])
    fill(disk, [5])

    assert list(steps) == [None, None]


def test_a_smaller_quota_is_kept_from_the_start(tmp_path):
    first = opened(tmp_path)
    num = fill_up(first)
    first.close()
    second = opened(tmp_path, quota=QUOTA // 2)

    assert file_bytes(tmp_path) <= QUOTA // 2
    assert second.live_bytes > QUOTA // 4
    assert read_back(second, num - 1) == payload(num - 1)
    second.close()


def test_another_identity_finds_nothing_and_keeps_apart(tmp_path, disk):
    fill(disk, [1])
    other = opened(tmp_path, OTHER_IDENTITY)
    with pytest.raises(RecordLostError):
        read_back(other, 1)
    other.write(record(1), payload(2))
    other.close()

    assert read_back(disk, 1) == payload(1)


def test_only_the_user_gets_in(disk, tmp_path):
    fill(disk, range(6))

    modes = {stat.S_IMODE(p.stat().st_mode) for p in disk.path.rglob("*")}
    assert modes == {0o600}
    assert stat.S_IMODE(disk.path.stat().st_mode) == 0o700


def test_a_second_storage_on_the_folder_is_refused_by_its_name(disk, tmp_path):
    with pytest.raises(TierUnavailableError, match=f"{disk.path}: another process"):
        opened(tmp_path)


OTHER_PROCESS = """
import sys
from pathlib import Path
from model.tiers.disk import DiskStorage
from tests.support.tier_records import IDENTITY, payload, record

storage = DiskStorage(Path(sys.argv[1]), IDENTITY, 100_000)
storage.open()
for number in range(6):
    storage.write(record(number), payload(number))
print("open", flush=True)
sys.stdin.read()
"""


def test_another_process_keeps_its_folder_until_it_is_killed_and_its_records_remain(tmp_path):
    command = [sys.executable, "-c", OTHER_PROCESS, str(tmp_path)]
    process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    with process:
        assert process.stdout.readline() == b"open\n"
        with pytest.raises(TierUnavailableError, match="another process uses this folder"):
            opened(tmp_path)
        process.kill()
        process.wait()
    storage = opened(tmp_path)

    assert [read_back(storage, i) for i in range(6)] == [payload(i) for i in range(6)]
    storage.close()


def test_closing_twice_is_harmless(tmp_path):
    storage = opened(tmp_path)
    storage.close()
    storage.close()

    assert storage.used_bytes == storage.live_bytes == 0


def test_a_sealed_record_is_read_back_and_its_bytes_are_in_no_file(tmp_path):
    cipher = Cipher(bytes(32))
    storage = opened(tmp_path, cipher=cipher)
    fill(storage, range(6))
    storage.close()
    again = opened(tmp_path, cipher=cipher)

    assert [read_back(again, i) for i in range(6)] == [payload(i) for i in range(6)]
    assert not is_anywhere(tmp_path, payload(1)[:16])
    again.close()


@pytest.mark.parametrize("other", [Cipher(b"k" * 32), None], ids=["another key", "no key"])
def test_with_another_key_the_records_are_lost_and_room_is_free(tmp_path, other):
    first = opened(tmp_path, cipher=Cipher(bytes(32)))
    fill(first, range(6))
    first.close()
    second = opened(tmp_path, cipher=other)

    assert second.used_bytes == 0
    with pytest.raises(RecordLostError):
        read_back(second, 1)
    second.close()


def test_another_thread_may_ask_how_much_is_used(tmp_path):
    """As the engine's thread does for its statistics while segments come and go."""
    storage = opened(tmp_path, quota=60 * RECORD_BYTES)
    stop, has_asked, asked = threading.Event(), threading.Event(), []

    def ask():
        while not stop.is_set():
            asked.append(max(storage.used_bytes, storage.live_bytes))
            if asked[-1]:
                has_asked.set()

    asking = threading.Thread(target=ask)
    asking.start()
    storage.write(record(0), payload(0))
    assert has_asked.wait(30)
    for number in range(1, 300):
        storage.write(record(number), payload(number))
        storage.remove([key(number - 20)])
    stop.set()
    asking.join()
    storage.close()

    assert max(asked) <= 60 * RECORD_BYTES
