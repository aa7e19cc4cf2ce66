"""How a command ends when it can't do its work: a sentence on standard error and an exit code.

2 for a setting or a flag, 1 for the rest; anything else is a bug and shows its traceback.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import typer
from rich.console import Console
from rich.markup import escape

from app.data_dir import DataDirError
from app.settings import SettingsError
from model.errors import ModelError
from sessions.errors import SessionsError


class RefusalError(Exception):
    """A command that can't succeed, for a reason outside the program."""


@contextmanager
def in_a_sentence() -> Iterator[None]:
    """Turn what an operator can cause into a sentence and an exit code."""
    try:
        yield
    except SettingsError as exc:
        _fail(str(exc), code=2)
    except (ModelError, SessionsError, DataDirError, RefusalError) as exc:
        _fail(str(exc), code=1)


def _fail(message: str, *, code: int) -> None:
    console: Any = Console(stderr=True)
    for line in message.splitlines():
        console.print(
            f"[bold red]splice:[/bold red] {escape(line)}", highlight=False, soft_wrap=True
        )
    raise typer.Exit(code)
