"""The real server, started once as everybody starts it: `splice serve` with the embedded model."""

import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
# The first start unpacks the model, which takes half a minute on a busy machine.
_START_S = 240
_STOP_S = 30


@pytest.fixture(scope="session")
def live_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a ready server with short replies; its models are the checkout's own."""
    data = tmp_path_factory.mktemp("live")
    models = ROOT / "data" / "models"
    models.mkdir(parents=True, exist_ok=True)
    (data / "models").symlink_to(models)
    command = [sys.executable, "-m", "app.cli", "serve", "--port", "0", "--data-dir", str(data)]
    command += ["--cache-bytes", "128MiB", "--default-max-output-tokens", "8"]
    environ = {k: v for k, v in os.environ.items() if not k.startswith("SPLICE_")}
    server = subprocess.Popen(
        command,
        cwd=data,
        env={**environ, "PYTHONPATH": str(ROOT), "COLUMNS": "200"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    output = _Output(server)
    try:
        yield output.address_when_ready()
    finally:
        server.send_signal(signal.SIGTERM)
        code = server.wait(_STOP_S)
        output.close()
        assert code == 0, output.text


class _Output:
    """What the server says, read all along so that it never waits for a reader."""

    def __init__(self, server: "subprocess.Popen[str]") -> None:
        self._lines: list[str] = []
        self._is_settled = threading.Event()
        self._stream = server.stderr
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    @property
    def text(self) -> str:
        return "".join(self._lines)

    def address_when_ready(self) -> str:
        assert self._is_settled.wait(_START_S), self.text
        banner = re.search(r"^Splice\s+(http://\S+)", self.text, re.MULTILINE)
        assert banner, self.text
        return banner[1]

    def close(self) -> None:
        assert self._stream is not None
        self._thread.join()
        self._stream.close()

    def _read(self) -> None:
        assert self._stream is not None
        for line in self._stream:
            self._lines.append(line)
            if line.startswith("data "):  # the banner's last row
                self._is_settled.set()
        self._is_settled.set()
