"""Sessions and turns over HTTP, on a real socket."""

import asyncio

import orjson
import pytest

from model.errors import EngineBusyError, EngineUnavailableError
from sessions.errors import StoreUnavailableError
from sessions.types import TurnStatus
from tests.support.front_end import serving


async def test_a_session_is_made_shown_listed_and_deleted():
    async with serving() as front:
        status, session = await front.call("POST", "/v1/sessions", json={"title": "Norway"})
        assert (status, session["title"], session["head"]) == (201, "Norway", None)
        path = f"/v1/sessions/{session['id']}"

        assert await front.call("GET", path) == (200, session)
        status, page = await front.call("GET", "/v1/sessions")
        assert page["data"] == [session]
        assert page["first_id"] == page["last_id"] == session["id"]

        assert (await front.call("DELETE", path))[1]["deleted"] is True
        status, body = await front.call("GET", path)
        assert (status, body["error"]["code"]) == (404, "session_not_found")


async def test_a_session_needs_no_body():
    async with serving() as front:
        assert (await front.call("POST", "/v1/sessions"))[0] == 201


async def test_a_session_shows_what_becomes_of_reasoning():
    async with serving() as front:
        _, usual = await front.call("POST", "/v1/sessions")
        status, dropping = await front.call("POST", "/v1/sessions", json={"reasoning": "drop"})
        assert (status, dropping["reasoning"], usual["reasoning"]) == (201, "drop", "template")

        status, body = await front.call("POST", "/v1/sessions", json={"reasoning": "forget"})
        assert (status, body["error"]["param"]) == (400, "reasoning")


async def test_a_list_goes_on_behind_a_session():
    async with serving() as front:
        sessions = [await front.session() for _ in range(3)]
        query = f"limit=1&after={sessions[0].id}&order=asc"
        _, page = await front.call("GET", f"/v1/sessions?{query}")

    assert [s["id"] for s in page["data"]] == [sessions[1].id]
    assert page["has_more"] is True


@pytest.mark.parametrize(
    ("query", "param"),
    [
        ("limit=0", "limit"),
        ("limit=x", "limit"),
        ("limit=1_0", "limit"),
        ("limit=%2B3", "limit"),
        ("limit=%D9%A3", "limit"),
        ("order=up", "order"),
    ],
)
async def test_a_wrong_query_is_named(query, param):
    async with serving() as front:
        status, body = await front.call("GET", f"/v1/sessions?{query}")

    assert (status, body["error"]["param"]) == (400, param)


async def test_a_body_in_a_wrong_encoding_is_the_senders_mistake():
    async with serving() as front:
        status, body = await front.call(
            "POST",
            "/v1/sessions",
            data=b"{}",
            headers={"Content-Encoding": "gzip", "Content-Type": "application/json"},
        )

    assert (status, body["error"]["code"]) == (400, "invalid_request")


async def test_a_turn_answers_with_the_whole_response():
    async with serving() as front:
        front.manager.auto_reply = "the capital"
        session = await front.session()
        body = {"input": "hi", "temperature": 0.1, "client_turn_id": "c1"}
        status, turn = await front.call("POST", f"/v1/sessions/{session.id}/turns", json=body)

        assert status == 200
        assert turn["status"] == "completed"
        assert turn["output"][0]["content"][0]["text"] == "thecapital"
        assert front.manager.requests[0].params.temperature == 0.1
        again = await front.call("POST", f"/v1/sessions/{session.id}/turns", json=body)
        assert again == (200, turn)
        path = f"/v1/sessions/{session.id}/turns"
        assert (await front.call("GET", f"{path}/{turn['id']}"))[1] == turn
        assert (await front.call("GET", path))[1]["data"] == [turn]


