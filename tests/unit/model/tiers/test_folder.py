"""Folders of other identities: collected by age and by size, never one that is in use."""

import errno
import fcntl
import os
import shutil

import pytest

from model.tiers.base import Identity, TierUnavailableError
from model.tiers.disk import DiskStorage
from model.tiers.folder import (
    LOCK_NAME,
    LockedFolder,
    collect_foreign,
    folder_bytes,
    foreign_identities,
    identity_folder,
)
from tests.support.tier_records import BLOCK_BYTES, IDENTITY, payload, record

HUGE = 1 << 40
FOREIGN = [Identity(f"fingerprint-{i}", "bfloat16", 16, 1, BLOCK_BYTES) for i in range(3)]


@pytest.fixture
def folders(tmp_path):
    """Three foreign folders, last used at 1000, 2000 and 3000 seconds, and our own at 500."""
    paths = []
    for identity, used_at in zip([*FOREIGN, IDENTITY], [1000, 2000, 3000, 500], strict=True):
        storage = DiskStorage(tmp_path, identity, 100_000)
        storage.open()
        storage.write(record(1), payload(1))
        storage.close()
        os.utime(storage.path / LOCK_NAME, (used_at, used_at))
        paths.append(storage.path)
    return paths


def collect(root, *, quota_bytes=HUGE, max_age_s=HUGE, now=4000.0):
    steps = collect_foreign(root, IDENTITY, quota_bytes=quota_bytes, max_age_s=max_age_s, now=now)
    return [path for path in steps if path is not None]


def test_nothing_is_collected_that_is_young_and_within_the_quota(folders, tmp_path):
    assert collect(tmp_path) == []
    assert all(f.exists() for f in folders)


def test_what_was_not_used_for_long_is_collected(folders, tmp_path):
    assert collect(tmp_path, max_age_s=1500) == folders[:2]
    assert [f.exists() for f in folders] == [False, False, True, True]


def test_the_least_recently_used_goes_as_long_as_all_are_over_the_quota(folders, tmp_path):
    quota = folder_bytes(folders[0]) * 2

    assert collect(tmp_path, quota_bytes=quota) == folders[:2]
    assert folder_bytes(tmp_path) <= quota


def test_our_own_is_never_collected(folders, tmp_path):
    assert collect(tmp_path, quota_bytes=0) == folders[:3]
    assert folders[3].exists()


def test_one_that_a_process_has_locked_is_left_and_the_next_is_taken(folders, tmp_path):
    user = LockedFolder(tmp_path, FOREIGN[0])
    os.utime(folders[0] / LOCK_NAME, (1000, 1000))

    assert collect(tmp_path, quota_bytes=0) == folders[1:3]
    user.close()
    assert collect(tmp_path, quota_bytes=0) == [folders[0]]


def test_a_clock_that_jumped_back_collects_nothing_by_age(folders, tmp_path):
    assert collect(tmp_path, max_age_s=10, now=0.0) == []


def test_folders_that_are_no_tiers_are_left_alone(folders, tmp_path):
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "a.jpg").write_bytes(b"x")
    (tmp_path / LOCK_NAME).write_bytes(b"")
    collect(tmp_path, quota_bytes=0)

    assert (tmp_path / "photos" / "a.jpg").exists()


def test_a_root_that_is_not_there_has_nothing_to_collect(tmp_path):
    assert collect(tmp_path / "none") == []


def test_a_folder_that_cannot_be_removed_is_unavailable(folders, tmp_path, monkeypatch):
    def refuse(*_, **__):
        raise OSError(errno.EROFS, "read-only")

    monkeypatch.setattr(os, "unlink", refuse)
    with pytest.raises(TierUnavailableError):
        collect(tmp_path, quota_bytes=0)
    assert [f.exists() for f in folders] == [True] * 4


def test_a_collection_that_was_cut_short_is_gone_on_with(folders, tmp_path, monkeypatch):
    def refuse(*_, **__):
        raise OSError(errno.EIO, "input/output error")

    monkeypatch.setattr(shutil, "rmtree", refuse)
    with pytest.raises(TierUnavailableError):
        collect(tmp_path, quota_bytes=0)
    monkeypatch.undo()

    assert collect(tmp_path, quota_bytes=0) == folders[:3]
    assert [f.exists() for f in folders] == [False, False, False, True]


def test_using_a_folder_makes_it_recently_used(folders, tmp_path):
    storage = DiskStorage(tmp_path, FOREIGN[0], 100_000)
    storage.open()
    storage.close()

    assert (folders[0] / LOCK_NAME).stat().st_mtime > 3000


def test_a_folder_that_is_removed_while_it_is_being_opened_is_made_again(tmp_path, monkeypatch):
    """The lock was had on a file that is in no folder any more."""
    path = identity_folder(tmp_path, IDENTITY)
    real, removed = fcntl.flock, []

    def removed_first(fd, how):
        if not removed:
            removed.append(True)
            (path / LOCK_NAME).unlink()
            path.rmdir()
        real(fd, how)

    monkeypatch.setattr(fcntl, "flock", removed_first)
    folder = LockedFolder(tmp_path, IDENTITY)

    assert folder.names() == [LOCK_NAME]
    with pytest.raises(TierUnavailableError, match="another process uses"):
        LockedFolder(tmp_path, IDENTITY)
    folder.close()


def test_a_folder_whose_mode_was_too_wide_is_closed_to_others(tmp_path):
    path = identity_folder(tmp_path, IDENTITY)
    path.mkdir(mode=0o755)
    LockedFolder(tmp_path, IDENTITY).close()

    assert path.stat().st_mode & 0o777 == 0o700


def test_folders_tell_whose_they_are_so_that_their_holds_can_be_purged(folders, tmp_path):
    assert foreign_identities(tmp_path, IDENTITY) == FOREIGN
    assert foreign_identities(tmp_path / "none", IDENTITY) == []


def test_a_folder_that_does_not_tell_whose_it_is_is_collected_all_the_same(folders, tmp_path):
    (folders[0] / LOCK_NAME).write_bytes(b"")
    (folders[1] / LOCK_NAME).write_bytes((folders[2] / LOCK_NAME).read_bytes())

    assert foreign_identities(tmp_path, IDENTITY) == FOREIGN[2:]
    assert set(collect(tmp_path, quota_bytes=0)) == set(folders[:3])
