"""An event loop with nothing to do: how late it is, is the machine's doing and nobody else's.

`python -m tests.support.idle_loop` writes each lateness in seconds on a line, until it is ended.
"""

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from app.loop_lag import PERIOD_S


@contextmanager
def idle_loop() -> Iterator[list[float]]:
    """Run one beside the body; the list is filled when the body ends."""
    command = [sys.executable, "-m", __name__]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    late: list[float] = []
    try:
        yield late
    finally:
        process.terminate()
        output, _ = process.communicate()
        late += map(float, output.split())


async def main() -> None:
    clock = asyncio.get_running_loop().time
    while True:
        due = clock() + PERIOD_S
        await asyncio.sleep(PERIOD_S)
        print(clock() - due, flush=True)


if __name__ == "__main__":
    asyncio.run(main())
