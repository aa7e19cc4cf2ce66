"""The built page in front of the real sessions layer, on a port that survives restarts.

The engine does as it is told (`engine.replies`, `engine.let_go()`), so that no test waits for a
model, and every moment of a reply can be held.
"""

from contextlib import AsyncExitStack
from pathlib import Path

from aiohttp.test_utils import TestServer

from app.readiness import Readiness
from app.server import Collaborators, build_server, say_goodbye
from sessions.completions import Completions
from sessions.database import Database
from sessions.key_ring import KeyRing
from sessions.key_store import KeyStore
from sessions.manager import ManagerConfig, SessionManager
from sessions.rendering import Renderer
from sessions.store import Store
from tests.support.clock import FakeClock
from tests.support.fake_engine import FakeEngine
from tests.support.front_end import make_config

PAGE = Path(__file__).resolve().parents[2] / "app" / "page"


class PageFront:
    """One server, stopped and started again as often as a test likes."""

    def __init__(self, folder: Path, renderer: Renderer) -> None:
        self._url = f"sqlite:///{folder / 'splice.db'}"
        self._renderer = renderer
        self._clock = FakeClock()
        self._life = AsyncExitStack()
        self._server: TestServer | None = None
        self._crashed: list[AsyncExitStack] = []
        self._port: int | None = None
        self.engine = FakeEngine()
        self.manager: SessionManager

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}/"

    async def start(self) -> None:
        """Serve, with an engine that knows nothing of the one before."""
        assert (PAGE / "index.html").is_file(), "the page is not built: `make page`"
        database = Database(self._url)
        await database.migrate()
        self._life.push_async_callback(database.close)
        self.engine = FakeEngine()
        self.engine.warms_in_silence = True  # typing warms
        readiness = Readiness()
        readiness.loaded()
        self.manager = await self._life.enter_async_context(
            SessionManager(
                store=Store(database),
                engine=self.engine,
                clock=self._clock,
                config=ManagerConfig(runner_id="page", checkpoint_s=0),
            )
        )
        self.manager.use_renderer(self._renderer)
        await self.manager.recover()
        app = build_server(
            make_config(page_dir=PAGE),
            Collaborators(
                manager=self.manager,
                completions=Completions(engine=self.engine),
                engine=self.engine,
                readiness=readiness,
                key_ring=KeyRing(KeyStore(database), self._clock),
            ),
        )
        app.on_shutdown.append(say_goodbye)
        self._server = TestServer(app, port=self._port)
        await self._server.start_server()
        self._port = self._server.port

    async def stop(self) -> None:
        """End it in good order: what runs is cancelled and kept."""
        await self._disconnect()
        for life in (self._life, *self._crashed):
            await life.aclose()
        self._life, self._crashed = AsyncExitStack(), []

    async def crash(self) -> None:
        """Be gone for whoever looks, without having written anything more."""
        await self._disconnect()
        # It goes on in nobody's sight until the test ends; the next life takes its turns over.
        self._crashed.append(self._life)
        self._life = AsyncExitStack()

    async def _disconnect(self) -> None:
        if self._server is not None:
            await self._server.close()
        self._server = None
