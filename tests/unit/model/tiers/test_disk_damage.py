"""What becomes of bytes that aren't what was written: never a wrong one, no loss of others."""

import os
import shutil

import pytest

from model.tiers.base import TierUnavailableError
from model.tiers.disk import DiskStorage
from model.tiers.records import HEADER_BYTES
from tests.support.small_disk import RECORD_BYTES, assert_lost, assert_whole, opened_disk, segment
from tests.support.tier_records import (
    BLOCK_BYTES,
    IDENTITY,
    OTHER_IDENTITY,
    file_bytes,
    is_anywhere,
    key,
    payload,
    record,
)

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


@pytest.fixture
def disk(tmp_path):
    storage = opened_disk(tmp_path)
    for number in range(10):
        storage.write(record(number), payload(number))
    yield storage
    storage.close()


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

    assert [r for r in disk.verify() if r is not None] == [record(0), record(2)]
    assert not any(disk.verify())
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
    other = opened_disk(tmp_path, OTHER_IDENTITY)
    other.write(record(50), payload(50))
    other.close()
    disk.close()
    shutil.copy(segment(other), segment(disk, 9))

    assert record(50) not in disk.open()
    assert not segment(disk, 9).exists()
    assert_whole(disk, *range(10))


def test_a_record_of_another_identity_is_lost(disk, tmp_path):
    other = opened_disk(tmp_path, OTHER_IDENTITY)
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
        opened_disk(tmp_path / "file")
    storage = DiskStorage(tmp_path, IDENTITY, 100_000)
    storage.path.write_text("")
    with pytest.raises(TierUnavailableError):
        storage.open()
