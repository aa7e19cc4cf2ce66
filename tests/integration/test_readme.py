"""The README's examples, run as they stand against a real server."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"^```(python|bash)\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
DOCUMENTED_URL = "http://127.0.0.1:8000"

pytestmark = pytest.mark.timeout(300)


@pytest.fixture
def folder_with_curl(tmp_path):
    """Where `curl` and `python3` are, even on a machine that has no curl."""
    (tmp_path / "python3").symlink_to(sys.executable)
    curl = tmp_path / "curl"
    if found := shutil.which("curl"):
        curl.symlink_to(found)
    else:
        stand_in = ROOT / "tests" / "support" / "curl_stand_in.py"
        curl.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{stand_in}" "$@"\n')
        curl.chmod(0o755)
    return tmp_path


def run(command, folder, environ):
    return subprocess.run(
        command, cwd=folder, env=environ, capture_output=True, text=True, timeout=240, check=False
    )


def test_the_readme_has_an_example_for_each_way_in():
    languages = [language for language, _ in EXAMPLES]

    assert languages == ["python", "python", "bash", "python"]
    assert all(DOCUMENTED_URL in source for _, source in EXAMPLES)


@pytest.mark.parametrize(
    "source",
    [s for language, s in EXAMPLES if language == "python"],
    ids=["client", "openai", "websocket"],
)
def test_a_python_example_runs(live_server, tmp_path, source):
    example = tmp_path / "example.py"
    example.write_text(source.replace(DOCUMENTED_URL, live_server))

    done = run([sys.executable, str(example)], tmp_path, {"PYTHONPATH": str(ROOT)})

    assert done.returncode == 0, done.stderr
    assert re.search(r"\d+ of \d+ tokens reused|\d+ ms to the first token", done.stdout)


def test_the_rest_example_runs(live_server, folder_with_curl):
    (source,) = [s for language, s in EXAMPLES if language == "bash"]
    script = source.replace(DOCUMENTED_URL, live_server)
    path = f"{folder_with_curl}:/usr/bin:/bin"

    done = run(["bash", "-euo", "pipefail", "-c", script], folder_with_curl, {"PATH": path})

    assert done.returncode == 0, done.stderr
    turn, tables, completion = _documents(done.stdout)
    assert turn["status"] in ("completed", "incomplete")
    assert tables["tables"][0]["blocks"]
    assert completion["choices"][0]["message"]["content"]


def _documents(text):
    decoder = json.JSONDecoder()
    found = []
    while text := text.lstrip():
        document, end = decoder.raw_decode(text)
        found.append(document)
        text = text[end:]
    return found
