"""The package needs aiohttp, and nothing of the server's."""

import json
import re
import shutil
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import splice

_PROGRAM = """
import json, sys
before = set(sys.modules)
import splice
print(json.dumps(sorted({name.partition(".")[0] for name in set(sys.modules) - before})))
"""


def plainly(name):
    """A distribution's name in its one spelling."""
    return re.sub(r"[-_.]+", "-", name).lower()


def needed_by(*distributions):
    """Their names and those of all that they need."""
    found, waiting = set(), list(distributions)
    while waiting:
        name = plainly(waiting.pop())
        if name in found:
            continue
        found.add(name)
        try:
            needs = metadata.requires(name) or []
        except metadata.PackageNotFoundError:  # another platform's
            continue
        waiting += [re.match(r"[\w.-]+", need)[0] for need in needs if "extra ==" not in need]
    return found


def test_a_copy_of_the_folder_runs_with_aiohttp_alone(tmp_path):
    shutil.copytree(Path(splice.__file__).parent, tmp_path / "splice")

    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM],
        cwd=tmp_path,
        env={"PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )

    loaded = set(json.loads(done.stdout)) - sys.stdlib_module_names - {"splice"}
    owners = metadata.packages_distributions()
    brought = {plainly(owner) for name in loaded for owner in owners.get(name, ())}
    assert "aiohttp" in brought
    assert brought <= needed_by("aiohttp")
    assert not loaded & {"app", "sessions", "model"}


def test_it_is_typed():
    assert (Path(splice.__file__).parent / "py.typed").is_file()
