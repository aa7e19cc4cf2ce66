"""Records that are erased from segment files: no byte of them is left."""

import pytest

from model.tiers import segment
from model.tiers.base import RecordLostError
from model.tiers.records import CHECKSUM_BYTES
from tests.support.small_disk import RECORD_BYTES, opened_disk
from tests.support.small_disk import segment as segment_path
from tests.support.tier_records import (
    BLOCK_BYTES,
    fill,
    is_anywhere,
    key,
    payload,
    read_back,
    record,
)


@pytest.fixture
def disk(tmp_path):
    storage = opened_disk(tmp_path)
    yield storage
    storage.close()


def test_erased_bytes_and_keys_are_in_no_file(disk, tmp_path):
    fill(disk, range(6))
    assert is_anywhere(tmp_path, payload(3)[:32])
    disk.erase([key(3), key(99)])

    assert not is_anywhere(tmp_path, payload(3)[:32])
    assert not is_anywhere(tmp_path, payload(3)[-32:])
    assert not is_anywhere(tmp_path, key(3))
    assert read_back(disk, 2) == payload(2)
    with pytest.raises(RecordLostError):
        read_back(disk, 3)


def test_the_room_of_what_is_erased_is_given_back_when_zeros_are_on_the_disk(disk, monkeypatch):
    fill(disk, range(3))
    done = []
    sync = segment.os.fdatasync
    monkeypatch.setattr(segment.os, "fdatasync", lambda fd: done.append("synced") or sync(fd))
    monkeypatch.setattr(segment, "punch", lambda _, *where: done.append(where))

    disk.erase([key(1)])

    (start, num_bytes) = done[-1]
    assert done[-2] == "synced"
    assert num_bytes == BLOCK_BYTES + CHECKSUM_BYTES
    raw = segment_path(disk).read_bytes()
    assert raw[start - RECORD_BYTES :][:BLOCK_BYTES] == payload(0)
    assert raw[start + RECORD_BYTES :][:BLOCK_BYTES] == payload(2)


def test_copies_that_were_removed_or_moved_before_are_erased_too(disk, tmp_path):
    fill(disk, range(6))
    disk.remove([key(1), key(2)])
    disk.write(record(1), payload(1))
    disk.erase([key(1), key(2)])

    assert not is_anywhere(tmp_path, payload(1)[:32])
    assert not is_anywhere(tmp_path, payload(2)[:32])
    assert not is_anywhere(tmp_path, key(1))


def test_what_was_removed_by_an_earlier_process_can_be_erased(tmp_path):
    first = opened_disk(tmp_path)
    fill(first, range(6))
    first.remove([key(1)])
    first.close()
    second = opened_disk(tmp_path)
    second.erase([key(1)])

    assert not is_anywhere(tmp_path, payload(1)[:32])
    second.close()


def test_an_erased_record_can_be_written_again(disk):
    fill(disk, [1])
    disk.erase([key(1)])
    fill(disk, [1])

    assert read_back(disk, 1) == payload(1)
