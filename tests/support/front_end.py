"""The front end on a free port, in front of fakes."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import orjson
from aiohttp import ClientWebSocketResponse
from aiohttp.test_utils import TestClient, TestServer

from app.config import AppConfig
from app.readiness import Readiness
from app.server import Collaborators, build_server, say_goodbye
from sessions.key_ring import KeyRing
from sessions.types import Session
from tests.support.fake_completions import FakeCompletions
from tests.support.fake_keys import FakeKeys
from tests.support.fake_manager import NOW, FakeEngine, FakeManager


@dataclass
class FrontEnd:
    """A running server and what is behind it."""

    client: TestClient
    manager: FakeManager
    completions: FakeCompletions
    engine: FakeEngine
    readiness: Readiness
    keys: FakeKeys

    @property
    def port(self) -> int:
        assert self.client.port is not None
        return self.client.port

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    async def session(self) -> Session:
        return await self.manager.create("anonymous")

    async def call(self, method: str, path: str, **kwargs: Any) -> tuple[int, Any]:
        """Ask and read the JSON answer."""
        async with self.client.request(method, path, **kwargs) as response:
            return response.status, orjson.loads(await response.read())


def make_config(**changes: Any) -> AppConfig:
    values = {"database_url": "sqlite://", "runner_id": "test", "clock": lambda: NOW, **changes}
    return AppConfig(**values)


@asynccontextmanager
async def serving(*, is_loaded: bool = True, **changes: Any) -> AsyncIterator[FrontEnd]:
    """Serve until the end of the body; `changes` go into the configuration."""
    readiness = Readiness()
    if is_loaded:
        readiness.loaded()
    manager, completions, engine = FakeManager(), FakeCompletions(), FakeEngine()
    keys = FakeKeys()
    collaborators = Collaborators(
        manager=manager,
        completions=completions,
        engine=engine,
        readiness=readiness,
        key_ring=KeyRing(keys, keys.clock),
    )
    app = build_server(make_config(**changes), collaborators)
    app.on_shutdown.append(say_goodbye)
    async with TestClient(TestServer(app)) as client:
        yield FrontEnd(client, manager, completions, engine, readiness, keys)


async def receive(ws: ClientWebSocketResponse) -> dict[str, Any]:
    """The next frame."""
    return orjson.loads(await ws.receive_str(timeout=5))


async def receive_until(ws: ClientWebSocketResponse, kind: str) -> list[dict[str, Any]]:
    """The frames up to one of a kind."""
    frames = [await receive(ws)]
    while frames[-1]["type"] != kind:
        frames.append(await receive(ws))
    return frames
