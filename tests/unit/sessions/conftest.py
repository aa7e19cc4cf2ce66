"""A store on a fresh database, and a manager with an engine that does as it is told."""

from contextlib import asynccontextmanager

import pytest

from sessions.database import Database
from sessions.manager import ManagerConfig, SessionManager
from sessions.store import Store
from tests.support import tiny_tokenizer as tiny
from tests.support.clock import FakeClock
from tests.support.core_engine import CoreEngine
from tests.support.fake_engine import FakeEngine
from tests.support.postgres import SQLITE
from tests.support.template_chat import TemplateChat
from tests.support.templates import renderer_of, tokenizer_of


@pytest.fixture
def clock():
    return FakeClock()


@pytest.fixture
def database_kind():
    """Files whose tests run on every database say so in a fixture of their own."""
    return SQLITE


@pytest.fixture
def database_url(request, database_kind, tmp_path):
    if database_kind == SQLITE:
        return f"sqlite:///{tmp_path / 'splice.db'}"
    return request.getfixturevalue("postgres_server").new_url()


@pytest.fixture
async def database(database_url):
    database = Database(database_url)
    await database.migrate()
    yield database
    await database.close()


@pytest.fixture
def store(database):
    return Store(database)


@pytest.fixture
def engine():
    return FakeEngine()


@pytest.fixture(scope="session")
def renderer():
    return tiny.make_renderer(tiny.SMOLLM2)


@pytest.fixture
async def manager(store, engine, clock, renderer):
    config = ManagerConfig(runner_id="runner-1")
    async with SessionManager(store=store, engine=engine, clock=clock, config=config) as manager:
        manager.use_renderer(renderer)
        yield manager


@pytest.fixture
def chatting(store, clock):
    """A chat with a template of a name, over the engine core."""

    @asynccontextmanager
    async def start(name: str, *, token_budget: int = 4096, **options):
        engine = CoreEngine(tokenizer_of(name), token_budget=token_budget)
        config = ManagerConfig(runner_id="runner-1")
        async with SessionManager(
            store=store, engine=engine, clock=clock, config=config
        ) as manager:
            manager.use_renderer(renderer_of(name))
            yield await TemplateChat.open(name, manager, engine, **options)

    return start
