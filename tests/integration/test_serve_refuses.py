"""`splice serve` where it can not: a sentence, an exit code, nothing left behind."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.scripted_server import ScriptedServer

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


def test_a_second_server_in_the_folder_is_told_who_has_it_and_where(tmp_path):
    with ScriptedServer(tmp_path / "data") as first:
        holder = f"(process {first.process.pid}, {first.url})"
        done = serve(tmp_path)

    assert done.returncode == 1, done.stderr
    last = done.stderr.splitlines()[-1]
    assert f"another server {holder} uses the data folder {tmp_path / 'data'}" in last


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (("--database-url", "mysql://me:secret@h/n"), "only SQLite and PostgreSQL are served"),
        (("--database-url", "sqlite:///none/a.db"), "there is no folder"),
        (("--cache-bytes", "1024TiB", "--device", "cpu"), "lower --cache-bytes"),
        (("--tls-cert", "/nope.pem", "--tls-key", "/nope.pem"), "'/nope.pem'"),
    ],
)
def test_what_cannot_be_used_is_told_before_a_model_is_looked_for(tmp_path, flags, words):
    done = serve(tmp_path, "--model", "nobody/has-this", *flags)

    assert done.returncode in (1, 2), done.stderr
    assert words in done.stderr.splitlines()[-1]
    assert "secret" not in done.stderr
    assert "Traceback" not in done.stderr
