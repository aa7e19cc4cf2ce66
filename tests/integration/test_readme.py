"""The README's examples, run as they stand against a real server."""

import json
import re
import shutil
import sys

import pytest

from tests.support.examples import DOCUMENTED_URL, ROOT, examples_of, run, run_python

EXAMPLES = examples_of("README.md")

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
    done = run_python(source, live_server, tmp_path)

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
