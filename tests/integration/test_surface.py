"""What every answer has in common: ids, errors, limits, guards, probes."""

import asyncio
import logging
import re

import pytest
from aiohttp import WSServerHandshakeError
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from model.errors import EngineUnavailableError
from sessions.errors import StoreUnavailableError
from sessions.types import SessionId
from tests.support.front_end import serving
from tests.support.whole_front import serving_whole


@pytest.mark.parametrize(
    ("sent", "is_kept"), [("trace-1.a_b", True), ("with space", False), ("x" * 200, False)]
)
async def test_a_sane_request_id_is_kept_and_any_other_replaced(sent, is_kept):
    asking = {"x-request-id": sent}
    async with serving() as front, front.client.get("/healthz", headers=asking) as answer:
        request_id = answer.headers["x-request-id"]
    assert (request_id == sent) is is_kept
    assert request_id


async def test_no_log_above_debug_has_a_users_words(caplog):
    caplog.set_level(logging.INFO)
    async with serving() as front:
        front.manager.auto_reply = "secret"
        session = await front.session()
        turns = f"/v1/sessions/{session.id}/turns"
        await front.call("POST", turns, json={"input": "secret", "metadata": {"secret": "secret"}})
        front.manager.raises = ZeroDivisionError("on purpose")
        await front.call("POST", turns, json={"input": "secret"})
        await front.call("POST", turns, json={"input": 5, "secret": "secret"})
        await front.call("POST", turns, data=b'{"secret')
        await front.call("GET", "/v1/sessions?after=secret&limit=secret")
        await front.call("GET", "/secret")

    records = [record for record in caplog.records if record.name.startswith("app")]
    assert len(records) >= 6
    assert not [r for r in records if "secret" in r.getMessage()]
    assert all(record.request_id for record in records)


@pytest.mark.parametrize("path", ["/", "/healthz", "/v1/nothing", "/metrics"])
async def test_no_answer_names_the_versions_it_was_made_with(path):
    async with serving() as front, front.client.get(path) as answer:
        assert answer.headers.getall("Server") == ["splice"]


async def test_every_answer_has_the_security_headers():
    async with serving() as front, front.client.get("/v1/nothing") as answer:
        assert answer.headers["Content-Security-Policy"] == (
            "default-src 'self'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
            "connect-src 'self'; object-src 'none'; base-uri 'none'; frame-ancestors 'none'"
        )
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
        assert answer.headers["Referrer-Policy"] == "no-referrer"


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("GET", "/v1/nothing", 404, "not_found"),
        ("POST", "/v1/nothing", 404, "not_found"),
        ("PUT", "/v1/sessions", 405, "method_not_allowed"),
        ("POST", "/v1/models", 405, "method_not_allowed"),
        ("GET", "/v1/ws", 426, "upgrade_required"),
    ],
)
async def test_a_wrong_address_or_method_is_answered_in_openais_shape(method, path, status, code):
    async with serving() as front:
        got, body = await front.call(method, path)

    assert (got, body["error"]["code"]) == (status, code)
    assert set(body["error"]) == {"message", "type", "param", "code"}


async def test_a_wrong_method_is_answered_with_those_that_are_right():
    async with serving() as front, front.client.put("/v1/sessions") as answer:
        assert answer.headers["Allow"] == "GET, HEAD, POST"


async def test_only_jsons_own_blanks_are_an_empty_body():
    async with serving() as front:
        empty, _ = await front.call("POST", "/v1/sessions", data=b" \r\n\t")
        status, body = await front.call("POST", "/v1/sessions", data=b"\x0c")

    assert empty == 201
    assert (status, body["error"]["code"]) == (400, "invalid_request")


async def test_an_address_that_is_none_is_told_those_there_are():
    async with serving() as front:
        _, body = await front.call("POST", "/v1/embeddings", json={"input": "x"})
        _, document = await front.call("GET", "/openapi.json")

    named = re.findall(r"/v1/[a-z/]+", body["error"]["message"])
    assert len(named) == 6
    assert set(named) <= set(document["paths"])


