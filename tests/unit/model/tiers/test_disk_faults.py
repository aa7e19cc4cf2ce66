"""What the world does to a disk tier: never a wrong byte, no half record, always a TierError."""

import errno
import os
import resource
import shutil

import pytest

from model.tiers.base import RecordLostError, TierFullError, TierUnavailableError
from model.tiers.disk import DiskStorage
from model.tiers.records import HEADER_BYTES
from tests.support.tier_records import (
    BLOCK_BYTES,
    IDENTITY,
    OTHER_IDENTITY,
    file_bytes,
    fill_up,
    is_anywhere,
    key,
    payload,
    read_back,
    record,
)

RECORD_BYTES = HEADER_BYTES + BLOCK_BYTES + 16
FIELDS = {
    "state": 0,
    "magic": 1,
    "identity": 4,
    "key": 20,
    "parent": 52,
    "position": 84,
    "num_tokens": 88,
    "length": 92,
    "has_parent": 96,
    "sealed": 97,
    "padding": 98,
    "nonce": 100,
    "header checksum": 112,
    "payload's first": HEADER_BYTES,
    "payload's last": HEADER_BYTES + BLOCK_BYTES - 1,
    "checksum": RECORD_BYTES - 1,
}


def opened(folder, identity=IDENTITY, quota=100_000) -> DiskStorage:
    storage = DiskStorage(folder, identity, quota, segment_bytes=4 * RECORD_BYTES)
    storage.open()
    return storage


@pytest.fixture
def disk(tmp_path):
    storage = opened(tmp_path)
    for number in range(10):
        storage.write(record(number), payload(number))
    yield storage
    storage.close()


def segment(disk, number=1):
    return disk.path / f"{number:08d}.kv"


def start_of(file, slot):
    """Where a slot begins, without knowing how long the segment's header is."""
    return file.stat().st_size - 4 * RECORD_BYTES + slot * RECORD_BYTES


def flip(file, offset):
    with file.open("r+b") as f:
        f.seek(offset)
        byte = f.read(1)[0]
        f.seek(offset)
        f.write(bytes([byte ^ 0x10]))


def swap(first, second, num_bytes, skip=0):
    """Exchange bytes of two places `(file, offset)`."""
    both = []
    for file, offset in (first, second):
        with file.open("rb") as f:
            f.seek(offset + skip)
            both.append(f.read(num_bytes))
    for (file, offset), data in zip((first, second), reversed(both), strict=True):
        with file.open("r+b") as f:
            f.seek(offset + skip)
            f.write(data)


def assert_lost(disk, *numbers):
    for number in numbers:
        for _ in range(2):
            with pytest.raises(RecordLostError):
                read_back(disk, number)


def assert_whole(disk, *numbers):
    assert [read_back(disk, i) for i in numbers] == [payload(i) for i in numbers]


@pytest.mark.parametrize("offset", FIELDS.values(), ids=FIELDS)
def test_a_flipped_bit_loses_the_record_and_no_other(disk, offset):
    flip(segment(disk), start_of(segment(disk), 1) + offset)

    assert_lost(disk, 1)
    assert_whole(disk, 0, 2, 3)


@pytest.mark.parametrize("offset", FIELDS.values(), ids=FIELDS)
def test_a_bit_flipped_while_nobody_looked_loses_the_record_and_no_other(disk, offset, tmp_path):
    disk.close()
    flip(segment(disk), start_of(segment(disk), 1) + offset)
    disk.open()

    assert_lost(disk, 1)
    assert_whole(disk, 0, 2, 3)


def test_a_damaged_record_can_be_written_anew(disk):
    flip(segment(disk), start_of(segment(disk), 1) + HEADER_BYTES)
    assert_lost(disk, 1)
    disk.write(record(1), payload(1))

    assert_whole(disk, 1)


def test_what_is_left_of_a_damaged_record_is_in_no_file(disk, tmp_path):
    flip(segment(disk), start_of(segment(disk), 1) + FIELDS["key"])
    disk.close()
    disk.open()

    assert not is_anywhere(tmp_path, payload(1)[:32])


def test_verify_finds_and_drops_every_damaged_record(disk):
    for slot in (0, 2):
        flip(segment(disk), start_of(segment(disk), slot) + HEADER_BYTES + 7)

    assert disk.verify() == [record(0), record(2)]
    assert disk.verify() == []
    assert_whole(disk, 1, 3)


@pytest.mark.parametrize(
    ("num_bytes", "skip"),
    [(RECORD_BYTES, 0), (RECORD_BYTES - HEADER_BYTES, HEADER_BYTES), (BLOCK_BYTES, HEADER_BYTES)],
    ids=["records", "payloads with checksums", "payloads"],
)
def test_exchanged_bytes_lose_both_records(disk, num_bytes, skip):
    file, other = segment(disk), segment(disk, 2)
    swap((file, start_of(file, 1)), (other, start_of(other, 2)), num_bytes, skip)

    assert_lost(disk, 1, 6)
    assert_whole(disk, 0, 2, 3, 4, 5, 7)


