"""One process serving one application, from the bound socket to the last closed connection.

The socket is bound before anything slow happens, so that a busy port is known at once; it listens
only when the application is ready. SIGINT or SIGTERM stops in order: no new connections, running
turns drained, contexts unwound. A second signal doesn't wait.
"""

import asyncio
import contextlib
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from aiohttp import web

# Beyond the drain: what handlers get to notice that their connection is gone.
_HANDLERS_END_S = 5.0


def bind(host: str, port: int) -> socket.socket:
    """A bound TCP socket that does not listen yet. Raises OSError."""
    family, kind, protocol, _, address = socket.getaddrinfo(
        host.strip("[]"), port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )[0]
    sock = socket.socket(family, kind, protocol)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(address)
    except OSError:
        sock.close()
        raise
    return sock


def url_of(sock: socket.socket) -> str:
    """The URL that a bound socket is reached by."""
    host, port = sock.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


async def serve(app: web.Application, sock: socket.socket, on_ready: Callable[[], None]) -> None:
    """Start the application, call `on_ready`, and serve until a signal comes.

    What the application's start raises comes out, after whatever had started is undone.
    """
    runner = web.AppRunner(
        app, access_log=None, handle_signals=False, shutdown_timeout=_HANDLERS_END_S
    )
    task = asyncio.current_task()
    assert task is not None, "serve runs in a task"
    try:
        with _stopped_by_signals(task), contextlib.suppress(asyncio.CancelledError):
            await runner.setup()
            await web.SockSite(runner, sock).start()
            on_ready()
            await asyncio.Event().wait()
        task.uncancel()
    finally:
        await runner.cleanup()
        sock.close()


@contextmanager
def _stopped_by_signals(task: asyncio.Task[None]) -> Iterator[None]:
    loop = asyncio.get_running_loop()
    caught = (signal.SIGINT, signal.SIGTERM)
    for number in caught:
        loop.add_signal_handler(number, task.cancel)
    try:
        yield
    finally:
        # From here on a second signal has its ordinary, immediate effect.
        for number in caught:
            loop.remove_signal_handler(number)
