"""Another owner's ids are nobody's: the real manager and database behind the real front end.

What is tried is walked: every path of `/openapi.json` that names a session or turn, every field of
a body that does, every frame. One without a row in the tables below fails.
"""

import typing
from contextlib import asynccontextmanager

import pytest
from aiohttp.test_utils import TestClient, TestServer
from pydantic import BaseModel

from app import protocol, transfer
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


# What to say at each address that names a session or a turn: bodies, or queries.
CALLS = {
    "GET /v1/sessions/{session}": [{}],
    "PATCH /v1/sessions/{session}": [{"title": "x"}, {"title": "x", "expected_revision": 1}],
    "DELETE /v1/sessions/{session}": [{}],
    "POST /v1/sessions/{session}/restore": [{}],
    "POST /v1/sessions/{session}/fork": [{}, {"title": "x"}],
    "GET /v1/sessions/{session}/tree": [{}],
    "POST /v1/sessions/{session}/head": [{"turn": None}],
    "GET /v1/sessions/{session}/kv": [{}],
    "POST /v1/sessions/{session}/warm": [{}, {"deadline_s": 1.0}],
    "POST /v1/sessions/{session}/park": [{"tier": "disk"}],
    "GET /v1/sessions/{session}/export": [{}, {"format": "markdown"}],
    "GET /v1/sessions/{session}/turns": [{}, {"all": "true"}],
    "POST /v1/sessions/{session}/turns": [
        {"input": "hello"},
        {"input": "hello", "stream": True},
        {"input": "hello", "client_turn_id": "anns"},
    ],
    "GET /v1/sessions/{session}/turns/{turn}": [{}, {"stream": "true"}, {"starting_after": "3"}],
    "POST /v1/sessions/{session}/turns/{turn}/cancel": [{}],
    "POST /v1/sessions/{session}/turns/{turn}/regenerate": [
        {},
        {"stream": True},
        {"client_turn_id": "anns"},
    ],
    "POST /v1/sessions/{session}/turns/{turn}/continue": [{}, {"stream": True}],
}

# Addresses that name neither, and what of a query names one all the same.
QUERIES = [("/v1/sessions", "after", "{session}"), ("/v1/search?q=hello", "after", "{message}")]

# Bodies at an address of one's own that name somebody's turn.
BODIES = {
    protocol.TurnBody: ("/turns", {"input": "x", "parent": "{turn}"}),
    protocol.ForkBody: ("/fork", {"at": "{turn}"}),
    protocol.HeadBody: ("/head", {"turn": "{turn}"}),
}

FRAMES = {
    protocol.CreateFrame: [
        {"type": "response.create", "conversation": "{session}", "input": "hello"},
        {"type": "response.create", "conversation": "{mine}", "input": "x", "parent": "{turn}"},
    ],
    protocol.RegenerateFrame: [{"type": "response.regenerate", "response_id": "{turn}"}],
    protocol.ContinueFrame: [{"type": "response.continue", "response_id": "{turn}"}],
    protocol.ResumeFrame: [{"type": "response.resume", "response_id": "{turn}"}],
    protocol.CancelFrame: [{"type": "response.cancel", "response_id": "{turn}"}],
    protocol.SubscribeFrame: [{"type": "session.subscribe", "conversation": "{session}"}],
}
NAMES_NOTHING = {protocol.PingFrame}
# Ends what the socket itself has begun, and is answered by nothing.
SILENT = {protocol.UnsubscribeFrame: {"type": "session.unsubscribe", "conversation": "{session}"}}
# What these name are turns of the same file, and nothing outside it.
FILES = {transfer.SessionFile, transfer.TurnFile}


def filled(value, ids):
    """The value with ids in the places that ask for them."""
    if isinstance(value, dict):
        return {name: filled(part, ids) for name, part in value.items()}
    return value.format(**ids) if isinstance(value, str) else value


def made_up(ids):
    """Ids of the same form that never were."""
    return {
        kind: value if kind == "mine" else value[:5] + value[5:][::-1]
        for kind, value in ids.items()
    }


def shape_of(answer, ids):
    text = str(answer)
    for kind, value in ids.items():
        text = text.replace(value, f"<{kind}>")
    return text


async def answer_to(client, headers, method, path, fields):
    """Status, headers that may tell something, body; never an id of the request."""
    how = {"params": fields} if method == "GET" else {"json": fields}
    async with client.request(method, path, headers=headers, **how) as answer:
        told = {
            k.title(): v
            for k, v in answer.headers.items()
            if k.lower() not in ("x-request-id", "date")
        }
        return answer.status, told, await answer.json()


async def ids_of(client, ann, bob):
    """Ann's session, turn and message, and a session of Bob's."""
    session, turn = await chat_of(client, ann)
    _, found = await call(client, ann, "GET", "/v1/search?q=hello")
    mine, _ = await chat_of(client, bob)
    return {"session": session, "turn": turn, "message": found["data"][0]["id"], "mine": mine}


