"""What `splice doctor` says of the tiers' folder."""

import base64
import shutil
from collections import namedtuple

import pytest

from app.doctor.tier_check import check_tiers
from app.settings import load_settings
from model.tiers.folder import LockedFolder
from tests.support.tier_records import IDENTITY

_Usage = namedtuple("_Usage", "total used free")


def found(tmp_path, **flags):
    settings = load_settings({"data_dir": str(tmp_path), **flags}, environ={})
    return [(str(f.level), f.text) for f in check_tiers(settings)]


@pytest.fixture(autouse=True)
def _roomy(monkeypatch):
    monkeypatch.setattr(shutil, "disk_usage", lambda _: _Usage(1 << 50, 0, 1 << 50))
    monkeypatch.delenv("SPLICE_KV_KEY", raising=False)


def test_a_folder_with_room_is_fine_and_isnt_made(tmp_path):
    (finding,) = found(tmp_path)

    assert finding[0] == "ok"
    assert "at most 10.0 GiB" in finding[1]
    assert not (tmp_path / "kv").exists()


def test_a_disk_smaller_than_the_quota_is_worth_a_look(tmp_path, monkeypatch):
    monkeypatch.setattr(shutil, "disk_usage", lambda _: _Usage(1 << 30, 0, 1 << 30))

    ((level, text),) = found(tmp_path)

    assert (level, "1.0 GiB free" in text) == ("warn", True)


def test_a_server_that_has_the_folder_is_named(tmp_path):
    folder = LockedFolder(tmp_path / "kv", IDENTITY)

    levels = found(tmp_path)
    folder.close()

    assert levels[1] == ("ok", f"a server uses {folder.path}")
    assert len(found(tmp_path)) == 1


def test_a_place_that_is_a_file_is_in_the_way(tmp_path):
    (tmp_path / "kv").write_text("")

    ((level, text),) = found(tmp_path)

    assert (level, "can't be written" in text) == ("fail", True)


def test_without_a_disk_tier_it_says_what_that_costs(tmp_path):
    ((level, text),) = found(tmp_path, disk_cache_bytes="0")

    assert (level, "no disk tier" in text) == ("warn", True)


def test_the_key_is_never_shown(tmp_path, monkeypatch):
    key = base64.b64encode(b"k" * 32).decode()
    monkeypatch.setenv("SPLICE_KV_KEY", key)

    texts = [text for _, text in found(tmp_path)]

    assert any("encrypted" in text for text in texts)
    assert not any(key in text for text in texts)


def test_a_key_that_is_none_is_in_the_way_and_not_shown(tmp_path, monkeypatch):
    monkeypatch.setenv("SPLICE_KV_KEY", "c2VjcmV0")

    level, text = found(tmp_path)[-1]

    assert (level, "SPLICE_KV_KEY" in text, "c2VjcmV0" in text) == ("fail", True, False)
