"""The list of holds: the latest counts, half lines don't, what is dropped is forgotten."""

import errno
import os
import stat

import pytest

from model.tiers.base import Hold, TierFullError, TierUnavailableError
from model.tiers.folder import identity_folder
from model.tiers.holds import HoldLog
from model.tiers.records import checksum
from tests.support.tier_records import IDENTITY, OTHER_IDENTITY, is_anywhere, key


def hold(conversation, turn="t1", number=1, used_at=5.0):
    return Hold(f"conv_{conversation}", turn, key(number), 48, used_at, number)


def opened(folder):
    log = HoldLog(folder, IDENTITY)
    log.open()
    return log


def reopened(log, folder):
    log.close()
    again = HoldLog(folder, IDENTITY)
    holds = again.open()
    again.close()
    return holds


@pytest.fixture
def file(tmp_path):
    return identity_folder(tmp_path, IDENTITY) / "holds"


@pytest.fixture
def log(tmp_path):
    log = opened(tmp_path)
    yield log
    log.close()


def test_holds_are_found_by_the_next_process(log, tmp_path):
    holds = [hold("a"), hold("a", "t2"), hold("b")]
    for one in holds:
        log.put(one)

    assert reopened(log, tmp_path) == holds


def test_it_does_not_take_an_orderly_end(log, tmp_path):
    log.put(hold("a"))

    assert HoldLog(tmp_path, IDENTITY).open() == [hold("a")]


def test_the_latest_of_a_turn_counts(log, tmp_path):
    log.put(hold("a", number=1))
    log.put(hold("a", number=2))

    assert log.holds() == [hold("a", number=2)]
    assert reopened(log, tmp_path) == [hold("a", number=2)]


def test_a_dropped_turn_stays_dropped_and_leaves_the_others(log, tmp_path):
    log.put(hold("a"))
    log.put(hold("a", "t2"))
    log.drop_turn("conv_a", "t1")
    log.drop_turn("conv_a", "t9")

    assert log.holds() == [hold("a", "t2")]
    assert reopened(log, tmp_path) == [hold("a", "t2")]


def test_a_dropped_turn_can_be_held_again(log, tmp_path):
    log.put(hold("a"))
    log.drop_turn("conv_a", "t1")
    log.put(hold("a", number=3))

    assert reopened(log, tmp_path) == [hold("a", number=3)]


def test_a_dropped_conversation_is_named_in_no_file(log, tmp_path):
    for one in (hold("a"), hold("a", "t2"), hold("b")):
        log.put(one)
    log.drop("conv_a")

    assert not is_anywhere(tmp_path, b"conv_a")
    assert log.holds() == [hold("b")]
    assert reopened(log, tmp_path) == [hold("b")]


def test_a_conversation_whose_turns_were_dropped_before_is_named_no_more_either(log, tmp_path):
    log.put(hold("a"))
    log.drop_turn("conv_a", "t1")
    assert is_anywhere(tmp_path, b"conv_a")
    log.drop("conv_a")

    assert not is_anywhere(tmp_path, b"conv_a")


def test_dropping_who_holds_nothing_writes_nothing(log, file):
    log.put(hold("a"))
    before = file.stat()
    log.drop("conv_z")

    assert file.stat().st_ino == before.st_ino
    assert file.stat().st_size == before.st_size


def test_the_file_stays_in_proportion_to_what_counts(log, tmp_path, file):
    for i in range(2000):
        log.put(hold("a", number=i % 5))

    assert file.read_bytes().count(b"\n") < 300
    assert reopened(log, tmp_path) == [hold("a", number=4)]
    assert file.read_bytes().count(b"\n") == 1


DAMAGE = {
    "a torn end": lambda data: data[:-9],
    "a flipped bit": lambda data: data[:-9] + bytes([data[-9] ^ 1]) + data[-8:],
    "bytes of anything": lambda data: data[: data.index(b"\n") + 1] + os.urandom(50),
    "nothing": lambda data: data[: data.index(b"\n") + 1],
}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
def test_a_bad_line_is_skipped_and_mended(log, tmp_path, file, damage):
    log.put(hold("a"))
    log.put(hold("b"))
    log.close()
    file.write_bytes(damage(file.read_bytes()))
    again = HoldLog(tmp_path, IDENTITY)

    assert again.open() == [hold("a")]
    again.put(hold("c"))
    assert reopened(again, tmp_path) == [hold("a"), hold("c")]


@pytest.mark.parametrize(
    "text", [b"1", b"null", b'{"x": 1}', b'{"dropped": 3}', b'{"tail": "zz"}', b"[", b'{"tail": 5}']
)
def test_a_line_with_a_right_checksum_and_other_contents_is_skipped(tmp_path, file, text):
    file.parent.mkdir()
    file.write_bytes(checksum(text).hex().encode() + b" " + text + b"\n")

    assert HoldLog(tmp_path, IDENTITY).open() == []


def test_identities_have_lists_of_their_own(log, tmp_path):
    log.put(hold("a"))

    assert HoldLog(tmp_path, OTHER_IDENTITY).open() == []


def test_only_the_user_can_read_it(log, file):
    log.put(hold("a"))

    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700


def failing(monkeypatch, name, code, after=b""):
    """The call fails; a write is carried out first as far as `after` goes."""
    real = getattr(os, name)

    def call(fd, *args):
        if after:
            real(fd, args[0][: len(after)])
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, name, call)


@pytest.mark.parametrize(
    ("code", "kind"), [(errno.ENOSPC, TierFullError), (errno.EIO, TierUnavailableError)]
)
@pytest.mark.parametrize("after", [b"", b"0123"])
def test_a_failed_write_is_said_and_mended_by_the_next(
    log, tmp_path, monkeypatch, code, kind, after
):
    log.put(hold("a"))
    failing(monkeypatch, "write", code, after)
    with pytest.raises(kind):
        log.put(hold("b"))
    monkeypatch.undo()
    log.put(hold("c"))

    assert reopened(log, tmp_path) == [hold("a"), hold("b"), hold("c")]


def test_a_purge_that_failed_is_said_and_done_at_the_next_try(log, tmp_path, monkeypatch):
    log.put(hold("a"))
    failing(monkeypatch, "fdatasync", errno.EIO)
    with pytest.raises(TierUnavailableError):
        log.drop("conv_a")
    monkeypatch.undo()
    assert log.holds() == []
    log.drop("conv_a")

    assert not is_anywhere(tmp_path, b"conv_a")


def test_a_full_disk_at_the_start_does_not_keep_it_from_being_read(log, tmp_path, monkeypatch):
    log.put(hold("a"))
    log.close()
    failing(monkeypatch, "write", errno.ENOSPC)
    again = HoldLog(tmp_path, IDENTITY)

    assert again.open() == [hold("a")]
    monkeypatch.undo()
    again.put(hold("b"))
    assert reopened(again, tmp_path) == [hold("a"), hold("b")]


def test_a_folder_that_is_a_file_is_unavailable(tmp_path):
    (tmp_path / "f").write_text("")
    with pytest.raises(TierUnavailableError):
        HoldLog(tmp_path / "f", IDENTITY).open()
