"""`splice doctor`, run, and what it found."""

import json
from pathlib import Path

from typer.testing import CliRunner

from app.cli import app


def doctor(*args, **environ):
    """The exit code, and (area, level, text with advice) of each finding."""
    args = ("doctor", "--json", *(() if "--port" in args else ("--port", "0")), *args)
    result = CliRunner().invoke(app, args, env=environ)
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    found = json.loads(result.stdout)["findings"]
    return result.exit_code, [(f["area"], f["level"], f["text"] + f["advice"]) for f in found]


def has(found, area, level, words):
    return any(f[:2] == (area, level) and words in f[2] for f in found)


def whole_folder():
    return {str(path): (path.stat().st_mtime_ns, path.stat().st_size) for path in Path().rglob("*")}
