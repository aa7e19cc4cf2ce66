"""The whole server over HTTP: the real sessions and store, an engine that is told what to say."""

import asyncio
from contextlib import asynccontextmanager

import openai
import pytest
from aiohttp import WSMsgType
from aiohttp.test_utils import TestClient, TestServer

from app.application import AppConfig, StartHooks, build_application, drain, hurry
from model.config import EngineConfig
from model.errors import EngineDiedError, ModelLoadError
from tests.support.clock import FakeClock
from tests.support.fake_engine import FakeEngine, FakeReply
from tests.support.front_end import receive, receive_until
from tests.support.tiny_tokenizer import save_tokenizer


@pytest.fixture(scope="module")
def tokenizer_path(tmp_path_factory):
    return save_tokenizer(tmp_path_factory.mktemp("tokenizer"))


@pytest.fixture
async def engine(tokenizer_path):
    engine = FakeEngine()
    engine.becomes(tokenizer_path=tokenizer_path)
    return engine


@asynccontextmanager
async def running(engine, folder, **changes):
    """Start a server on a folder and wait until it is ready; stops it at the end of the body."""
    values = {
        "database_url": f"sqlite+aiosqlite:///{folder}/splice.db",
        "runner_id": "test",
        "clock": FakeClock(),
        "drain_timeout_s": 1.0,
        **changes,
    }
    ready = asyncio.Event()
    hooks = StartHooks(on_ready=lambda _info: ready.set())
    app = build_application(AppConfig(**values), EngineConfig(), engine=engine, hooks=hooks)
    engine.is_up = True
    async with TestClient(TestServer(app)) as client:
        await asyncio.wait_for(ready.wait(), 30)
        yield client, app


async def _new_session(client):
    async with client.post("/v1/sessions", json={"title": "t"}) as answer:
        assert answer.status == 201
        return (await answer.json())["id"]


def _create(session_id, text="hi", **fields):
    return {"type": "response.create", "conversation": session_id, "input": text, **fields}


async def test_what_was_deleted_while_the_engine_was_away_goes_when_it_is_back(engine, tmp_path):
    async with running(engine, tmp_path) as (client, _):
        await _new_session(client)
        engine.is_up = False
        engine.stored = {"conv_of_a_session_that_is_gone"}

        engine.comes_back()

        async with asyncio.timeout(10):  # and not a minute
            while not engine.released:  # noqa: ASYNC110 - the sweeper's task says nothing
                await asyncio.sleep(0)
    assert engine.released == ["conv_of_a_session_that_is_gone"]


async def test_a_conversation_goes_on_over_rest_and_sockets_and_a_restart(engine, tmp_path):
    async with running(engine, tmp_path) as (client, _), client.ws_connect("/v1/ws") as ws:
        session_id = await _new_session(client)
        path = f"/v1/sessions/{session_id}/turns"
        async with client.post(path, json={"input": "one"}) as answer:
            first = await answer.json()
        await ws.send_json(_create(session_id, "two"))
        live = await receive_until(ws, "response.completed")
        second = live[-1]["response"]

    assert first["output"][0]["content"][0]["text"] == "Hello"
    assert second["previous_response_id"] == first["id"]
    assert second["usage"]["input_tokens_details"]["cached_tokens"] > 0
    details = second["usage"]["input_tokens_details"]
    assert (
        details["cached_tokens"] + details["cache_write_tokens"]
        == (second["usage"]["input_tokens"])
    )

    async with running(engine, tmp_path) as (client, _), client.ws_connect("/v1/ws") as ws:
        async with client.get(path) as answer:
            turns = (await answer.json())["data"]
        await ws.send_json({"type": "response.resume", "response_id": second["id"]})
        replayed = await receive_until(ws, "response.completed")

    assert turns == [first, second]
    assert [_without_response(f) for f in replayed] == [_without_response(f) for f in live]


def _without_response(frame):
    return {name: value for name, value in frame.items() if name != "response"}