def test_exchanged_segments_lose_all_their_records(disk):
    a, b = segment(disk).read_bytes(), segment(disk, 2).read_bytes()
    segment(disk).write_bytes(b)
    segment(disk, 2).write_bytes(a)

    assert_lost(disk, *range(8))
    assert_whole(disk, 8, 9)


def test_a_segment_of_another_identity_is_not_taken_up(disk, tmp_path):
    other = opened(tmp_path, OTHER_IDENTITY)
    other.write(record(50), payload(50))
    other.close()
    disk.close()
    shutil.copy(segment(other), segment(disk, 9))

    assert record(50) not in disk.open()
    assert not segment(disk, 9).exists()
    assert_whole(disk, *range(10))


def test_a_record_of_another_identity_is_lost(disk, tmp_path):
    other = opened(tmp_path, OTHER_IDENTITY)
    for number in range(4):
        other.write(record(number), payload(number + 100))
    place = segment(disk), start_of(segment(disk), 1)
    swap(place, (segment(other), start_of(segment(other), 1)), RECORD_BYTES)

    assert_lost(disk, 1)
    assert_whole(disk, 0, 2)
    other.close()


@pytest.mark.parametrize("slot", [1, 2])
def test_a_truncated_segment_loses_what_was_cut_off(disk, slot):
    os.truncate(segment(disk), start_of(segment(disk), slot) + HEADER_BYTES + 10)

    assert_lost(disk, *range(slot, 4))
    assert_whole(disk, *range(slot))


@pytest.mark.parametrize("num_bytes", [1, 50, HEADER_BYTES, HEADER_BYTES + 10, RECORD_BYTES - 1])
def test_a_torn_last_record_is_cut_off_at_the_next_start(disk, num_bytes):
    disk.close()
    last = segment(disk, 3)
    whole = last.stat().st_size
    os.truncate(last, whole - RECORD_BYTES + num_bytes)
    found = disk.open()

    assert len(found) == 9
    assert last.stat().st_size == whole - RECORD_BYTES
    disk.write(record(9), payload(9))
    assert_whole(disk, *range(10))


def test_a_segment_deleted_while_in_use_loses_its_records_and_no_others(disk, tmp_path):
    segment(disk).unlink()

    assert_lost(disk, *range(4))
    assert_whole(disk, *range(4, 10))
    assert disk.used_bytes == file_bytes(tmp_path)


def test_writing_goes_on_when_the_newest_segment_was_deleted(disk):
    segment(disk, 3).unlink()
    disk.write(record(20), payload(20))

    assert_lost(disk, 8, 9)
    assert_whole(disk, 0, 20)


def test_records_of_a_deleted_segment_can_be_removed_and_erased(disk, tmp_path):
    segment(disk).unlink()
    disk.remove([key(0)])
    disk.erase([key(1), key(2)])

    assert_lost(disk, *range(4))
    assert disk.used_bytes == file_bytes(tmp_path)


def test_a_folder_deleted_while_in_use_is_unavailable_for_writing(disk):
    shutil.rmtree(disk.path)

    assert_lost(disk, *range(10))
    with pytest.raises(TierUnavailableError):
        disk.write(record(20), payload(20))


def test_a_folder_that_is_a_file_is_unavailable(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(TierUnavailableError):
        opened(tmp_path / "file")
    storage = DiskStorage(tmp_path, IDENTITY, 100_000)
    storage.path.write_text("")
    with pytest.raises(TierUnavailableError):
        storage.open()


class Limit:
    """A largest size for any file of this process: the system itself stops a write midway."""

    def __init__(self, num_bytes):
        self.limits = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (num_bytes, self.limits[1]))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        resource.setrlimit(resource.RLIMIT_FSIZE, self.limits)


@pytest.mark.parametrize("num_bytes", [0, 60, HEADER_BYTES + 100, RECORD_BYTES - 1])
def test_a_write_the_system_stops_midway_leaves_nothing(disk, tmp_path, num_bytes):
    size = segment(disk, 3).stat().st_size
    with Limit(size + num_bytes), pytest.raises(TierFullError):
        disk.write(record(20), payload(20))

    assert segment(disk, 3).stat().st_size == size
    assert disk.used_bytes == file_bytes(tmp_path)
    assert not is_anywhere(tmp_path, payload(20)[:32])
    assert_lost(disk, 20)
    disk.write(record(20), payload(20))
    assert_whole(disk, 0, 9, 20)


def test_a_segment_that_cannot_be_begun_leaves_no_file(disk, tmp_path):
    for number in (10, 11):
        disk.write(record(number), payload(number))
    with Limit(10), pytest.raises(TierFullError):
        disk.write(record(12), payload(12))

    assert not segment(disk, 4).exists()
    disk.write(record(12), payload(12))
    assert_whole(disk, 12)


