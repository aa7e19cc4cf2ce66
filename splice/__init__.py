"""The client package: talk to a Splice server from Python. Imports no torch.

    with Client() as client:
        session = client.sessions.create()
        print(session.send("Hello!").text)

`AsyncClient` has the same methods, awaited.
"""

from splice.async_client import AsyncClient, AsyncSession, AsyncSessions, AsyncStream
from splice.client import Client, Session, Sessions, Stream
from splice.errors import (
    APIStatusError,
    BadRequestError,
    ConflictError,
    ConnectionLostError,
    NotFoundError,
    OverloadedError,
    ServerError,
    SpliceError,
)
from splice.events import Event, MetricsEvent, TextDelta, TurnEvent
from splice.types import Message, Metrics, SessionInfo, Turn, TurnError, TurnOptions, Usage

__all__ = [
    "APIStatusError",
    "AsyncClient",
    "AsyncSession",
    "AsyncSessions",
    "AsyncStream",
    "BadRequestError",
    "Client",
    "ConflictError",
    "ConnectionLostError",
    "Event",
    "Message",
    "Metrics",
    "MetricsEvent",
    "NotFoundError",
    "OverloadedError",
    "ServerError",
    "Session",
    "SessionInfo",
    "Sessions",
    "SpliceError",
    "Stream",
    "TextDelta",
    "Turn",
    "TurnError",
    "TurnEvent",
    "TurnOptions",
    "Usage",
]
