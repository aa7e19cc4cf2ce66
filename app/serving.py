"""One process serving one application, from the bound socket to the last closed connection.

The socket is bound before anything slow happens, so that a busy port is known at once. SIGINT or
SIGTERM stops in order: running turns are drained, connections closed, contexts unwound. A second
signal hurries: the same, without waiting for anybody. A third has its ordinary effect.
"""

import asyncio
import gc
import signal
import socket
import ssl
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path

from aiohttp import web

from app.peer import beside

Ending = Callable[[web.Application], Awaitable[None]]

_BACKLOG = 128
_STOPPING = (signal.SIGINT, signal.SIGTERM)
# Beyond the drain: what handlers get to notice that their connection is gone.
_HANDLERS_END_S = 5.0


def bind(host: str, port: int) -> socket.socket:
    """A TCP socket that listens already: who connects early waits. Raises OSError."""
    family, kind, protocol, _, address = socket.getaddrinfo(
        host.strip("[]"), port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )[0]
    sock = socket.socket(family, kind, protocol)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(address)
        sock.listen(_BACKLOG)
    except OSError:
        sock.close()
        raise
    return sock


def url_of(sock: socket.socket, *, is_secure: bool = False) -> str:
    """The URL that a bound socket is reached by."""
    host, port = sock.getsockname()[:2]
    name = f"[{host}]" if ":" in host else host
    return f"{'https' if is_secure else 'http'}://{name}:{port}"


def tls_context(cert: Path, key: Path) -> ssl.SSLContext:
    """What https is served with. Raises OSError, also for files that don't fit together."""
    for path in (cert, key):
        path.open("rb").close()  # whose error names the file, as OpenSSL's doesn't
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(cert, key)
    return context


def settle() -> None:
    """Take what exists by now out of the collector's sight: modules, the tokenizer.

    They stay as long as the process, and a full collection that walks their 300,000 objects every
    time holds the event loop for a tenth of a second or more. Costs nothing itself.
    """
    gc.freeze()


class Serving:
    """The serving of one application; `stop` ends it from within, as a signal does from without."""

    def __init__(self, sock: socket.socket, tls: ssl.SSLContext | None = None) -> None:
        self._sock = sock
        self._tls = tls
        self._task: asyncio.Task[None] | None = None
        self._is_stopping = False
        self._is_hurried = asyncio.Event()

    def stop(self) -> None:
        """Let `run` come to its end. To be called on its loop."""
        if self._task is not None and not self._is_stopping:
            self._is_stopping = True
            self._task.cancel()

    def _on_signal(self) -> None:
        if not self._is_stopping:
            self.stop()
            return
        self._is_hurried.set()
        _leave_signals_alone()

    async def run(self, app: web.Application, drain: Ending, hurry: Ending) -> None:
        """Serve until `stop` or a signal; then drain, while it still listens, and clean up.

        A signal while it does so calls `hurry`, beside it.

        What the application's start raises comes out, after whatever had started is undone.
        """
        runner = web.AppRunner(
            app, access_log=None, handle_signals=False, shutdown_timeout=_HANDLERS_END_S
        )
        self._task = asyncio.current_task()
        assert self._task is not None, "run is run by a task"
        is_listening = False
        try:
            with suppress(asyncio.CancelledError):
                for number in _STOPPING:
                    asyncio.get_running_loop().add_signal_handler(number, self._on_signal)
                await runner.setup()
                site = web.SockSite(runner, self._sock, ssl_context=self._tls, backlog=_BACKLOG)
                await site.start()
                is_listening = True
                await asyncio.Event().wait()
            self._task.uncancel()
            if is_listening:
                async with beside(self._hurry_when_told(app, hurry)):
                    await drain(app)
        finally:
            try:
                async with beside(self._hurry_when_told(app, hurry)):
                    await runner.cleanup()
            finally:
                _leave_signals_alone()
                self._sock.close()

    async def _hurry_when_told(self, app: web.Application, hurry: Ending) -> None:
        await self._is_hurried.wait()
        await hurry(app)


def _leave_signals_alone() -> None:
    """From here on a signal has its ordinary, immediate effect."""
    for number in _STOPPING:
        asyncio.get_running_loop().remove_signal_handler(number)
