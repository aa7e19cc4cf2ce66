"""A small disk tier with ten records, and what a test asks of them."""

import pytest

from model.tiers.base import RecordLostError
from model.tiers.disk import DiskStorage
from model.tiers.records import HEADER_BYTES
from tests.support.tier_records import BLOCK_BYTES, IDENTITY, payload, read_back

RECORD_BYTES = HEADER_BYTES + BLOCK_BYTES + 16


def opened_disk(folder, identity=IDENTITY, quota=100_000) -> DiskStorage:
    storage = DiskStorage(folder, identity, quota, segment_bytes=4 * RECORD_BYTES)
    storage.open()
    return storage


def segment(disk, number=1):
    return disk.path / f"{number:08d}.kv"


def assert_lost(disk, *numbers):
    for number in numbers:
        for _ in range(2):
            with pytest.raises(RecordLostError):
                read_back(disk, number)


def assert_whole(disk, *numbers):
    assert [read_back(disk, i) for i in numbers] == [payload(i) for i in numbers]
