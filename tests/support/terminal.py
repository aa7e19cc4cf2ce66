"""A command with a terminal of its own, and the end of it at which a person sits."""

import asyncio
import os
import pty
import sys
from contextlib import asynccontextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# Run in between, so that Ctrl-C is a signal to what is run.
_TAKE_TERMINAL = """
import fcntl, os, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
"""


@asynccontextmanager
async def at_terminal(*args, **environ):
    """Run `splice` with these arguments; gives its process and its terminal."""
    master, slave = pty.openpty()
    environ = {**os.environ, "PYTHONPATH": str(ROOT), **environ}
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", _TAKE_TERMINAL, "-m", "app.cli", *args),
        stdin=slave,
        stdout=slave,
        stderr=slave,
        env={**environ, "TERM": "xterm", "COLUMNS": "80", "NO_COLOR": "1"},
        start_new_session=True,
    )
    os.close(slave)
    try:
        yield process, Terminal(master, process.pid)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
        os.close(master)


class Terminal:
    """The end of a terminal at which a person sits."""

    def __init__(self, fd, pid):
        self._fd = fd
        self._status = Path(f"/proc/{pid}/stat")
        self._unread = ""

    async def type(self, text):
        """Type, once the command waits for something: no person types between its prompt and its
        wait for keys, where a Ctrl-C is not noticed before the next key (CPython's readline)."""
        async with asyncio.timeout(30):
            while not self._is_waiting():  # noqa: ASYNC110 - the kernel tells nobody
                await asyncio.sleep(0.01)
        os.write(self._fd, text.encode())

    def _is_waiting(self):
        return self._status.read_text().rpartition(")")[2].split()[0] == "S"

    async def until(self, text):
        """Read on to the end of a text."""
        async with asyncio.timeout(30):
            while text not in self._unread:
                self._unread += await self._arriving()
        self._unread = self._unread.partition(text)[2]

    async def _arriving(self):
        loop, arrived = asyncio.get_running_loop(), asyncio.Event()
        loop.add_reader(self._fd, arrived.set)
        await arrived.wait()
        loop.remove_reader(self._fd)
        try:
            return os.read(self._fd, 65536).decode(errors="replace")
        except OSError as exc:
            raise AssertionError(f"closed behind {self._unread!r}") from exc
