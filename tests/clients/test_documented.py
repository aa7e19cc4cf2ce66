"""What docs/openai.md says of clients: its snippets run, and its versions are what was tried."""

import os
import re
import subprocess
import sys

import pytest

from tests.support.live_server import ROOT

DOCUMENT = (ROOT / "docs" / "openai.md").read_text(encoding="utf-8")
SNIPPETS = re.findall(r"^\*\*([a-z-]+)\*\*.*?^```python\n(.*?)^```$", DOCUMENT, re.M | re.S)
VERSIONS = dict(re.findall(r"^\| ([a-z-]+) \| ([0-9.]+) \|", DOCUMENT, re.M))
PINNED = dict(
    re.findall(
        r"^([a-z-]+)(?:\[[a-z]+\])?==(\S+)$",
        (ROOT / "tests" / "clients" / "requirements.txt").read_text(encoding="utf-8"),
        re.M,
    )
)
DOCUMENTED_URL = "http://127.0.0.1:8000"


def test_every_client_has_a_snippet_and_the_version_that_was_tried():
    tried = {"openai", "openai-agents", "langchain-openai", "langgraph", "litellm"}

    assert {name for name, _ in SNIPPETS} == {*tried - {"langgraph"}, "pydantic-ai"}
    assert VERSIONS.keys() == {*tried, "pydantic-ai-slim"}
    assert VERSIONS.items() <= PINNED.items()


@pytest.mark.parametrize(
    "source", [source for _, source in SNIPPETS], ids=[name for name, _ in SNIPPETS]
)
def test_a_snippet_runs_as_it_stands(server, tmp_path, source):
    assert DOCUMENTED_URL in source
    example = tmp_path / "example.py"
    example.write_text(source.replace(DOCUMENTED_URL, server))

    done = subprocess.run(
        [sys.executable, str(example)],
        cwd=tmp_path,
        env=dict(os.environ),
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()