async def test_a_reply_is_resumed_in_its_middle_over_the_real_feed(engine, tmp_path):
    engine.replies.append(FakeReply(pieces=("a", "b", "c", "d"), holds_after=2))
    async with running(engine, tmp_path) as (client, _):
        session_id = await _new_session(client)
        async with client.ws_connect("/v1/ws") as ws:
            await ws.send_json(_create(session_id))
            seen = [await receive(ws) for _ in range(6)]
        turn_id = seen[0]["response_id"]
        await engine.held(turn_id)
        async with client.ws_connect("/v1/ws") as ws:
            cursor = seen[-1]["sequence_number"]
            await ws.send_json(
                {"type": "response.resume", "response_id": turn_id, "starting_after": cursor}
            )
            await ws.send_json({"type": "ping", "nonce": 1})
            assert (await receive(ws))["type"] == "pong"
            engine.let_go()
            seen += await receive_until(ws, "response.completed")

    assert "".join(f.get("delta", "") for f in seen) == "abcd"
    assert [f["sequence_number"] for f in seen] == list(range(len(seen)))


async def test_a_cancelled_turn_keeps_its_reply_and_the_conversation_goes_on(engine, tmp_path):
    engine.replies.append(FakeReply(pieces=("a", "b"), holds_after=1))
    async with running(engine, tmp_path) as (client, _), client.ws_connect("/v1/ws") as ws:
        session_id = await _new_session(client)
        await ws.send_json(_create(session_id))
        frame = await receive(ws)
        await engine.held(frame["response_id"])
        await ws.send_json(_create(session_id, "too early", event_id="e1"))
        frames = await receive_until(ws, "error")
        await ws.send_json({"type": "response.cancel", "response_id": frame["response_id"]})
        ended = (await receive_until(ws, "response.incomplete"))[-1]["response"]
        await ws.send_json(_create(session_id, "again"))
        second = (await receive_until(ws, "response.completed"))[-1]["response"]

    assert (frames[-1]["event_id"], frames[-1]["error"]["code"]) == ("e1", "session_busy")
    assert ended["status"] == "cancelled"
    assert ended["output"][0]["content"][0]["text"] == "a"
    assert second["previous_response_id"] == ended["id"]


async def test_a_turn_whose_engine_dies_fails_visibly(engine, tmp_path):
    engine.replies.append(FakeReply(pieces=("a",), error=EngineDiedError("the process ended")))
    async with running(engine, tmp_path) as (client, _), client.ws_connect("/v1/ws") as ws:
        session_id = await _new_session(client)
        await ws.send_json(_create(session_id))
        failed = (await receive_until(ws, "response.failed"))[-1]["response"]

    assert failed["error"]["code"] == "engine_died"
    assert failed["error"]["retryable"] is True


async def test_a_prompt_that_is_too_long_says_by_how_much(engine, tmp_path):
    engine.becomes(max_context_tokens=64)
    async with running(engine, tmp_path) as (client, _):
        session_id = await _new_session(client)
        body = {"input": "word " * 100}
        async with client.post(f"/v1/sessions/{session_id}/turns", json=body) as answer:
            error = (await answer.json())["error"]

    assert (answer.status, error["code"]) == (400, "context_length_exceeded")
    assert "too many" in error["message"]


async def test_fork_regenerate_and_delete_work_through_http(engine, tmp_path):
    async with running(engine, tmp_path) as (client, _):
        session_id = await _new_session(client)
        path = f"/v1/sessions/{session_id}"
        async with client.post(path + "/turns", json={"input": "x"}) as answer:
            turn = await answer.json()
        async with client.post(f"{path}/turns/{turn['id']}/regenerate") as answer:
            sibling = await answer.json()
        async with client.post(path + "/fork", json={"at": turn["id"]}) as answer:
            fork = await answer.json()
        async with client.get(path + "/turns?all=true") as answer:
            tree = (await answer.json())["data"]
        async with client.get(path + "/kv") as answer:
            tables = (await answer.json())["tables"]
        async with client.delete(path) as answer:
            assert answer.status == 200
        async with client.get(path) as answer:
            assert answer.status == 404

    assert sibling["previous_response_id"] == turn["previous_response_id"]
    assert [t["input"][0]["content"] for t in tree] == [turn["input"][0]["content"]] * 2
    assert fork["forked_from"] == turn["id"]
    assert {t["response_id"] for t in tables} == {turn["id"], sibling["id"]}