async def test_a_turn_is_found_in_its_own_session_only():
    async with serving() as front:
        front.manager.auto_reply = "x"
        session, other = await front.session(), await front.session()
        path = f"/v1/sessions/{session.id}/turns"
        _, turn = await front.call("POST", path, json={"input": "hi"})
        status, body = await front.call("GET", f"/v1/sessions/{other.id}/turns/{turn['id']}")

    assert (status, body["error"]["code"]) == (404, "turn_not_found")


async def test_a_regenerated_turn_is_drawn_as_before_but_not_with_its_seed():
    async with serving() as front:
        front.manager.auto_reply = "x"
        session = await front.session()
        path = f"/v1/sessions/{session.id}/turns"
        body = {"input": "hi", "temperature": 0.3, "seed": 5}
        _, turn = await front.call("POST", path, json=body)
        status, sibling = await front.call(
            "POST", f"{path}/{turn['id']}/regenerate", json={"top_p": 0.5}
        )

        assert status == 200
        assert sibling["input"] == turn["input"]
        params = front.manager.requests[-1].params
        assert (params.temperature, params.top_p, params.seed) == (0.3, 0.5, None)


async def test_a_cancelled_turn_keeps_what_it_has():
    async with serving() as front:
        session = await front.session()
        path = f"/v1/sessions/{session.id}/turns"
        async with front.client.post(path, json={"input": "hi", "stream": True}) as stream:
            await stream.content.readline()
            turn = next(iter(front.manager.turns_by_id.values()))
            front.manager.say(turn.id, "partial")
            status, ended = await front.call("POST", f"{path}/{turn.id}/cancel")
            text = (await stream.read()).decode()

    assert (status, ended["status"]) == (200, "cancelled")
    assert ended["output"][0]["content"][0]["text"] == "partial"
    assert "event: response.incomplete" in text
    assert text.endswith("data: [DONE]\n\n")


async def test_a_fork_and_the_block_tables_are_shown():
    async with serving() as front:
        session = await front.session()
        status, fork = await front.call(
            "POST", f"/v1/sessions/{session.id}/fork", json={"at": "resp_9", "title": "b"}
        )
        assert (status, fork["forked_from"], fork["title"]) == (201, "resp_9", "b")
        _, kv = await front.call("GET", f"/v1/sessions/{session.id}/kv")
        assert kv["tables"][0]["blocks"][0] == {
            "block_id": 3,
            "num_tokens": 16,
            "tier": "device",
            "num_holders": 2,
            "hash": "ab",
            "stored_in": [],
        }
        assert kv["tiers"] == {"device": 1, "cpu": 0, "disk": 0, "shared": 1}
        _, cache = await front.call("GET", "/v1/cache")
        assert cache["blocks"] == {"running": 1, "parked": 2, "cached": 3, "empty": 58}
        assert [(t["name"], t["num_spilled"], t["num_lost"]) for t in cache["tiers"]] == [
            ("disk", 5, 0)
        ]


async def test_a_session_is_warmed_and_parked_and_says_where_it_is():
    async with serving() as front:
        session = await front.session()
        path = f"/v1/sessions/{session.id}"

        warmed = await front.call("POST", f"{path}/warm", json={"deadline_s": 2})
        parked = await front.call("POST", f"{path}/park", json={"tier": "disk"})
        nowhere = await front.call("POST", f"{path}/park", json={"tier": "device"})
        late = await front.call("POST", f"{path}/warm", json={"deadline_s": 0})
        _, shown = await front.call("GET", path)

    assert (warmed[0], warmed[1]["whole"], warmed[1]["device"]) == (200, True, 112)
    assert parked == (
        200,
        {
            "object": "session.parked",
            "conversation": session.id,
            "tier": "disk",
            "parked": True,
        },
    )
    assert (nowhere[0], nowhere[1]["error"]["param"]) == (400, "tier")
    assert (late[0], late[1]["error"]["param"]) == (400, "deadline_s")
    assert front.manager.presence.calls == [(session.id, 2.0), (session.id, "disk")]
    assert shown["kv"] == {
        "tier": "disk",
        "stored_in": ["disk"],
        "num_tokens": 16,
        "num_bytes": 4096,
        "used_at": 1_796_000_000,
    }


