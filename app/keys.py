"""What handlers find in the application and in a request, by typed keys."""

import asyncio
from typing import Protocol

from aiohttp import web

from app.config import AppConfig
from app.metrics import AppMetrics
from app.readiness import Readiness
from app.tracing import Tracing
from model.messages import EngineInfo, EngineStats
from sessions.api_keys import KeyId
from sessions.completions import Completions
from sessions.key_ring import KeyRing
from sessions.manager import SessionManager
from sessions.sweeper import Sweeper
from sessions.types import OwnerId


class EngineView(Protocol):
    """What handlers may ask the engine; replies go through sessions."""

    @property
    def state(self) -> str:
        """The engine's state by name."""
        ...

    @property
    def info(self) -> EngineInfo:
        """What was loaded; raises while nothing is."""
        ...

    async def stats(self) -> EngineStats:
        """A snapshot; raises while the engine is away."""
        ...

    async def verify(self) -> int:
        """Read all that the tiers have; how many records were damaged, and are gone."""
        ...

    async def collect(self) -> int:
        """Remove what other models left behind; how many folders."""
        ...


CONFIG: web.AppKey[AppConfig] = web.AppKey("config", AppConfig)
MANAGER: web.AppKey[SessionManager] = web.AppKey("manager", SessionManager)
COMPLETIONS: web.AppKey[Completions] = web.AppKey("completions", Completions)
KEY_RING: web.AppKey[KeyRing] = web.AppKey("key_ring", KeyRing)
READINESS: web.AppKey[Readiness] = web.AppKey("readiness", Readiness)
TRACING: web.AppKey[Tracing] = web.AppKey("tracing", Tracing)
SWEEPER: web.AppKey[Sweeper] = web.AppKey("sweeper", Sweeper)
HURRIED: web.AppKey[asyncio.Event] = web.AppKey("hurried", asyncio.Event)
METRICS: web.AppKey[AppMetrics] = web.AppKey("metrics", AppMetrics)
STARTED_AT: web.AppKey[int] = web.AppKey("started_at", int)  # seconds since 1970
# A protocol is no type to aiohttp's constructor, only to the annotation.
ENGINE: web.AppKey[EngineView] = web.AppKey("engine")

REQUEST_ID: web.RequestKey[str] = web.RequestKey("request_id", str)
OWNER: web.RequestKey[OwnerId] = web.RequestKey("owner")
KEY: web.RequestKey[KeyId] = web.RequestKey("key")  # absent where none was needed
