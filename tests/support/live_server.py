"""The real server, started as everybody starts it: `splice serve` in a process of its own.

Its data folder outlives it, so that a test may end it in any way and start it again.
"""

import os
import re
import signal
import subprocess
import sys
import threading
from pathlib import Path
from types import TracebackType
from typing import IO, Self

import psutil

ROOT = Path(__file__).resolve().parents[2]
MODELS = ROOT / "data" / "models"
# The first start unpacks the model, which takes half a minute on a busy machine.
_START_S = 240
_STOP_S = 30


class LiveServer:
    """A server on a folder; entering starts it, leaving stops it and checks that it ended well.

    `python` is that of the server's environment, where it is another than the test's.
    """

    def __init__(self, data_dir: Path, *flags: str, python: Path | None = None) -> None:
        self._data_dir = data_dir
        self._flags = flags
        self._python = str(python or sys.executable)
        self._process: subprocess.Popen[str] | None = None
        self._output: Output | None = None
        self.url = ""

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
    def database(self) -> Path:
        """Where everything durable is."""
        return self._data_dir / "splice.db"

    @property
    def pid(self) -> int:
        """The process that serves."""
        assert self._process is not None, "not started"
        return self._process.pid

    @property
    def port(self) -> int:
        """Where it listens, or did before it was killed."""
        return int(self.url.rpartition(":")[2])

    @property
    def said(self) -> str:
        """What it wrote so far, its banner too."""
        assert self._output is not None, "not started"
        return self._output.text

    def engine(self) -> psutil.Process:
        """The engine's process, below the server's."""
        (engine,) = self.engines()
        return engine

    def engines(self) -> list[psutil.Process]:
        """The same, or none while it is being started again."""
        return [child for child in psutil.Process(self.pid).children() if _is_engine(child)]

    def start(self, port: int = 0) -> None:
        """Start it (0: on a free port) and wait until it is ready; models are the checkout's."""
        assert self._process is None, "it runs already"
        MODELS.mkdir(parents=True, exist_ok=True)
        models = self._data_dir / "models"
        if not models.exists():
            models.symlink_to(MODELS)
        command = [self._python, "-m", "app.cli", "serve", "--port", str(port)]
        # No titles unless a flag asks for them: tests count the rows that their own turns compute.
        # Nothing is compiled behind their backs, either.
        command += ["--data-dir", str(self._data_dir), "--no-auto-titles", "--compile", "off"]
        command += self._flags
        environ = {k: v for k, v in os.environ.items() if not k.startswith("SPLICE_")}
        self._process = subprocess.Popen(
            command,
            cwd=self._data_dir,
            env={**environ, "PYTHONPATH": str(ROOT), "COLUMNS": "200"},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self._process.stderr is not None
        self._output = Output(self._process.stderr)
        self.url = self._output.address_when_ready()

    def stop(self) -> None:
        """Ask it to end; it must do so soon and without complaint."""
        code, text = self._end(signal.SIGTERM)
        assert code == 0, text

    def kill(self) -> None:
        """End it where it is, and wait until its engine has seen that and is gone too."""
        code, text = self._end(signal.SIGKILL)
        assert code == -signal.SIGKILL, text

    def _end(self, how: signal.Signals) -> tuple[int, str]:
        assert self._process is not None
        assert self._output is not None
        process, output = self._process, self._output
        self._process = None
        process.send_signal(how)
        try:
            code = process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise
        finally:
            output.close()  # which its engine holds open as long as it lives
        return code, output.text


def _is_engine(process: psutil.Process) -> bool:
    try:
        return "model.worker" in process.cmdline()
    except psutil.NoSuchProcess:  # it ended, or is a zombie
        return False


class Output:
    """What a server says, read all along so that it never waits for a reader."""

    def __init__(self, stream: IO[str]) -> None:
        self._lines: list[str] = []
        self._is_settled = threading.Event()
        self._stream = stream
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    @property
    def text(self) -> str:
        return "".join(self._lines)

    def address_when_ready(self, timeout_s: float = _START_S) -> str:
        assert self._is_settled.wait(timeout_s), self.text
        banner = re.search(r"^Splice\s+(http://\S+)", self.text, re.MULTILINE)
        assert banner, self.text
        return banner[1]

    def close(self) -> None:
        """Wait until everything was said."""
        self._thread.join()
        self._stream.close()

    def _read(self) -> None:
        for line in self._stream:
            self._lines.append(line)
            if line.startswith("data "):  # the banner's last row
                self._is_settled.set()
        self._is_settled.set()
