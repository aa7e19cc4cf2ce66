"""The documents show the settings as they are."""

from pathlib import Path

import pytest

from app.settings import Settings
from app.settings_docs import documents, meaning_of, page, with_table

ROOT = Path(__file__).resolve().parents[3]


def test_the_documents_are_up_to_date():
    stale = [path.name for path, text in documents(ROOT) if path.read_text("utf-8") != text]

    assert not stale, "run `make docs`"


def test_every_setting_has_its_row():
    rows = [line for line in page().splitlines() if line.startswith("| `--")]

    assert len(rows) == len(Settings.model_fields)


def test_the_words_a_setting_may_be_are_told_once():
    device, mode = (meaning_of(Settings.model_fields[name]) for name in ("device", "mode"))

    assert device.endswith("(`auto`, `cuda`, `cpu`)")
    assert (mode.count("`exact`"), mode.count("`fast`")) == (1, 1)


def test_a_document_without_the_marks_is_refused():
    with pytest.raises(ValueError, match="lacks the marks"):
        with_table("no table here")
