"""Who gets in: keys, scopes, owners, through the wire."""

import pytest
from aiohttp import WSMsgType, WSServerHandshakeError

from sessions.api_keys import Scope
from sessions.errors import StoreUnavailableError
from sessions.key_ring import FRESH_S
from splice import APIStatusError, AsyncClient
from tests.support.front_end import receive, serving


def bearer(secret):
    return {"Authorization": f"Bearer {secret}"}


@pytest.mark.parametrize("headers", [{}, bearer("sk-anything"), {"Authorization": "Basic x"}])
async def test_without_keys_everybody_is_anonymous_whatever_is_sent(headers):
    async with serving() as front:
        status, session = await front.call("POST", "/v1/sessions", headers=headers)
        assert (await front.call("GET", "/v1/cache", headers=headers))[0] == 200

        assert status == 201
        assert front.manager.sessions[session["id"]].owner == "anonymous"


@pytest.mark.parametrize(
    "headers",
    [
        {},
        bearer("sk-splice-wrong"),
        bearer(""),
        bearer("é"),
        {"Authorization": "sk-splice-ann-0"},
        {"Authorization": "Basic sk-splice-ann-0"},
    ],
)
@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/v1/sessions"),
        ("POST", "/v1/sessions"),
        ("GET", "/v1/models"),
        ("POST", "/v1/chat/completions"),
        ("GET", "/v1/nothing"),
        ("GET", "/v1/ws"),
        ("GET", "/v1/cache"),
        ("GET", "/metrics"),
    ],
)
async def test_once_there_are_keys_each_call_needs_one(method, path, headers):
    async with serving() as front:
        front.keys.add("ann")
        async with front.client.request(method, path, headers=headers) as answer:
            body = await answer.json()

    assert answer.status == 401
    assert body["error"]["code"] == "invalid_api_key"
    assert set(body["error"]) == {"message", "type", "param", "code"}
    assert answer.headers["WWW-Authenticate"] == "Bearer"
    assert answer.headers["x-should-retry"] == "false"


@pytest.mark.parametrize("path", ["/healthz", "/health", "/readyz", "/version"])
async def test_probes_need_no_key(path):
    async with serving() as front:
        front.keys.add("ann")

        assert (await front.call("GET", path))[0] == 200


async def test_the_page_needs_no_key(tmp_path):
    (tmp_path / "index.html").write_text("<p>hello")
    async with serving(page_dir=tmp_path) as front:
        front.keys.add("ann")
        async with front.client.get("/") as answer:
            assert answer.status == 200


@pytest.mark.parametrize("scheme", ["Bearer", "bearer", "BEARER "])
async def test_a_key_speaks_for_its_owner(scheme):
    async with serving() as front:
        secret = front.keys.add("ann")
        headers = {"Authorization": f"{scheme} {secret}"}
        status, session = await front.call("POST", "/v1/sessions", headers=headers)

        assert status == 201
        assert front.manager.sessions[session["id"]].owner == "ann"


@pytest.mark.parametrize(
    ("scopes", "path", "status"),
    [
        ((Scope.CHAT,), "/v1/sessions", 200),
        ((Scope.CHAT,), "/metrics", 403),
        ((Scope.CHAT,), "/v1/cache", 403),
        ((Scope.ADMIN,), "/metrics", 200),
        ((Scope.ADMIN,), "/v1/cache", 200),
        ((Scope.ADMIN,), "/v1/sessions", 403),
        ((Scope.ADMIN, Scope.CHAT), "/v1/sessions", 200),
    ],
)
async def test_a_key_does_what_its_scopes_say(scopes, path, status):
    async with serving() as front:
        secret = front.keys.add("ann", *scopes)
        async with front.client.get(path, headers=bearer(secret)) as answer:
            assert answer.status == status
            if status == 403:
                assert (await answer.json())["error"]["code"] == "missing_scope"


async def test_a_revoked_key_ends_within_the_bound_and_the_door_stays_shut():
    async with serving() as front:
        secret = front.keys.add("ann")
        assert (await front.call("GET", "/v1/sessions", headers=bearer(secret)))[0] == 200

        front.keys.revoke(secret)
        front.keys.clock.advance(FRESH_S)

        assert (await front.call("GET", "/v1/sessions", headers=bearer(secret)))[0] == 401
        assert (await front.call("GET", "/v1/sessions"))[0] == 401


async def test_nobody_gets_in_while_the_database_is_away():
    async with serving() as front:
        front.keys.raises = StoreUnavailableError("gone")
        status, body = await front.call("GET", "/v1/sessions")

    assert (status, body["error"]["code"]) == (503, "store_unavailable")


async def test_no_log_has_a_key(caplog):
    caplog.set_level("DEBUG")
    async with serving() as front:
        secret = front.keys.add("ann", secret="sk-splice-verysecret")
        await front.call("GET", "/v1/sessions", headers=bearer(secret))
        await front.call("GET", "/v1/sessions", headers=bearer("sk-splice-verywrong"))

    records = [record for record in caplog.records if record.name.startswith(("app", "sessions"))]
    assert "ann" in [getattr(record, "owner", None) for record in records]
    assert not [r for r in records if "very" in str(r.__dict__)]


async def test_a_program_opens_a_socket_with_its_key():
    async with serving() as front:
        secret = front.keys.add("ann")
        async with front.client.ws_connect("/v1/ws", headers=bearer(secret)) as ws:
            await ws.send_json({"type": "ping", "nonce": 1})
            assert (await receive(ws))["type"] == "pong"


