"""`splice serve` in a process of its own, with `scripted_worker` in place of the model.

It is forked from a process that has imported everything once, so that it starts in a few tenths of
a second and a test can end it two hundred times. What serves is otherwise what everybody starts:
the command line, the front end, the sessions, the database in a folder that outlives it.
"""

import multiprocessing
import os
import signal
import sys
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from types import TracebackType
from typing import Self

import psutil

from tests.support import scripted_worker, tiny_tokenizer
from tests.support.live_server import Output

_PRELOADED = [
    "app.application",
    "app.cli",
    "app.serving",
    "transformers.models.auto.tokenization_auto",
    "transformers.tokenization_utils_tokenizers",
    __name__,
]
_START_S = 60
_STOP_S = 30


class ScriptedServer:
    """A server on a folder; entering starts it, leaving stops it and checks that it ended well."""

    def __init__(self, data_dir: Path, *flags: str, step_ms: float = 2) -> None:
        self._data_dir = data_dir
        self._flags = (*flags, "--model", f"{scripted_worker.MODEL}{step_ms:g}")
        self._process: BaseProcess | None = None
        self._output: Output | None = None
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload(_PRELOADED)
        self.port = 0
        tokenizer = data_dir / "models" / scripted_worker.TOKENIZER
        tiny_tokenizer.save_tokenizer(tokenizer, tiny_tokenizer.SMOLLM2)
        self._program = data_dir / "scripted-python"
        name = scripted_worker.__name__
        self._program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m {name} "$@"\n')
        self._program.chmod(0o755)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._process is not None:
            self.stop()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def database(self) -> Path:
        """Where everything durable is."""
        return self._data_dir / "splice.db"

    @property
    def process(self) -> psutil.Process:
        """The process that serves."""
        assert self._process is not None, "not started"
        return psutil.Process(self._process.pid)

    def start(self) -> None:
        """Start it, on the port it had before if there was one, and wait until it is ready."""
        self.begin()
        assert self._output is not None
        url = self._output.address_when_ready(_START_S)
        self.port = int(url.rpartition(":")[2])

    def begin(self) -> None:
        """Start it, and don't wait for anything."""
        assert self._process is None, "it runs already"
        arguments = ["--data-dir", str(self._data_dir), "--port", str(self.port), *self._flags]
        says, said = self._context.Pipe(duplex=False)
        self._process = self._context.Process(
            target=_serve, args=(arguments, str(self._program), said)
        )
        self._process.start()
        said.close()
        self._output = Output(os.fdopen(os.dup(says.fileno())))
        says.close()

    def stop(self) -> None:
        """Ask it to end; it must do so soon and without complaint."""
        code, text = self._end(signal.SIGTERM)
        assert code == 0, text

    def kill(self) -> None:
        """End it where it is, and wait until its engine has seen that and is gone too."""
        code, text = self._end(signal.SIGKILL)
        assert code == -signal.SIGKILL, text

    def _end(self, how: signal.Signals) -> tuple[int | None, str]:
        assert self._process is not None
        assert self._output is not None
        process, output = self._process, self._output
        self._process = None
        assert process.pid is not None
        os.kill(process.pid, how)
        process.join(_STOP_S)
        if process.is_alive():
            process.kill()
            process.join()
        output.close()  # which its engine holds open as long as it lives
        return process.exitcode, output.text


def _serve(arguments: list[str], program: str, said: Connection) -> None:
    """The child: what `splice serve` does, with another engine."""
    os.dup2(said.fileno(), sys.stderr.fileno())
    said.close()
    os.environ["COLUMNS"] = "200"
    for name in [name for name in os.environ if name.startswith("SPLICE_")]:
        del os.environ[name]
    from app import cli

    sys.executable = program
    sys.argv = ["splice", "serve", *arguments]
    cli.main()