@pytest.fixture
def failing(monkeypatch):
    """Make a call of the system fail, for segment files only when it opens."""

    def fail(name, code, times=1_000_000):
        real = getattr(os, name)
        left = [times]

        def call(*args, **kwargs):
            is_meant = name != "open" or str(args[0]).endswith(".kv")
            if is_meant and left[0]:
                left[0] -= 1
                raise OSError(code, os.strerror(code))
            return real(*args, **kwargs)

        monkeypatch.setattr(os, name, call)

    return fail


CODES = [errno.EIO, errno.EACCES, errno.EROFS, errno.ESTALE]


@pytest.mark.parametrize("code", CODES, ids=errno.errorcode.get)
@pytest.mark.parametrize("call", ["open", "preadv"])
def test_a_read_error_is_unavailable_and_forgets_nothing(disk, failing, monkeypatch, call, code):
    failing(call, code)
    with pytest.raises(TierUnavailableError, match=os.strerror(code)):
        read_back(disk, 1)
    monkeypatch.undo()

    assert_whole(disk, *range(10))


@pytest.mark.parametrize("code", [*CODES, errno.ENOSPC, errno.EDQUOT], ids=errno.errorcode.get)
@pytest.mark.parametrize("call", ["open", "pwritev"])
def test_a_write_error_has_its_kind_and_stores_nothing(disk, failing, monkeypatch, call, code):
    kind = TierFullError if code in (errno.ENOSPC, errno.EDQUOT) else TierUnavailableError
    failing(call, code)
    with pytest.raises(kind, match=os.strerror(code)):
        disk.write(record(20), payload(20))
    monkeypatch.undo()

    assert_lost(disk, 20)
    assert_whole(disk, *range(10))


def test_a_full_file_system_is_helped_by_cutting_off_what_is_dead(disk, failing, monkeypatch):
    disk.remove([key(2), key(3), key(9)])
    failing("pwritev", errno.ENOSPC, times=1)
    disk.write(record(20), payload(20))
    monkeypatch.undo()

    assert segment(disk).stat().st_size < segment(disk, 2).stat().st_size
    assert_whole(disk, 0, 1, 4, 8, 20)


def test_an_erasure_that_failed_is_said_and_done_at_the_next_try(
    disk, failing, monkeypatch, tmp_path
):
    failing("fdatasync", errno.EIO)
    with pytest.raises(TierUnavailableError):
        disk.erase([key(1)])
    monkeypatch.undo()
    assert_lost(disk, 1)
    disk.erase([key(1)])

    assert not is_anywhere(tmp_path, payload(1)[:32])
    assert_whole(disk, 0, 2)


def test_a_record_that_cannot_be_read_does_not_stop_compaction(tmp_path, failing, monkeypatch):
    storage = opened(tmp_path, quota=12 * RECORD_BYTES)
    fill_up(storage)
    storage.remove([key(0)])
    failing("preadv", errno.EIO, times=1)
    storage.write(record(50), payload(50))
    monkeypatch.undo()

    assert_whole(storage, 1, 2, 50)
    assert_lost(storage, 3)
    storage.close()


def test_an_open_that_fails_lets_go_of_the_folder(disk, failing, monkeypatch):
    disk.close()
    failing("open", errno.EACCES)
    with pytest.raises(TierUnavailableError):
        disk.open()
    monkeypatch.undo()

    assert len(disk.open()) == 10


def test_a_segment_that_cannot_be_read_at_the_start_is_dropped(disk, failing, monkeypatch):
    disk.close()
    failing("pread", errno.EIO, times=1)
    found = disk.open()
    monkeypatch.undo()

    assert len(found) == 6
    assert_whole(disk, *range(4, 10))


def test_a_close_that_fails_lets_go_of_the_folder(disk, failing, monkeypatch):
    failing("fdatasync", errno.EIO)
    with pytest.raises(TierUnavailableError):
        disk.close()
    monkeypatch.undo()

    assert len(disk.open()) == 10


def test_files_that_are_none_of_its_own_are_left_alone(disk):
    disk.close()
    for name in ("notes.txt", "x.kv", "holds"):
        (disk.path / name).write_text("mine")
    disk.open()

    assert (disk.path / "notes.txt").read_text() == (disk.path / "x.kv").read_text() == "mine"


def test_a_move_that_was_cut_short_leaves_one_record_that_is_removed_for_good(
    tmp_path, failing, monkeypatch
):
    storage = opened(tmp_path, quota=12 * RECORD_BYTES)
    last = fill_up(storage) - 1
    storage.remove([key(0)])
    failing("ftruncate", errno.EIO)
    with pytest.raises(TierUnavailableError):
        storage.write(record(50), payload(50))
    monkeypatch.undo()
    storage.close()

    moved = [n for n in range(last + 1) if num_copies(tmp_path, payload(n)) == 2]
    assert len(moved) == 1
    assert sorted(r.position for r in storage.open()) == list(range(1, last + 1))
    storage.remove([key(moved[0])])
    storage.close()
    assert record(moved[0]) not in storage.open()
    storage.close()


def num_copies(folder, data):
    return sum(f.read_bytes().count(bytes(data)) for f in folder.rglob("*.kv"))
