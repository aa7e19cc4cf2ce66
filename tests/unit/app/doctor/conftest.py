"""A folder with nothing in it, an environment without settings, and a tiny model."""

import os

import pytest

from tests.support.tiny_folder import save_tiny_model


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    return save_tiny_model(tmp_path_factory.mktemp("models") / "tiny")


@pytest.fixture(autouse=True)
def _empty_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    for name in [name for name in os.environ if name.startswith("SPLICE_")]:
        monkeypatch.delenv(name)
