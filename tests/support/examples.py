"""The examples in a document, to be run as they stand."""

import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTED_URL = "http://127.0.0.1:8000"


def examples_of(document: str) -> list[tuple[str, str]]:
    """(language, source) of every example in a document, named from the repository's root."""
    text = (ROOT / document).read_text(encoding="utf-8")
    return re.findall(r"^```(python|bash)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def run(
    command: Sequence[str], folder: Path, environ: Mapping[str, str]
) -> subprocess.CompletedProcess[str]:
    """Run a command to its end, whatever that is."""
    return subprocess.run(
        command, cwd=folder, env=environ, capture_output=True, text=True, timeout=240, check=False
    )


def run_python(source: str, url: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run an example against the server at that address."""
    example = folder / "example.py"
    example.write_text(source.replace(DOCUMENTED_URL, url))
    return run([sys.executable, str(example)], folder, {"PYTHONPATH": str(ROOT)})
