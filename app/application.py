"""The composition root: builds every part, starts them in order, takes them down in reverse.

The server listens from the first moment. The store is migrated and the sessions' manager runs
before the first request; the model loads meanwhile, and `/readyz` says how far it is.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from dataclasses import dataclass

from aiohttp import web

from app.config import AppConfig
from app.connections import CONNECTIONS
from app.errors import DOMAIN_ERRORS, boundary
from app.heap import trim_heap
from app.keys import COMPLETIONS, CONFIG, HURRIED, MANAGER, READINESS, SWEEPER
from app.loop_lag import watch_loop
from app.readiness import Readiness
from app.server import Collaborators, build_server, say_goodbye
from app.tracing import NOT_TRACED, Tracing
from model.config import EngineConfig
from model.engine import Engine
from model.messages import EngineInfo
from sessions.completions import Completions
from sessions.database import Database
from sessions.key_ring import KeyRing
from sessions.key_store import KeyStore
from sessions.manager import ManagerConfig, SessionManager
from sessions.places import Places
from sessions.rendering import Renderer
from sessions.store import Store
from sessions.sweeper import Sweeper

logger = logging.getLogger(__name__)

__all__ = ["AppConfig", "StartHooks", "build_application", "drain", "hurry"]


@dataclass(frozen=True, slots=True, kw_only=True)
class StartHooks:
    """How whoever started the server hears how starting went; called on the event loop."""

    on_progress: Callable[[str], None] | None = None
    on_ready: Callable[[EngineInfo], None] | None = None
    on_failed: Callable[[str], None] | None = None


NOBODY_LISTENS = StartHooks()


def build_application(
    config: AppConfig,
    engine_config: EngineConfig,
    *,
    engine: Engine | None = None,
    hooks: StartHooks = NOBODY_LISTENS,
    tracing: Tracing = NOT_TRACED,
) -> web.Application:
    """Build the server; nothing runs before aiohttp starts it.

    Start and clean up in the same task (as `web.run_app` and `AppRunner` users do): task groups
    live in between. `hooks.on_failed` gets the reason when the model can't be loaded; the server
    stays up to say so at `/readyz`, and whether to end it is the caller's choice.
    """
    readiness = Readiness()

    def progress(text: str) -> None:
        readiness.progress(text)
        if hooks.on_progress is not None:
            hooks.on_progress(text)

    if engine is None:
        engine = Engine(engine_config, on_progress=progress)
    parts = _Parts(config, engine, readiness, hooks, tracing)
    app = build_server(
        config,
        Collaborators(
            manager=parts.manager,
            completions=parts.completions,
            engine=engine,
            readiness=readiness,
            key_ring=parts.key_ring,
            tracing=tracing,
        ),
    )
    app[HURRIED] = parts.hurried
    app[SWEEPER] = parts.sweeper
    app.cleanup_ctx.extend(
        [
            watch_loop,
            trim_heap,
            parts.run_database,
            parts.run_engine,
            parts.run_manager,
            parts.run_load,
        ]
    )
    app.on_shutdown.append(drain)
    return app


async def drain(app: web.Application) -> None:
    """Take no new turns, let the active ones end, close the sockets. Again does no harm.

    Called before the server stops listening, probes and clients can still see that it drains.
    """
    app[READINESS].draining()
    timeout_s = app[CONFIG].drain_timeout_s
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(app[MANAGER].drain(timeout_s))
        tasks.create_task(app[COMPLETIONS].drain(timeout_s))
    await say_goodbye(app)


async def hurry(app: web.Application) -> None:
    """Let a drain that goes on, or comes, wait no longer; replies so far are kept."""
    app[MANAGER].hurry()
    app[CONNECTIONS].hurry()
    await app[COMPLETIONS].cut()
    await app[MANAGER].ephemeral.cut()
    app[HURRIED].set()


class _Parts:
    """The parts with a life of their own, in the order in which they depend on each other."""

    def __init__(
        self,
        config: AppConfig,
        engine: Engine,
        readiness: Readiness,
        hooks: StartHooks,
        tracing: Tracing,
    ) -> None:
        self._engine = engine
        self._readiness = readiness
        self._hooks = hooks
        self._database = Database(config.database_url)
        store = Store(self._database)
        self.key_ring = KeyRing(KeyStore(self._database), config.clock)
        places = Places(config.owner_max_turns)
        public = config.public_instructions
        self.manager = SessionManager(
            store=store,
            engine=engine,
            clock=config.clock,
            places=places,
            config=ManagerConfig(
                runner_id=config.runner_id,
                max_turns=config.max_turns,
                public_instructions=public,
                delete_grace_s=config.delete_grace_s,
                auto_titles=config.auto_titles,
                on_turn_ended=tracing.ended,
            ),
        )
        self.completions = Completions(
            engine=engine,
            public_instructions=public,
            places=places,
            clock=config.clock,
            on_begin=self.manager.presence.warm_up.give_way,
        )
        self.hurried = asyncio.Event()
        self._config = config
        self.sweeper = Sweeper(
            store=store,
            engine=engine,
            clock=config.clock,
            delete_grace_s=config.delete_grace_s,
        )
        # What a process that is new holds is not what was known of the one before.
        engine.when_ready(self.sweeper.wake)
        engine.when_ready(self.manager.presence.residencies.touch)

    async def run_database(self, app: web.Application) -> AsyncIterator[None]:
        try:
            await self._database.migrate()
            yield
        finally:
            await self._database.close()

    async def run_engine(self, app: web.Application) -> AsyncIterator[None]:
        """Close the engine behind its users, having stored what it has; `run_load` starts it."""
        yield
        async with asyncio.TaskGroup() as tasks:
            storing = tasks.create_task(self._keep())
            hurried = tasks.create_task(self.hurried.wait())
            await asyncio.wait({storing, hurried}, return_when=asyncio.FIRST_COMPLETED)
            storing.cancel()
            hurried.cancel()
        await self._engine.close()

    async def _keep(self) -> None:
        if not self._config.store_timeout_s or self._engine.state != "ready":
            return
        if not await self._engine.store(self._config.store_timeout_s):
            logger.warning("not every conversation could be brought into the tiers in time")
        with suppress(*DOMAIN_ERRORS):  # what lists say is not worth a failed stop
            await self.manager.presence.residencies.refresh()

    async def run_manager(self, app: web.Application) -> AsyncIterator[None]:
        async with self.manager:
            await self.manager.recover()
            async with self.sweeper:
                yield

    async def run_load(self, app: web.Application) -> AsyncIterator[None]:
        async with asyncio.TaskGroup() as tasks:
            loading = tasks.create_task(self._load())  # ends loaded, failed, or with the server
            yield
            loading.cancel()

    async def _load(self) -> None:
        with boundary("start") as caught:
            info = await self._engine.start()
            renderer = await asyncio.to_thread(Renderer.load, info.tokenizer_path)
            self.manager.use_renderer(renderer)
            self.completions.use_renderer(renderer)
            self._readiness.loaded()
            if self._hooks.on_ready is not None:
                self._hooks.on_ready(info)
        if caught.error is not None:
            self._readiness.failed(caught.error.message)
            if self._hooks.on_failed is not None:
                self._hooks.on_failed(caught.error.message)
            return
        await self._warm_up()

    async def _warm_up(self) -> None:
        if not self._config.warm_up_s:
            return
        try:
            num_warm = await self.manager.presence.warm_up.run(self._config.warm_up_s)
        except DOMAIN_ERRORS as exc:
            logger.warning("system prompts could not be made ready: %s", exc)
            return
        if num_warm:
            logger.info("%d system prompts are ready", num_warm)
