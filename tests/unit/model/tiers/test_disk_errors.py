"""What the system refuses: always a TierError of its kind, never half a record."""

import errno
import os
import resource

import pytest

from model.tiers.base import TierFullError, TierUnavailableError
from model.tiers.records import HEADER_BYTES
from tests.support.small_disk import RECORD_BYTES, assert_lost, assert_whole, opened_disk, segment
from tests.support.tier_records import (
    file_bytes,
    fill_up,
    is_anywhere,
    key,
    payload,
    read_back,
    record,
)


@pytest.fixture
def disk(tmp_path):
    storage = opened_disk(tmp_path)
    for number in range(10):
        storage.write(record(number), payload(number))
    yield storage
    storage.close()


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
    storage = opened_disk(tmp_path, quota=12 * RECORD_BYTES)
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
    # The lock file's note, which may fail, and the first segment's header.
    failing("pread", errno.EIO, times=2)
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
    for name in ("notes.txt", "x.kv", "7.kv", "holds"):
        (disk.path / name).write_text("mine")
    disk.open()

    assert (disk.path / "notes.txt").read_text() == (disk.path / "x.kv").read_text() == "mine"


def test_a_move_that_was_cut_short_leaves_one_record_that_is_removed_for_good(
    tmp_path, failing, monkeypatch
):
    storage = opened_disk(tmp_path, quota=12 * RECORD_BYTES)
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


@pytest.mark.parametrize("dead", [0, 3], ids=["the first is dead", "the last is dead"])
def test_compaction_of_a_segment_that_was_deleted_makes_room(tmp_path, dead):
    storage = opened_disk(tmp_path, quota=12 * RECORD_BYTES)
    fill_up(storage)
    storage.remove([key(dead)])
    segment(storage).unlink()
    storage.write(record(50), payload(50))

    assert_whole(storage, 4, 5, 50)
    assert_lost(storage, 0, 1, 2, 3)
    storage.close()


def test_a_file_in_the_way_of_a_new_segment_is_overwritten(disk):
    segment(disk, 4).write_bytes(b"x" * 100_000)
    for number in range(10, 14):
        disk.write(record(number), payload(number))
    disk.close()
    disk.open()

    assert_whole(disk, *range(14))
