"""`splice serve` where it can not: a sentence, an exit code, nothing left behind."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def serve(tmp_path, *flags):
    environ = {k: v for k, v in os.environ.items() if not k.startswith("SPLICE_")}
    return subprocess.run(
        [sys.executable, "-m", "app.cli", "serve", "--port", "0", *flags],
        cwd=tmp_path,
        env={**environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=55,
        check=False,
    )


@pytest.mark.parametrize(
    ("config", "words"),
    [
        (None, "has no config.json"),
        ('{"model_type": "t5"}', "it is an encoder with a decoder"),
    ],
)
def test_a_model_that_cannot_be_served_ends_in_one_sentence(tmp_path, config, words):
    folder = tmp_path / "model"
    folder.mkdir()
    if config is not None:
        (folder / "config.json").write_text(config)
        (folder / "tokenizer.json").write_text("{}")
        (folder / "model.safetensors").write_bytes(b"")

    done = serve(tmp_path, "--model", str(folder))

    assert done.returncode == 1, done.stderr
    last = done.stderr.splitlines()[-1]
    assert last.startswith("splice: ")
    assert words in last
    assert "Traceback" not in done.stderr


def test_a_foreign_database_ends_in_one_sentence(tmp_path):
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "splice.db").write_bytes(b"something else entirely" * 200)

    done = serve(tmp_path)

    assert done.returncode == 1, done.stderr
    assert done.stderr.splitlines()[-1].startswith("splice: ")
    assert "Traceback" not in done.stderr