async def test_the_tiers_are_verified_on_demand():
    async with serving() as front:
        status, verified = await front.call("POST", "/v1/cache/verify", json={})

    assert (status, verified) == (200, {"object": "cache.verified", "num_lost": 2})


def _events(text):
    blocks = [block for block in text.split("\n\n") if block.startswith("event: ")]
    events = [orjson.loads(block.split("\ndata: ")[1]) for block in blocks]
    assert [block.split("\n")[0].removeprefix("event: ") for block in blocks] == [
        event["type"] for event in events
    ]
    return events


async def test_a_lost_stream_is_resumed_behind_its_cursor_and_the_turn_never_stopped():
    async with serving() as front:
        session = await front.session()
        path = f"/v1/sessions/{session.id}/turns"
        stream = await front.client.post(path, json={"input": "hi", "stream": True})
        turn = next(iter(front.manager.turns_by_id.values()))
        front.manager.say(turn.id, "one")
        seen = ""
        while "one" not in seen:
            seen += (await stream.content.readany()).decode()
        stream.close()
        cursor = _events(seen)[-1]["sequence_number"]
        await asyncio.wait_for(front.manager.feeds[turn.id].unread.wait(), 5)
        assert front.manager.turns_by_id[turn.id].status is TurnStatus.RUNNING

        front.manager.say(turn.id, "two")
        front.manager.end(turn.id)
        query = f"stream=true&starting_after={cursor}"
        async with front.client.get(f"{path}/{turn.id}?{query}") as resumed:
            assert resumed.content_type == "text/event-stream"
            rest = _events((await resumed.read()).decode())

    numbers = [event["sequence_number"] for event in (*_events(seen), *rest)]
    assert numbers == list(range(len(front.manager.feeds[turn.id].events)))
    assert rest[0]["delta"] == "two"


async def test_a_silent_stream_is_kept_alive():
    async with serving(sse_keepalive_s=0.05) as front:
        session = await front.session()
        path = f"/v1/sessions/{session.id}/turns"
        async with front.client.post(path, json={"input": "hi", "stream": True}) as stream:
            text = b""
            while b": keep-alive\n\n" not in text:
                text += await stream.content.readany()
            for turn_id in front.manager.turns_by_id:
                front.manager.end(turn_id)
            text += await stream.read()

    assert text.endswith(b"data: [DONE]\n\n")


@pytest.mark.parametrize(
    ("exc", "status", "code"),
    [
        (EngineBusyError("too many"), 429, "engine_busy"),
        (EngineUnavailableError("starting"), 503, "engine_unavailable"),
        (StoreUnavailableError("no database"), 503, "store_unavailable"),
        (ZeroDivisionError("secret"), 500, "internal"),
    ],
)
@pytest.mark.parametrize("is_streamed", [False, True])
async def test_an_error_before_the_first_event_has_its_own_status(exc, status, code, is_streamed):
    async with serving() as front:
        session = await front.session()
        front.manager.raises = exc
        path = f"/v1/sessions/{session.id}/turns"
        async with front.client.post(path, json={"input": "x", "stream": is_streamed}) as answer:
            body = await answer.json()
            assert (answer.status, body["error"]["code"]) == (status, code)
            retries = answer.headers["x-should-retry"] == "true"
            assert retries is (status in (429, 503))
            assert ("Retry-After" in answer.headers) is retries
            assert "secret" not in body["error"]["message"]


async def test_a_busy_session_says_that_waiting_helps():
    async with serving() as front:
        session = await front.session()
        path = f"/v1/sessions/{session.id}/turns"
        async with front.client.post(path, json={"input": "hi", "stream": True}):
            async with front.client.post(path, json={"input": "more"}) as answer:
                assert answer.status == 409
                assert answer.headers["x-should-retry"] == "true"
            for turn_id in front.manager.turns_by_id:
                front.manager.end(turn_id)
