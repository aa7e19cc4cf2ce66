"""What a server does for its tiers at the start and at the stop, on an engine that is told what to
say: a warm-up, the sweep, the closing store and what hurries it."""

import asyncio

import pytest
from aiohttp.test_utils import TestClient, TestServer

from app.application import AppConfig, StartHooks, build_application, hurry
from model.config import EngineConfig
from model.messages import FinishReason, Residency, TierName
from tests.support.clock import FakeClock
from tests.support.fake_engine import FakeEngine, FakeReply
from tests.support.tiny_tokenizer import save_tokenizer


class KeepingEngine(FakeEngine):
    """Knows when it is to store, and takes as long as the test wants."""

    def __init__(self, tokenizer_path: str) -> None:
        super().__init__()
        self.becomes(tokenizer_path=tokenizer_path)
        self.asked_to_store: list[float] = []
        self.storing = asyncio.Event()
        self.may_end = asyncio.Event()
        self.may_end.set()

    async def store(self, timeout_s: float) -> bool:
        self.asked_to_store.append(timeout_s)
        self.storing.set()
        await self.may_end.wait()
        for name, place in self.residents.items():
            self.residents[name] = on_disk(place.conversation_id)
        return True


def on_disk(name: str) -> Residency:
    return Residency(
        conversation_id=name,
        turn_id="resp_1",
        tier=TierName.DISK,
        tail="ab",
        num_tokens=16,
        num_bytes=4096,
        used_at=1000.0,
        stored_in=(TierName.DISK,),
    )


@pytest.fixture(scope="module")
def tokenizer_path(tmp_path_factory):
    return save_tokenizer(tmp_path_factory.mktemp("tokenizer"))


@pytest.fixture
async def engine(tokenizer_path):
    return KeepingEngine(tokenizer_path)


class Running:
    """A server from its start to its stop."""

    def __init__(self, engine, folder, **changes) -> None:
        self._ready = asyncio.Event()
        config = AppConfig(
            database_url=f"sqlite+aiosqlite:///{folder}/splice.db",
            runner_id="test",
            clock=FakeClock(),
            drain_timeout_s=1.0,
            **{"store_timeout_s": 7.0, **changes},
        )
        hooks = StartHooks(on_ready=lambda _info: self._ready.set())
        engine.is_up = True
        self.app = build_application(config, EngineConfig(), engine=engine, hooks=hooks)
        self.client = TestClient(TestServer(self.app))

    async def start(self) -> TestClient:
        await self.client.start_server()
        await asyncio.wait_for(self._ready.wait(), 30)
        return self.client

    async def ask(self, method: str, path: str, **body):
        async with self.client.request(method, path, json=body or None) as answer:
            return await answer.json()


async def test_at_the_stop_everything_is_stored_and_lists_know_where_it_is(engine, tmp_path):
    server = Running(engine, tmp_path)
    await server.start()
    session = (await server.ask("POST", "/v1/sessions", title="t"))["id"]
    engine.residents[session] = on_disk(session)
    await server.client.close()
    assert engine.asked_to_store == [7.0]
    assert not engine.is_up

    again = Running(engine, tmp_path, store_timeout_s=0)
    engine.is_up = False  # so that nobody but the store can say
    await again.client.start_server()
    shown = await again.ask("GET", f"/v1/sessions/{session}")
    await again.client.close()

    assert (shown["kv"]["tier"], shown["kv"]["num_tokens"]) == ("disk", 16)
    assert engine.asked_to_store == [7.0]


async def test_who_is_hurried_stores_no_longer(engine, tmp_path):
    engine.may_end.clear()
    server = Running(engine, tmp_path)
    await server.start()

    closing = asyncio.create_task(server.client.close())
    await engine.storing.wait()
    await hurry(server.app)

    await asyncio.wait_for(closing, 10)
    assert not engine.is_up


async def test_at_the_start_what_nobody_knows_is_released(engine, tmp_path):
    engine.stored = {"conv_of_nobody"}
    server = Running(engine, tmp_path)
    await server.start()

    collected = await server.ask("POST", "/v1/cache/collect")
    await server.client.close()

    assert engine.released == ["conv_of_nobody"]
    assert (collected["object"], collected["num_folders"]) == ("cache.collected", 1)


async def test_a_restarted_server_warms_the_system_prompts_that_were_asked_with(engine, tmp_path):
    first = Running(engine, tmp_path)
    await first.start()
    session = (await first.ask("POST", "/v1/sessions", instructions="Be brief."))["id"]
    await first.ask("POST", f"/v1/sessions/{session}/turns", input="hello")
    await first.client.close()
    warmed = asyncio.Event()
    engine.requests.clear()
    engine.default = FakeReply(pieces=(), reason=FinishReason.LENGTH)
    engine.on_start = lambda _request: warmed.set()

    second = Running(engine, tmp_path, warm_up_s=5.0)
    await second.start()
    async with asyncio.timeout(10):
        await warmed.wait()
    await second.client.close()

    (request,) = engine.requests
    assert (request.conversation_id, request.params.max_output_tokens) == (None, 0)


async def test_without_time_for_it_nothing_is_warmed(engine, tmp_path):
    server = Running(engine, tmp_path)
    await server.start()
    await server.client.close()

    assert engine.requests == []
