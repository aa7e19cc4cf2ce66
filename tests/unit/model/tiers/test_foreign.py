"""What another model left behind: who is named in it, and that a deletion reaches it."""

import os

import pytest

from model.tiers.base import Hold, Identity
from model.tiers.disk import DiskStorage
from model.tiers.folder import LOCK_NAME, LockedFolder, identity_folder
from model.tiers.foreign import MAX_AGE_S, ForeignFolders
from model.tiers.holds import HoldLog
from tests.support.tier_records import BLOCK_BYTES, IDENTITY, payload, record

HUGE = 1 << 40
OTHER = Identity("another-model", "bfloat16", 16, 1, BLOCK_BYTES)
LAST_USED = 5000.0


def hold(conversation: str, number: int) -> Hold:
    return Hold(
        conversation_id=conversation,
        turn_id=f"resp_{number}",
        tail=record(number).key,
        num_tokens=16,
        used_at=LAST_USED,
    )


@pytest.fixture
def other(tmp_path):
    """The folder of another model, with a block each of Ann's and Bob's."""
    storage, holds = DiskStorage(tmp_path, OTHER, 100_000), HoldLog(tmp_path, OTHER)
    storage.open()
    holds.open()
    for number, name in enumerate(("conv_ann", "conv_bob"), start=1):
        storage.write(record(number), payload(number))
        holds.put(hold(name, number))
    holds.close()
    storage.close()
    path = identity_folder(tmp_path, OTHER)
    os.utime(path / LOCK_NAME, (LAST_USED, LAST_USED))
    return path


def everything(folder) -> bytes:
    return b"".join(file.read_bytes() for file in sorted(folder.rglob("*")) if file.is_file())


def release(foreign: ForeignFolders) -> None:
    for _ in foreign.release("conv_ann"):
        pass


def test_whoever_a_foreign_folder_names_is_known(tmp_path, other):
    foreign = ForeignFolders(tmp_path, IDENTITY, HUGE)

    assert list(foreign.conversations()) == [{"conv_ann", "conv_bob"}]
    assert list(ForeignFolders(tmp_path, OTHER, HUGE).conversations()) == []


def test_a_deletion_leaves_neither_bytes_nor_name_and_all_else(tmp_path, other):
    foreign = ForeignFolders(tmp_path, IDENTITY, HUGE)

    release(foreign)

    left = everything(other)
    assert b"conv_ann" not in left
    assert bytes(payload(1)) not in left
    assert b"conv_bob" in left
    assert bytes(payload(2)) in left
    assert list(foreign.conversations()) == [{"conv_bob"}]


def test_being_cleaned_makes_a_folder_no_younger(tmp_path, other):
    foreign = ForeignFolders(tmp_path, IDENTITY, HUGE)
    release(foreign)

    assert list(foreign.collect(LAST_USED + MAX_AGE_S - 1)) == []
    # A file a step, then the folder.
    assert list(foreign.collect(LAST_USED + MAX_AGE_S + 1)) == [None, None, other]
    assert not other.exists()


def test_a_folder_whose_records_cant_be_told_apart_goes_as_a_whole(tmp_path, other):
    for file in other.glob("*.kv"):
        file.unlink()

    release(ForeignFolders(tmp_path, IDENTITY, HUGE))

    assert not other.exists()


def test_a_folder_that_another_process_uses_is_left_to_it(tmp_path, other):
    folder = LockedFolder(tmp_path, OTHER)

    release(ForeignFolders(tmp_path, IDENTITY, HUGE))

    assert b"conv_ann" in everything(other)
    folder.close()