async def test_anothers_ids_in_every_route_are_answered_as_made_up_ones_are(server):
    client, ann, bob = server
    ids = await ids_of(client, ann, bob)
    _, document = await call(client, bob, "GET", "/openapi.json")
    walked = {
        f"{method.upper()} {path}": (method.upper(), path)
        for path, operations in document["paths"].items()
        for method in operations
        if {"{session}", "{turn}"} & set(path.split("/"))
    }
    assert set(walked) == set(CALLS), "each route needs a row, and each row a route"

    for name, (method, path) in walked.items():
        for fields in CALLS[name]:
            wrong = made_up(ids)
            theirs = await answer_to(client, bob, method, path.format(**ids), fields)
            none = await answer_to(client, bob, method, path.format(**wrong), fields)
            assert theirs[0] == none[0] == 404, (name, theirs)
            assert shape_of(theirs, ids) == shape_of(none, wrong), name

    _, whole = await call(client, ann, "GET", f"/v1/sessions/{ids['session']}/turns?all=true")
    assert [turn["id"] for turn in whole["data"]] == [ids["turn"]]
    _, session = await call(client, ann, "GET", f"/v1/sessions/{ids['session']}")
    assert (session["title"], session["head"]) == ("mine", ids["turn"])


@pytest.mark.parametrize(("path", "name", "value"), QUERIES)
async def test_anothers_ids_in_a_query_are_answered_as_made_up_ones_are(server, path, name, value):
    client, ann, bob = server
    ids = await ids_of(client, ann, bob)
    wrong = made_up(ids)

    separator = "&" if "?" in path else "?"
    theirs = await answer_to(
        client, bob, "GET", f"{path}{separator}{name}={value.format(**ids)}", {}
    )
    none = await answer_to(
        client, bob, "GET", f"{path}{separator}{name}={value.format(**wrong)}", {}
    )

    assert theirs[0] == 400
    assert shape_of(theirs, ids) == shape_of(none, wrong)


def references_in(kind: type[BaseModel]) -> set[str]:
    """The fields of a model that name a session or a turn."""
    hints = typing.get_type_hints(kind, include_extras=True)
    wanted = (protocol.TurnRef, protocol.ConversationRef)
    return {
        name
        for name, hint in hints.items()
        if hint in wanted or any(part in wanted for part in typing.get_args(hint))
    }


def requests_below(kind: type[BaseModel]) -> set[type[BaseModel]]:
    below = kind.__subclasses__()
    return {c for c in below if not c.__subclasses__()}.union(*map(requests_below, below))


def test_every_field_that_names_somebodys_turn_is_tried():
    tried = {kind: set(fields) for kind, (_, fields) in BODIES.items()}
    tried |= {kind: set().union(*rows) for kind, rows in FRAMES.items()}
    for kind in requests_below(protocol.Strict) - FILES - SILENT.keys():
        assert references_in(kind) <= tried.get(kind, set()), kind
    assert references_in(protocol.TurnBody) == {"parent"}
    assert FRAMES.keys() | SILENT.keys() | NAMES_NOTHING == set(typing.get_args(protocol.Frame))
    assert not any(map(references_in, NAMES_NOTHING))


@pytest.mark.parametrize("kind", BODIES)
async def test_anothers_turn_in_a_body_is_answered_as_a_made_up_one_is(server, kind):
    client, ann, bob = server
    ids = await ids_of(client, ann, bob)
    wrong = made_up(ids)
    place, fields = BODIES[kind]
    path = f"/v1/sessions/{ids['mine']}{place}"

    theirs = await answer_to(client, bob, "POST", path, filled(fields, ids))
    none = await answer_to(client, bob, "POST", path, filled(fields, wrong))

    assert theirs[0] == none[0] == 404
    assert shape_of(theirs, ids) == shape_of(none, wrong)


async def test_anothers_ids_in_every_frame_are_answered_as_made_up_ones_are(server):
    client, ann, bob = server
    ids = await ids_of(client, ann, bob)
    wrong = made_up(ids)

    async with client.ws_connect("/v1/ws", headers=bob) as ws:
        for frame in (frame for rows in FRAMES.values() for frame in rows):
            answers = []
            for known in (ids, wrong):
                await ws.send_json({**filled(frame, known), "event_id": "e"})
                answers.append(shape_of(await receive(ws), known))
            assert "'status': 404" in answers[0], frame
            assert answers[0] == answers[1], frame
        for frame in SILENT.values():
            for known in (ids, wrong):
                await ws.send_json(filled(frame, known))
                await ws.send_json({"type": "ping"})
                assert (await receive(ws))["type"] == "pong"


async def test_lists_show_ones_own(server):
    client, ann, bob = server
    mine, _ = await chat_of(client, ann)

    _, anns = await call(client, ann, "GET", "/v1/sessions")
    _, bobs = await call(client, bob, "GET", "/v1/sessions")

    assert [one["id"] for one in anns["data"]] == [mine]
    assert bobs["data"] == []
