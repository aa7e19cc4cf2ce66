"""The client package: talk to a Splice server from Python. Imports no torch.

    with Client() as client:
        session = client.sessions.create()
        print(session.send("Hello!").text)

`AsyncClient` has the same methods, awaited.
"""

from splice.agents import AgentsSession
from splice.async_client import AsyncClient, AsyncSessions
from splice.async_session import AsyncSession
from splice.async_stream import AsyncStream
from splice.client import Client, Sessions
from splice.errors import (
    APIStatusError,
    AuthenticationError,
    BadRequestError,
    ConflictError,
    ConnectionLostError,
    NotFoundError,
    OverloadedError,
    PermissionDeniedError,
    ServerError,
    SpliceError,
    UnavailableError,
)
from splice.events import (
    ArgumentsDelta,
    Event,
    ItemEvent,
    MetricsEvent,
    ReasoningDelta,
    TextDelta,
    TurnEvent,
)
from splice.items import Item
from splice.session import Session, Stream
from splice.types import (
    Message,
    Metrics,
    ReplyOptions,
    SessionInfo,
    Turn,
    TurnError,
    TurnOptions,
    Usage,
)

__all__ = [
    "APIStatusError",
    "AgentsSession",
    "ArgumentsDelta",
    "AsyncClient",
    "AsyncSession",
    "AsyncSessions",
    "AsyncStream",
    "AuthenticationError",
    "BadRequestError",
    "Client",
    "ConflictError",
    "ConnectionLostError",
    "Event",
    "Item",
    "ItemEvent",
    "Message",
    "Metrics",
    "MetricsEvent",
    "NotFoundError",
    "OverloadedError",
    "PermissionDeniedError",
    "ReasoningDelta",
    "ReplyOptions",
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
    "UnavailableError",
    "Usage",
]
