"""One life of the engine's process, seen from the event loop: spawn, send, receive, end."""

import asyncio
import os
import socket
import sys
from collections.abc import AsyncIterator
from pathlib import Path

from model.config import EngineConfig
from model.wire import HEADER, Command, Report, Start, decode, encode

_EXIT_S = 5.0
_SPIN_COUNT = "1000"
"""How often an OpenMP thread looks for the others before it sleeps. By GNU's own 300,000 it keeps
its core from the thread it waits for whenever another process has the other core: tokens take 3 to
30 times as long (docs/benchmarks.md). Sleeping at once costs half the speed of an idle machine."""
_PACKAGES = Path(__file__).resolve().parent.parent


class EngineProcess:
    """A running `model.worker`. Its end is seen as the end of `reports`."""

    def __init__(
        self,
        process: asyncio.subprocess.Process,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        self._process = process
        self._reader = reader
        self._writer = writer

    @classmethod
    async def spawn(cls, config: EngineConfig) -> "EngineProcess":
        """Start a process and tell it what to load."""
        ours, theirs = socket.socketpair()
        try:
            with theirs:
                process = await asyncio.create_subprocess_exec(
                    sys.executable,
                    "-m",
                    "model.worker",
                    str(theirs.fileno()),
                    pass_fds=(theirs.fileno(), *_memory(config)),
                    stdin=asyncio.subprocess.DEVNULL,
                    # A Ctrl-C in the terminal is the front end's to handle: it drains first.
                    start_new_session=True,
                    env=_environment(),
                )
            reader, writer = await asyncio.open_connection(sock=ours)
        except BaseException:
            ours.close()  # which ends the process, if there is one
            raise
        engine = cls(process, reader, writer)
        engine.send(Start(config))
        return engine

    @property
    def pid(self) -> int:
        """The operating system's name for it."""
        return self._process.pid

    def send(self, command: Command) -> None:
        """Queue a command. Buffered without bound here, but bounded by what is in flight; a command
        to a process that is gone is dropped, and its end is reported by `reports`."""
        if not self._writer.is_closing():
            self._writer.write(encode(command))

    async def reports(self) -> AsyncIterator[Command | Report]:
        """What the process says, until it is gone."""
        try:
            while True:
                (length,) = HEADER.unpack(await self._reader.readexactly(HEADER.size))
                yield decode(await self._reader.readexactly(length))
        except (asyncio.IncompleteReadError, ConnectionError):
            return

    def hang_up(self) -> None:
        """Close the connection, which ends the process and `reports`; what was not yet sent, or not
        yet read, is dropped."""
        self._writer.transport.abort()

    async def end(self) -> int:
        """Hang up, and kill the process if that doesn't end it; the exit code."""
        self.hang_up()
        try:
            async with asyncio.timeout(_EXIT_S):
                return await self._process.wait()
        except TimeoutError:
            self.kill()
            return await self._process.wait()

    def kill(self) -> None:
        """End the process at once."""
        if self._process.returncode is None:
            self._process.kill()


def _memory(config: EngineConfig) -> tuple[int, ...]:
    return () if config.cpu_tier_fd is None else (config.cpu_tier_fd,)


def _environment() -> dict[str, str]:
    """The caller's, with this program's packages importable wherever it was started, and a short
    patience for OpenMP's threads, unless the caller has set one."""
    path = os.environ.get("PYTHONPATH")
    packages = os.pathsep.join(filter(None, (str(_PACKAGES), path)))
    is_set = "OMP_WAIT_POLICY" in os.environ or "GOMP_SPINCOUNT" in os.environ
    patience = {} if is_set else {"GOMP_SPINCOUNT": _SPIN_COUNT}
    return {**patience, **os.environ, "PYTHONPATH": packages}
