"""The front end over the real sessions layer, on a fresh database, with an engine that does as it
is told."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson
from aiohttp.test_utils import TestClient, TestServer

from app.readiness import Readiness
from app.server import Collaborators, build_server, say_goodbye
from app.tracing import NOT_TRACED, Tracing
from model.engine import Engine
from sessions.completions import Completions
from sessions.database import Database
from sessions.key_ring import KeyRing
from sessions.key_store import KeyStore
from sessions.manager import ManagerConfig, SessionManager
from sessions.places import Places
from sessions.store import Store
from tests.support import tiny_tokenizer as tiny
from tests.support.clock import FakeClock
from tests.support.fake_engine import FakeEngine
from tests.support.front_end import make_config


@dataclass
class WholeFront:
    """A running server and what is behind it."""

    client: TestClient
    manager: SessionManager
    engine: Any  # FakeEngine, unless another was given
    clock: FakeClock
    database: Database
    folder: Path

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self.client.port}"

    async def call(self, method: str, path: str, **kwargs: Any) -> tuple[int, Any]:
        """Ask and read the JSON answer."""
        async with self.client.request(method, path, **kwargs) as response:
            return response.status, orjson.loads(await response.read())

    async def session(self, **fields: Any) -> dict[str, Any]:
        return (await self.call("POST", "/v1/sessions", json=fields))[1]

    async def say(self, session_id: str, text: str = "hello", **fields: Any) -> dict[str, Any]:
        """A turn, when it has ended."""
        body = {"input": text, **fields}
        return (await self.call("POST", f"/v1/sessions/{session_id}/turns", json=body))[1]


@asynccontextmanager
async def serving_whole(
    folder: Path,
    tracing: Tracing = NOT_TRACED,
    *,
    engine: Engine | None = None,
    **changes: Any,
) -> AsyncIterator[WholeFront]:
    """Serve until the end of the body; `changes` go into the front end's configuration."""
    database = Database(f"sqlite:///{folder / 'splice.db'}")
    await database.migrate()
    engine, clock = engine or FakeEngine(), FakeClock()
    front_config = make_config(**changes)
    config = ManagerConfig(
        runner_id="runner-1", max_turns=front_config.max_turns, on_turn_ended=tracing.ended
    )
    places = Places(front_config.owner_max_turns)
    completions = Completions(engine=engine, places=places)
    store = Store(database)
    readiness = Readiness()
    readiness.loaded()
    async with SessionManager(
        store=store, engine=engine, clock=clock, config=config, places=places
    ) as manager:
        renderer = tiny.make_renderer(tiny.SMOLLM2)
        manager.use_renderer(renderer)
        completions.use_renderer(renderer)
        app = build_server(
            front_config,
            Collaborators(
                manager=manager,
                completions=completions,
                engine=engine,
                readiness=readiness,
                key_ring=KeyRing(KeyStore(database), clock),
                tracing=tracing,
            ),
        )
        app.on_shutdown.append(say_goodbye)
        async with TestClient(TestServer(app)) as client:
            yield WholeFront(client, manager, engine, clock, database, folder)
    await database.close()
