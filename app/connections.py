"""The open sockets of a server: counted, so that there are not too many, and told when it stops."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, Protocol

from aiohttp import web

from sessions.types import OwnerId

NORMAL: Final = 1000
GOING_AWAY: Final = 1001
POLICY: Final = 1008
INTERNAL_ERROR: Final = 1011
SERVICE_RESTART: Final = 1012
TRY_AGAIN_LATER: Final = 1013
KEY_REVOKED: Final = 4401


class OpenSocket(Protocol):
    """What is known of a socket here."""

    @property
    def owner(self) -> OwnerId:
        """Whose it is."""
        ...

    def close(self, code: int) -> None:
        """Send what is queued, then close; doesn't wait for it."""
        ...

    def hurry(self) -> None:
        """Give up on a peer that takes its time."""
        ...


class Connections:
    """One a server."""

    def __init__(self) -> None:
        self._open: set[OpenSocket] = set()
        self._is_hurried = False

    def __len__(self) -> int:
        return len(self._open)

    def num_of(self, owner: OwnerId) -> int:
        """How many an owner has open."""
        return sum(socket.owner == owner for socket in self._open)

    @contextmanager
    def holding(self, socket: OpenSocket) -> Iterator[None]:
        """Know of a socket while it is open."""
        self._open.add(socket)
        try:
            yield
        finally:
            self._open.discard(socket)

    def close_all(self) -> None:
        """Tell every peer that the server stops; what is queued for them is sent first."""
        for socket in self._open:
            socket.close(GOING_AWAY if self._is_hurried else SERVICE_RESTART)

    def hurry(self) -> None:
        """Wait for no peer that doesn't take what it is sent at once."""
        self._is_hurried = True
        for socket in self._open:
            socket.hurry()


CONNECTIONS: web.AppKey[Connections] = web.AppKey("connections", Connections)
