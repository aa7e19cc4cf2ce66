"""What is refused before a model is fetched and loaded."""

import pytest

from app.settings import SettingsError, load_settings
from app.start_check import check_start


def settings(tmp_path, **given):
    return load_settings({"data_dir": str(tmp_path), "device": "cpu", **given}, environ={})


@pytest.mark.parametrize("name", ["cache_bytes", "cpu_cache_bytes"])
def test_a_cache_beyond_all_memory_is_refused(tmp_path, name):
    with pytest.raises(SettingsError, match="GiB of memory in all: lower --"):
        check_start(settings(tmp_path, **{name: "1024TiB"}))


def test_a_bad_key_is_refused_and_not_shown(tmp_path, monkeypatch):
    monkeypatch.setenv("SPLICE_KV_KEY", "c2VjcmV0")

    with pytest.raises(SettingsError, match="SPLICE_KV_KEY") as caught:
        check_start(settings(tmp_path))
    assert "c2VjcmV0" not in str(caught.value)


def test_what_is_in_order_passes(tmp_path, monkeypatch):
    monkeypatch.delenv("SPLICE_KV_KEY", raising=False)

    check_start(settings(tmp_path, cache_bytes="1MiB"))
