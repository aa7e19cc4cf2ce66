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
                    pass_fds=(theirs.fileno(),),
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


def _environment() -> dict[str, str]:
    """The caller's, with this program's packages importable wherever it was started.

    OpenMP's threads sleep while they wait for each other unless the caller says otherwise. By
    default they spin, and where another process wants one of the cores every step waits for a
    thread that waits for its core: 1,446 ms a token instead of 64 on two busy cores.
    """
    path = os.environ.get("PYTHONPATH")
    packages = os.pathsep.join(filter(None, (str(_PACKAGES), path)))
    return {"OMP_WAIT_POLICY": "PASSIVE", **os.environ, "PYTHONPATH": packages}