async def test_the_version_is_told():
    async with serving(version="1.2.3") as front:
        assert await front.call("GET", "/version") == (200, {"version": "1.2.3"})


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("/v1/responses/resp_1", "no response has the id 'resp_1'"),
        ("/v1/conversations/conv_1", "no conversation has the id 'conv_1'"),
        ("/v1/conversations/conv_1/items", "no conversation has the id 'conv_1'"),
        ("/v1/sessions/conv_1", "no session has the id 'conv_1'"),
    ],
)
async def test_what_is_not_there_is_told_in_the_words_of_the_address(tmp_path, path, said):
    async with serving_whole(tmp_path) as front:
        status, body = await front.call("GET", path)

    assert (status, body["error"]["message"]) == (404, said)


@pytest.mark.parametrize("is_chunked", [False, True])
async def test_a_body_that_is_too_large_is_refused(is_chunked):
    async def chunks():
        for _ in range(30):
            yield b" " * 100

    async with serving(max_body_bytes=1000) as front:
        data = chunks() if is_chunked else b" " * 3000
        status, body = await front.call("POST", "/v1/sessions", data=data)

    assert (status, body["error"]["code"]) == (413, "request_too_large")
    assert "more than 1,000 bytes, the most that max_body_bytes" in body["error"]["message"]


@pytest.mark.parametrize(
    "data", [b"{", b"[]", b"\xff", b"[" * 5000, b'{"title": %s}' % (b"9" * 5000), b"null"]
)
async def test_a_body_that_is_no_object_is_refused_kindly(data):
    async with serving() as front:
        status, body = await front.call("POST", "/v1/sessions", data=data)

    assert (status, body["error"]["code"]) == (400, "invalid_request")


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost:8000", 200),
        ("127.0.0.1", 200),
        ("[::1]:8000", 200),
        ("192.168.1.9:8000", 200),
        ("chat.localhost", 200),
        ("chat.example:443", 200),
        ("evil.example", 403),
        ("localhost.evil.example", 403),
        ("[", 403),
        ("", 403),
    ],
)
async def test_only_our_own_host_names_are_answered(host, status):
    async with serving(allowed_hosts=("Chat.example",)) as front:
        got, _ = await front.call("GET", "/v1/models", headers={"Host": host})

    assert got == status


async def test_probes_are_answered_under_any_name():
    async with serving() as front:
        assert (await front.call("GET", "/healthz", headers={"Host": "splice"}))[0] == 200


@pytest.mark.parametrize(
    ("origin", "status"),
    [
        ("http://localhost:8000", 201),
        ("https://friend.example", 201),
        ("http://evil.example", 403),
        ("http://localhost:9000", 403),
        ("null", 403),
    ],
)
async def test_a_foreign_page_can_change_nothing(origin, status):
    headers = {"Host": "localhost:8000", "Origin": origin}
    async with serving(allowed_origins=("https://friend.example/",)) as front:
        got, _ = await front.call("POST", "/v1/sessions", headers=headers)

    assert got == status


@pytest.mark.parametrize(
    ("headers", "is_refused"),
    [
        ({"Origin": "http://evil.example"}, True),
        ({"Origin": "null"}, True),
        ({"Host": "evil.example", "Origin": "http://evil.example"}, True),
        ({"Origin": "https://friend.example"}, False),
        ({}, False),
    ],
)
async def test_a_foreign_page_gets_no_socket(headers, is_refused):
    async with serving(allowed_origins=("https://friend.example",)) as front:
        try:
            async with front.client.ws_connect("/v1/ws", headers=headers):
                status = 101
        except WSServerHandshakeError as exc:
            status = exc.status

    assert status == (403 if is_refused else 101)


async def test_an_allowed_origin_may_ask_and_read():
    asking = {"Origin": "https://friend.example", "Access-Control-Request-Method": "POST"}
    async with serving(allowed_origins=("https://friend.example",)) as front:
        async with front.client.options("/v1/sessions", headers=asking) as answer:
            assert answer.status == 204
            assert answer.headers["Access-Control-Allow-Origin"] == "https://friend.example"
        foreign = {**asking, "Origin": "https://evil.example"}
        async with front.client.options("/v1/sessions", headers=foreign) as answer:
            assert answer.status == 403
            assert "Access-Control-Allow-Origin" not in answer.headers


