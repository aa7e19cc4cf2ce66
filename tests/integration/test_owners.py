"""Another owner's ids are nobody's: the real manager and database behind the real front end."""

from contextlib import asynccontextmanager

import pytest
from aiohttp.test_utils import TestClient, TestServer

from app.protocol import FRAME_TYPES
from app.readiness import Readiness
from app.server import Collaborators, build_server, say_goodbye
from sessions.completions import Completions
from sessions.database import Database
from sessions.key_ring import KeyRing
from sessions.manager import ManagerConfig, SessionManager
from sessions.store import Store
from tests.support import tiny_tokenizer as tiny
from tests.support.clock import FakeClock
from tests.support.fake_engine import FakeEngine
from tests.support.fake_keys import FakeKeys
from tests.support.front_end import make_config, receive


@pytest.fixture
async def server(tmp_path):
    """A client, and the headers of two owners."""
    async with _serving(tmp_path) as (client, keys):
        yield client, *({"Authorization": f"Bearer {keys.add(name)}"} for name in ("ann", "bob"))


@asynccontextmanager
async def _serving(tmp_path):
    database = Database(f"sqlite:///{tmp_path / 'splice.db'}")
    await database.migrate()
    engine, keys, readiness = FakeEngine(), FakeKeys(), Readiness()
    readiness.loaded()
    config = ManagerConfig(runner_id="runner-1")
    async with SessionManager(
        store=Store(database), engine=engine, clock=FakeClock(), config=config
    ) as manager:
        manager.use_renderer(tiny.make_renderer(tiny.SMOLLM2))
        parts = Collaborators(
            manager=manager,
            completions=Completions(engine=engine),
            engine=engine,
            readiness=readiness,
            key_ring=KeyRing(keys, keys.clock),
        )
        app = build_server(make_config(), parts)
        app.on_shutdown.append(say_goodbye)
        async with TestClient(TestServer(app)) as client:
            yield client, keys
    await database.close()


async def call(client, headers, method, path, **body):
    json = body if method == "POST" else None
    async with client.request(method, path, headers=headers, json=json) as answer:
        return answer.status, await answer.json()


async def chat_of(client, headers):
    _, session = await call(client, headers, "POST", "/v1/sessions", title="mine")
    turns = f"/v1/sessions/{session['id']}/turns"
    _, turn = await call(client, headers, "POST", turns, input="hello")
    return session["id"], turn["id"]


CALLS = [
    ("GET", "/v1/sessions/{session}", {}),
    ("DELETE", "/v1/sessions/{session}", {}),
    ("POST", "/v1/sessions/{session}/fork", {}),
    ("GET", "/v1/sessions/{session}/kv", {}),
    ("GET", "/v1/sessions/{session}/turns", {}),
    ("POST", "/v1/sessions/{session}/turns", {"input": "hello"}),
    ("GET", "/v1/sessions/{session}/turns/{turn}", {}),
    ("GET", "/v1/sessions/{session}/turns/{turn}?stream=true", {}),
    ("POST", "/v1/sessions/{session}/turns/{turn}/cancel", {}),
    ("POST", "/v1/sessions/{session}/turns/{turn}/regenerate", {}),
]


@pytest.mark.parametrize(("method", "path", "body"), CALLS)
async def test_anothers_ids_are_answered_as_made_up_ones_are(server, method, path, body):
    client, ann, bob = server
    session, turn = await chat_of(client, ann)
    theirs = path.format(session=session, turn=turn)
    none = path.format(session=session[::-1], turn=turn[::-1])

    status, answer = await call(client, bob, method, theirs, **body)
    made_up_status, made_up = await call(client, bob, method, none, **body)

    assert status == made_up_status == 404
    assert answer["error"]["code"] == made_up["error"]["code"]
    shape = str(answer).replace(session, "id").replace(turn, "id")
    assert shape == str(made_up).replace(session[::-1], "id").replace(turn[::-1], "id")
    assert (await call(client, ann, "GET", f"/v1/sessions/{session}"))[0] == 200


async def test_a_turn_is_not_reached_through_a_session_of_ones_own(server):
    client, ann, bob = server
    _, turn = await chat_of(client, ann)
    mine, _ = await chat_of(client, bob)

    for path in (f"/v1/sessions/{mine}/turns/{turn}", f"/v1/sessions/{mine}/fork"):
        method = "POST" if path.endswith("fork") else "GET"
        status, _ = await call(
            client, bob, method, path, **({"at": turn} if method == "POST" else {})
        )
        assert status == 404
    status, _ = await call(
        client, bob, "POST", f"/v1/sessions/{mine}/turns", input="x", parent=turn
    )
    assert status == 404


async def test_lists_show_ones_own(server):
    client, ann, bob = server
    mine, _ = await chat_of(client, ann)

    _, anns = await call(client, ann, "GET", "/v1/sessions")
    _, bobs = await call(client, bob, "GET", "/v1/sessions")

    assert [one["id"] for one in anns["data"]] == [mine]
    assert bobs["data"] == []


async def test_frames_reach_no_further_than_calls(server):
    client, ann, bob = server
    session, turn = await chat_of(client, ann)
    frames = [
        {"type": "response.create", "conversation": session, "input": "hello"},
        {"type": "response.regenerate", "response_id": turn},
        {"type": "response.resume", "response_id": turn},
        {"type": "response.continue", "response_id": turn},
        {"type": "response.cancel", "response_id": turn},
        {"type": "session.subscribe", "conversation": session},
    ]
    name_nothing = {"ping", "session.unsubscribe"}  # the latter only what the socket watches itself
    assert {frame["type"] for frame in frames} == set(FRAME_TYPES) - name_nothing

    async with client.ws_connect("/v1/ws", headers=bob) as ws:
        for frame in frames:
            await ws.send_json({**frame, "event_id": frame["type"]})
            answer = await receive(ws)
            assert (answer["type"], answer["status"]) == ("error", 404), frame
            assert answer["event_id"] == frame["type"]