async def ticket_of(front, secret):
    status, body = await front.call("POST", "/v1/ws-tickets", headers=bearer(secret))
    assert (status, body["object"]) == (201, "ws.ticket")
    return body["ticket"]


async def refusal_of_socket(front, query):
    with pytest.raises(WSServerHandshakeError) as caught:
        await front.client.ws_connect(f"/v1/ws{query}")
    return caught.value.status


async def test_a_browser_opens_a_socket_with_a_ticket_once():
    async with serving() as front:
        ticket = await ticket_of(front, front.keys.add("ann"))
        session = await front.manager.create("ann")
        async with front.client.ws_connect(f"/v1/ws?ticket={ticket}") as ws:
            front.manager.auto_reply = "a"
            frame = {"type": "response.create", "conversation": session.id, "input": "hi"}
            await ws.send_json(frame)
            assert (await receive(ws))["type"] == "response.created"
        assert await refusal_of_socket(front, f"?ticket={ticket}") == 401


async def test_a_ticket_is_no_better_than_its_key():
    async with serving() as front:
        secret = front.keys.add("ann")
        ticket = await ticket_of(front, secret)
        assert (await front.call("GET", f"/v1/sessions?ticket={ticket}"))[0] == 401
        front.keys.revoke(secret)
        front.keys.clock.advance(FRESH_S)

        assert await refusal_of_socket(front, f"?ticket={ticket}") == 401
        assert await refusal_of_socket(front, "?ticket=wst_x") == 401


async def test_a_ticket_from_before_there_were_keys_opens_nothing_afterwards():
    async with serving() as front:
        status, body = await front.call("POST", "/v1/ws-tickets")
        front.keys.add("ann")
        front.keys.clock.advance(FRESH_S)

        assert status == 201
        assert await refusal_of_socket(front, f"?ticket={body['ticket']}") == 401


async def test_an_open_server_takes_no_notice_of_tickets():
    async with serving() as front, front.client.ws_connect("/v1/ws?ticket=wst_x") as ws:
        await ws.send_json({"type": "ping", "nonce": 1})
        assert (await receive(ws))["type"] == "pong"


async def test_a_revoked_key_loses_its_socket_at_the_next_frame():
    async with serving() as front:
        secret = front.keys.add("ann")
        async with front.client.ws_connect("/v1/ws", headers=bearer(secret)) as ws:
            front.keys.revoke(secret)
            front.keys.clock.advance(FRESH_S)
            await ws.send_json({"type": "ping", "nonce": 1})
            assert (await ws.receive(timeout=5)).type is WSMsgType.CLOSE
            assert ws.close_code == 4401


async def test_the_python_client_sends_its_key():
    async with serving() as front:
        secret = front.keys.add("ann")
        url = front.base_url.removesuffix("/v1")
        async with AsyncClient(url, api_key=secret) as client:
            session = await client.sessions.create(title="mine", pinned=True, sampling={"seed": 1})
            assert front.manager.sessions[session.id].owner == "ann"
        async with AsyncClient(url) as client:
            with pytest.raises(APIStatusError) as caught:
                await client.sessions.create()
            assert caught.value.status == 401


async def test_an_owner_who_asks_too_often_hears_when_to_ask_again():
    async with serving(owner_requests_per_minute=2) as front:
        ann, bob = front.keys.add("ann"), front.keys.add("bob")
        for _ in range(2):
            assert (await front.call("GET", "/v1/sessions", headers=bearer(ann)))[0] == 200
        async with front.client.get("/v1/sessions", headers=bearer(ann)) as answer:
            body = await answer.json()
        assert (await front.call("GET", "/v1/sessions", headers=bearer(bob)))[0] == 200

    assert (answer.status, body["error"]["code"]) == (429, "rate_limit_exceeded")
    assert answer.headers["x-should-retry"] == "true"
    assert answer.headers["Retry-After"] == "30"
    assert int(answer.headers["retry-after-ms"]) == 30_000


async def test_frames_count_as_requests_and_pings_do_not():
    async with (
        serving(owner_requests_per_minute=2) as front,
        front.client.ws_connect("/v1/ws") as ws,
    ):
        for kind in ("ping", "ping", "ping", "resume", "cancel"):
            if kind == "ping":
                await ws.send_json({"type": "ping", "nonce": 1})
                assert (await receive(ws))["type"] == "pong"
            else:
                await ws.send_json({"type": f"response.{kind}", "response_id": "resp_none"})
                code = (await receive(ws))["error"]["code"]
        assert code == "rate_limit_exceeded"


async def test_probes_and_operators_are_not_limited():
    async with serving(owner_requests_per_minute=1) as front:
        secret = front.keys.add("ops", Scope.ADMIN)
        statuses = [
            (await front.call("GET", path, headers=bearer(secret)))[0]
            for path in ("/healthz", "/v1/cache") * 3
        ]

    assert statuses == [200] * 6


async def test_a_socket_from_before_there_were_keys_ends_at_its_next_frame():
    async with serving() as front, front.client.ws_connect("/v1/ws") as ws:
        front.keys.add("ann")
        front.keys.clock.advance(FRESH_S)
        await ws.send_json({"type": "ping", "nonce": 1})
        assert (await ws.receive(timeout=5)).type is WSMsgType.CLOSE
        assert ws.close_code == 4401
