"""Tickets: how a browser opens a websocket, for it can set no header there and a key must never
stand in an address.

A ticket is good once, for `TICKET_S`, and no longer than the key that asked for it. Tickets live in
this process: a balancer in front of several servers must send both calls of a browser to the same
one. Bounded: `MAX_TICKETS_OF_A_KEY` a key, the oldest goes first; only valid keys can ask.
"""

import hashlib
import secrets
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from aiohttp import web

from app.answer import json_answer
from app.keys import CONFIG, KEY, OWNER
from app.parsing import read_body
from app.protocol import EmptyBody
from sessions.api_keys import KeyId
from sessions.types import OwnerId

TICKET_S: Final = 30
MAX_TICKETS_OF_A_KEY: Final = 64
_PREFIX: Final = "wst_"


@dataclass(frozen=True, slots=True, kw_only=True)
class Ticket:
    """Whom a ticket lets in. `key` is None while the server needs no keys."""

    key: KeyId | None
    owner: OwnerId
    expires_at: datetime


class Tickets:
    """The tickets that nobody has used yet; one a server."""

    def __init__(self, clock: Callable[[], datetime]) -> None:
        self._clock = clock
        self._ticket_by_digest: dict[bytes, Ticket] = {}
        self._digests_by_key: dict[KeyId | None, deque[bytes]] = {}

    def __len__(self) -> int:
        return len(self._ticket_by_digest)

    def issue(self, key: KeyId | None, owner: OwnerId) -> str:
        """Make a ticket."""
        secret = _PREFIX + secrets.token_urlsafe(32)
        self._forget_expired()
        digests = self._digests_by_key.setdefault(key, deque())
        if len(digests) == MAX_TICKETS_OF_A_KEY:
            self._ticket_by_digest.pop(digests.popleft(), None)
        digests.append(_digest_of(secret))
        expires_at = self._clock() + timedelta(seconds=TICKET_S)
        self._ticket_by_digest[digests[-1]] = Ticket(key=key, owner=owner, expires_at=expires_at)
        return secret

    def redeem(self, secret: str) -> Ticket | None:
        """Take a ticket, which is gone then; None for one that is used, expired or made up."""
        ticket = self._ticket_by_digest.pop(_digest_of(secret), None)
        return ticket if ticket is not None and self._clock() < ticket.expires_at else None

    def _forget_expired(self) -> None:
        now = self._clock()
        for key, digests in list(self._digests_by_key.items()):
            while digests and self._is_over(digests[0], now):
                self._ticket_by_digest.pop(digests.popleft(), None)
            if not digests:
                del self._digests_by_key[key]

    def _is_over(self, digest: bytes, now: datetime) -> bool:
        ticket = self._ticket_by_digest.get(digest)
        return ticket is None or ticket.expires_at <= now


TICKETS: web.AppKey[Tickets] = web.AppKey("tickets", Tickets)


def routes() -> list[web.RouteDef]:
    """The route of tickets."""
    return [web.post("/v1/ws-tickets", create)]


async def create(request: web.Request) -> web.Response:
    """Make a ticket for whoever asks."""
    await read_body(request, EmptyBody)
    ticket = request.app[TICKETS].issue(request.get(KEY), request[OWNER])
    expires_at = int(request.app[CONFIG].clock().timestamp()) + TICKET_S
    body = {"object": "ws.ticket", "ticket": ticket, "expires_at": expires_at}
    return json_answer(body, status=201)


def _digest_of(secret: str) -> bytes:
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).digest()