async def test_openais_client_chats_through_the_whole_server(engine, tmp_path):
    engine.replies.append(FakeReply(pieces=("Os", "lo")))
    async with running(engine, tmp_path) as (client, _):
        base_url = f"http://127.0.0.1:{client.port}/v1"
        async with openai.AsyncOpenAI(base_url=base_url, api_key="x", max_retries=0) as chat:
            answer = await chat.chat.completions.create(
                model="default", messages=[{"role": "user", "content": "Where?"}]
            )

    assert answer.choices[0].message.content == "Oslo"
    assert answer.usage.prompt_tokens == len(engine.requests[0].token_ids)


async def test_a_draining_server_lets_turns_end_and_says_goodbye(engine, tmp_path):
    engine.replies.append(FakeReply(pieces=("a", "b"), holds_after=1))
    async with (
        running(engine, tmp_path, drain_timeout_s=20) as (client, app),
        client.ws_connect("/v1/ws") as ws,
    ):
        session_id, other = await _new_session(client), await _new_session(client)
        await ws.send_json(_create(session_id))
        await engine.held((await receive(ws))["response_id"])
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(drain(app))
            await ws.send_json(_create(other, event_id="late"))
            refused = (await receive_until(ws, "error"))[-1]
            async with client.get("/readyz") as answer:
                assert answer.status == 503
                assert (await answer.json())["state"] == "draining"
            engine.let_go()
            frames = await receive_until(ws, "response.completed")
            message = await ws.receive(timeout=5)

    assert (refused["status"], refused["error"]["code"]) == (503, "draining")
    assert frames[-1]["response"]["output"][0]["content"][0]["text"] == "ab"
    assert (message.type, message.data) == (WSMsgType.CLOSE, 1012)


async def test_a_reply_that_the_drain_cuts_is_incomplete_and_goes_on_after_the_restart(
    engine, tmp_path
):
    engine.replies.append(FakeReply(pieces=("a", "b"), holds_after=1))
    async with (
        running(engine, tmp_path, drain_timeout_s=0.01) as (client, app),
        client.ws_connect("/v1/ws") as ws,
    ):
        session_id = await _new_session(client)
        await ws.send_json(_create(session_id))
        await engine.held((await receive(ws))["response_id"])
        await drain(app)
        live = await receive_until(ws, "response.incomplete")
        message = await ws.receive(timeout=5)
    cut = live[-1]["response"]

    assert (message.type, message.data) == (WSMsgType.CLOSE, 1012)
    assert cut["status"] == "incomplete"
    assert cut["incomplete_details"] == {"reason": "server_restart"}
    assert cut["output"][0]["content"][0]["text"] == "a"

    async with running(engine, tmp_path) as (client, _), client.ws_connect("/v1/ws") as ws:
        await ws.send_json({"type": "response.resume", "response_id": cut["id"]})
        replayed = await receive_until(ws, "response.incomplete")
        await ws.send_json({"type": "response.continue", "response_id": cut["id"]})
        whole = (await receive_until(ws, "response.completed"))[-1]["response"]

    assert replayed[-len(live) :] == live
    assert [f["sequence_number"] for f in replayed] == list(range(len(replayed)))
    assert whole["output"][0]["content"][0]["text"] == "aHello"