@pytest.mark.parametrize(
    ("raises", "is_stuck", "detail"),
    [
        (StoreUnavailableError("gone"), False, "the database can't be read"),
        (None, True, "the database does not answer"),
    ],
)
async def test_readyz_looks_at_the_database_and_answers_soon(raises, is_stuck, detail):
    async with serving() as front:
        front.manager.catalog.raises = raises
        front.manager.catalog.is_stuck = is_stuck
        async with asyncio.timeout(5):
            status, body = await front.call("GET", "/readyz")
        assert (await front.call("GET", "/healthz"))[0] == 200

    assert status == 503
    assert body == {"status": "unready", "state": "store_unavailable", "detail": detail}


async def test_readyz_says_why_it_is_not_ready():
    async with serving(is_loaded=False) as front:
        front.readiness.progress("loading weights")
        status, body = await front.call("GET", "/readyz")
        assert (status, body["state"], body["detail"]) == (503, "starting", "loading weights")

        front.readiness.loaded()
        assert (await front.call("GET", "/readyz"))[0] == 200
        front.engine.state = "restarting"
        status, body = await front.call("GET", "/readyz")
        assert (status, body["state"]) == (503, "restarting")
        assert (await front.call("GET", "/healthz"))[0] == 200


async def test_metrics_are_prometheus_text_and_answer_without_an_engine():
    async with serving() as front:
        session = await front.session()
        await front.call("GET", f"/v1/sessions/{session.id}")
        async with front.client.get("/metrics") as answer:
            text = await answer.text()
        front.engine.raises = EngineUnavailableError("gone")
        async with front.client.get("/metrics") as answer:
            without = await answer.text()
            assert answer.status == 200

    for line in (
        'splice_ttft_seconds_bucket{le="0.1"} 1.0',
        'splice_ttft_seconds_bucket{le="+Inf"} 3.0',
        "splice_ttft_seconds_sum 4.5",
        "splice_inter_token_seconds_count 3.0",
        'splice_prompt_tokens_total{source="device"} 112.0',
        'splice_misses_total{reason="evicted"} 4.0',
        'splice_blocks{state="parked"} 2.0',
        "splice_queue_depth 7.0",
        "splice_ready 1.0",
        'splice_http_requests_total{method="GET",route="/v1/sessions/{session}",status="200"} 1.0',
    ):
        assert line in text
    assert "splice_ttft_seconds" not in without
    assert "splice_ws_connections 0.0" in without


async def test_models_lists_the_model_and_its_aliases():
    async with serving(model_aliases=("default", "gpt-local")) as front:
        _, page = await front.call("GET", "/v1/models")
        assert [m["id"] for m in page["data"]] == ["org/tiny", "default", "gpt-local"]
        assert page["data"][1]["owned_by"] == "alias:org/tiny"
        assert page["data"][0]["max_model_len"] == 2048
        assert (await front.call("GET", "/v1/models/org/tiny"))[1] == page["data"][0]
        status, body = await front.call("GET", "/v1/models/gpt-9")
        assert (status, body["error"]["code"]) == (404, "model_not_found")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=9), inner),
    max_leaves=8,
)
FIELDS = st.sampled_from(
    [
        "messages",
        "model",
        "stop",
        "n",
        "tools",
        "stream_options",
        "max_tokens",
        "seed",
        "logit_bias",
    ]
)


async def test_no_body_can_make_the_server_fail():
    async with serving() as front:
        session = await front.session()
        bodies: list = []

        @settings(max_examples=150, database=None, suppress_health_check=list(HealthCheck))
        @given(JSON | st.dictionaries(FIELDS, JSON))
        def collect(body):
            bodies.append(body)

        collect()
        turns = f"/v1/sessions/{SessionId(session.id)}/turns"
        for body in bodies:
            for path in ("/v1/chat/completions", "/v1/sessions", turns + "/resp_0/regenerate"):
                try:
                    status, answer = await front.call("POST", path, json=body)
                except (UnicodeEncodeError, OverflowError):
                    continue  # not every text can be sent
                assert status in (201, 400, 404), (path, body, answer)


async def test_the_log_names_the_session_and_turn_that_an_address_names(caplog):
    caplog.set_level(logging.INFO)
    async with serving() as front:
        await front.call("GET", "/v1/sessions/conv_00ab/turns/resp_00cd")
        await front.call("GET", "/v1/sessions/my%20secret/turns/conv_secret")

    named, words = [r for r in caplog.records if r.name == "app.middleware"]
    assert (named.session_id, named.turn_id, named.owner) == ("conv_00ab", "resp_00cd", "anonymous")
    assert "secret" not in str({**words.__dict__})