async def test_a_hurried_server_cuts_everything_and_says_goodbye_with_1001(engine, tmp_path):
    engine.default = FakeReply(pieces=("a", "b"), holds_after=1)
    async with (
        running(engine, tmp_path, drain_timeout_s=600) as (client, app),
        client.ws_connect("/v1/ws") as ws,
    ):
        session_id = await _new_session(client)
        await ws.send_json(_create(session_id))
        await engine.held((await receive(ws))["response_id"])
        body = {"messages": [{"role": "user", "content": "hi"}]}
        begun: asyncio.Queue = asyncio.Queue()
        engine.on_start = lambda request: begun.put_nowait(request.request_id)
        async with asyncio.timeout(10), asyncio.TaskGroup() as tasks:
            chatting = tasks.create_task(client.post("/v1/chat/completions", json=body))
            await engine.held(await begun.get())
            tasks.create_task(drain(app))
            await asyncio.sleep(0)
            await hurry(app)
        cut = (await receive_until(ws, "response.incomplete"))[-1]["response"]
        message = await ws.receive(timeout=5)
        answer = chatting.result()
        error = (await answer.json())["error"]

    assert (message.type, message.data) == (WSMsgType.CLOSE, 1001)
    assert cut["incomplete_details"] == {"reason": "server_restart"}
    assert (answer.status, error["code"]) == (503, "draining")
    assert answer.headers["x-should-retry"] == "true"


async def test_a_draining_server_lets_completions_end_and_takes_no_others(engine, tmp_path):
    engine.replies.append(FakeReply(pieces=("a", "b"), holds_after=1))
    body = {"messages": [{"role": "user", "content": "hi"}]}
    begun: asyncio.Queue = asyncio.Queue()
    engine.on_start = lambda request: begun.put_nowait(request.request_id)
    async with running(engine, tmp_path, drain_timeout_s=20) as (client, app):
        async with asyncio.timeout(10), asyncio.TaskGroup() as tasks:
            chatting = tasks.create_task(client.post("/v1/chat/completions", json=body))
            await engine.held(await begun.get())
            draining = tasks.create_task(drain(app))
            await asyncio.sleep(0)
            async with client.post("/v1/chat/completions", json=body) as refused:
                assert (await refused.json())["error"]["code"] == "draining"
            assert not draining.done()
            engine.let_go()
        answer = await chatting.result().json()

    assert answer["choices"][0]["message"]["content"] == "ab"


async def test_the_server_listens_while_the_model_loads(tokenizer_path, tmp_path):
    loading = asyncio.Event()

    class SlowEngine(FakeEngine):
        async def start(self):
            await loading.wait()
            return await super().start()

    engine = SlowEngine()
    engine.becomes(tokenizer_path=tokenizer_path)
    async with asyncio.timeout(30):
        server = _serve_now(engine, tmp_path)
        async with server as (client, ready):
            async with client.get("/healthz") as answer:
                assert answer.status == 200
            async with client.get("/readyz") as answer:
                assert (answer.status, (await answer.json())["state"]) == (503, "starting")
            async with client.post("/v1/sessions") as answer:
                assert answer.status == 503
                assert (await answer.json())["error"]["code"] == "engine_unavailable"
            loading.set()
            await ready.wait()
            async with client.get("/readyz") as answer:
                assert answer.status == 200


async def test_a_model_that_can_not_be_loaded_is_told_and_the_caller_hears_of_it(tmp_path):
    class BrokenEngine(FakeEngine):
        async def start(self):
            raise ModelLoadError("there is no model at that place")

    reasons = []
    async with (
        asyncio.timeout(30),
        _serve_now(BrokenEngine(), tmp_path, reasons) as (client, ended),
    ):
        await ended.wait()
        async with client.get("/readyz") as answer:
            body = await answer.json()
            assert (answer.status, body["state"]) == (503, "failed")
            assert body["detail"] == "there is no model at that place"
        async with client.get("/metrics") as answer:
            assert "splice_ready 0.0" in await answer.text()

    assert reasons == ["there is no model at that place"]


@asynccontextmanager
async def _serve_now(engine, folder, reasons=None):
    """Serve without waiting for the model; the event tells that starting has ended."""
    ended = asyncio.Event()

    def failed(reason):
        reasons.append(reason)
        ended.set()

    config = AppConfig(
        database_url=f"sqlite+aiosqlite:///{folder}/splice.db", runner_id="test", clock=FakeClock()
    )
    hooks = StartHooks(on_ready=lambda _: ended.set(), on_failed=failed)
    app = build_application(config, EngineConfig(), engine=engine, hooks=hooks)
    async with TestClient(TestServer(app)) as client:
        yield client, ended
