"""Sessions over HTTP, with the real sessions layer behind it."""

import pytest

from splice import AsyncClient, ConflictError
from tests.support.whole_front import serving_whole


async def test_a_session_is_renamed_pinned_and_given_settings(tmp_path):
    async with serving_whole(tmp_path) as front:
        session = await front.session(title="Old")
        path = f"/v1/sessions/{session['id']}"
        fields = {"title": "New", "pinned": True, "sampling": {"temperature": 0.2, "top_k": 5}}

        status, changed = await front.call("PATCH", path, json=fields)

        assert (status, changed) == (200, {**session, **fields, "revision": 2})
        assert await front.call("GET", path) == (200, changed)
        _, cleared = await front.call("PATCH", path, json={"title": None, "sampling": None})
        assert (cleared["title"], cleared["sampling"], cleared["pinned"]) == (None, {}, True)


async def test_a_lost_update_is_a_conflict(tmp_path):
    async with serving_whole(tmp_path) as front:
        session = await front.session()
        path = f"/v1/sessions/{session['id']}"
        await front.call("PATCH", path, json={"title": "first", "expected_revision": 1})

        status, body = await front.call("PATCH", path, json={"title": "x", "expected_revision": 1})

        assert (status, body["error"]["code"]) == (409, "revision_conflict")


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"titel": "x"}, "titel"),
        ({"sampling": {"temperature": 3}}, "sampling.temperature"),
        ({"sampling": {"warmth": 1}}, "sampling.warmth"),
        ({"pinned": None}, "pinned"),
        ({"reasoning": None}, "reasoning"),
        ({"reasoning": "some"}, "reasoning"),
        ({"auto_title": None}, "auto_title"),
        ({"instructions": 5}, "instructions"),
        ({"instructions": "a\0"}, "instructions"),
        ({"expected_revision": "1"}, "expected_revision"),
    ],
)
async def test_a_wrong_change_is_refused_by_name(tmp_path, body, param):
    async with serving_whole(tmp_path) as front:
        session = await front.session()

        status, answer = await front.call("PATCH", f"/v1/sessions/{session['id']}", json=body)

        assert (status, answer["error"]["param"]) == (400, param)


async def test_a_session_of_another_model_says_so_until_its_next_turn(tmp_path):
    async with serving_whole(tmp_path) as front:
        session = await front.session()
        path = f"/v1/sessions/{session['id']}"
        assert session["model_state"] == "loaded"
        await front.say(session["id"])
        front.engine.becomes(fingerprint="another")

        async def states() -> list[str]:
            _, one = await front.call("GET", path)
            _, page = await front.call("GET", "/v1/sessions")
            return [one["model_state"], *(s["model_state"] for s in page["data"])]

        assert await states() == ["fingerprint_changed"] * 2
        front.engine.becomes(model_id="another")
        assert await states() == ["other_model"] * 2
        assert (await front.say(session["id"]))["status"] == "completed"
        assert await states() == ["loaded"] * 2


async def test_a_turn_is_drawn_as_its_session_says_unless_it_says_more(tmp_path):
    async with serving_whole(tmp_path) as front:
        session = await front.session(sampling={"temperature": 0.25, "max_output_tokens": 9})

        await front.say(session["id"])
        await front.say(session["id"], temperature=1.5)
        async with front.client.ws_connect("/v1/ws") as ws:
            frame = {"type": "response.create", "conversation": session["id"], "input": "hi"}
            await ws.send_json(frame)
            while (await ws.receive_json())["type"] != "response.completed":
                pass

        drawn = [(r.params.temperature, r.params.max_output_tokens) for r in front.engine.requests]
        assert drawn == [(0.25, 9), (1.5, 9), (0.25, 9)]


async def test_lists_are_filtered(tmp_path):
    async with serving_whole(tmp_path) as front:
        for title, pinned in (("Norway", False), ("Sweden", True), ("North", False)):
            await front.session(title=title, pinned=pinned)

        async def titles(query: str) -> list[str]:
            status, page = await front.call("GET", f"/v1/sessions?{query}")
            assert status == 200
            return [s["title"] for s in page["data"]]

        assert await titles("q=nor") == ["North", "Norway"]
        assert await titles("pinned=true") == ["Sweden"]
        assert await titles("pinned=false&order=asc") == ["Norway", "North"]
        assert await titles("pinned_first=true") == ["Sweden", "North", "Norway"]
        status, body = await front.call("GET", "/v1/sessions?pinned=maybe")
        assert (status, body["error"]["param"]) == (400, "pinned")


@pytest.mark.parametrize(
    ("path", "param", "said"),
    [
        ("/v1/sessions?limti=3", "limti", "limti: unknown query parameter; did you mean limit?"),
        ("/v1/search?q=x&order=asc", "order", "order: unknown query parameter"),
        ("/v1/sessions/conv_1/tree?all=true", "all", "all: unknown query parameter"),
    ],
)
async def test_a_query_parameter_that_nobody_reads_is_refused(tmp_path, path, param, said):
    async with serving_whole(tmp_path) as front:
        status, body = await front.call("GET", path)

    assert (status, body["error"]["param"], body["error"]["message"]) == (400, param, said)


@pytest.mark.parametrize("path", ["/v1/models?x=1", "/v1/conversations/conv_1?x=1", "/healthz?x=1"])
async def test_a_query_is_nobodys_business_on_other_addresses(tmp_path, path):
    async with serving_whole(tmp_path) as front:
        assert (await front.call("GET", path))[0] != 400


async def test_the_client_changes_and_filters_sessions(tmp_path):
    async with serving_whole(tmp_path) as front, AsyncClient(front.base_url) as client:
        session = await client.sessions.create(title="Old")
        await client.sessions.create(title="Other")

        info = await session.update(title="New", pinned=True, expected_revision=1)

        assert (info.title, info.pinned, info.revision) == ("New", True, 2)
        assert [s.info.title async for s in client.sessions.list(q="new")] == ["New"]
        assert [s.info.title async for s in client.sessions.list(pinned=False)] == ["Other"]
        with pytest.raises(ConflictError):
            await session.update(title="Late", expected_revision=1)


async def test_words_are_looked_for(tmp_path):
    async with serving_whole(tmp_path) as front, AsyncClient(front.base_url) as client:
        session = await front.session(title="Trip to Norway")
        turn = await front.say(session["id"], "the fjords of norway")

        status, page = await front.call("GET", "/v1/search?q=norw")

        assert status == 200
        assert [hit["kind"] for hit in page["data"]] == ["message", "title"]
        assert page["data"][0] == {
            "id": turn["input"][0]["id"],
            "object": "search.result",
            "kind": "message",
            "conversation": {"id": session["id"], "title": "Trip to Norway"},
            "response_id": turn["id"],
            "role": "user",
            "snippet": "the fjords of norway",
            "highlights": [[14, 20]],
        }
        assert [hit async for hit in client.search("norway", limit=1)] == page["data"]


@pytest.mark.parametrize(
    ("query", "param"), [("", "q"), ("q=", "q"), ("q=a&limit=0", "limit"), ("q=a&after=x", "after")]
)
async def test_a_wrong_search_is_refused(tmp_path, query, param):
    async with serving_whole(tmp_path) as front:
        status, body = await front.call("GET", f"/v1/search?{query}")

        assert (status, body["error"]["param"]) == (400, param)


async def test_a_deletion_is_undone(tmp_path):
    async with serving_whole(tmp_path) as front, AsyncClient(front.base_url) as client:
        session = await front.session(title="T")
        path = f"/v1/sessions/{session['id']}"

        status, deleted = await front.call("DELETE", path)
        assert (status, deleted["undo_s"]) == (200, 86400.0)
        assert (await front.call("GET", path))[0] == 404
        status, restored = await front.call("POST", path + "/restore")
        assert (status, restored["title"]) == (200, "T")

        await client.sessions.delete(session["id"])
        assert (await client.sessions.restore(session["id"])).info.title == "T"
        await front.call("DELETE", path)
        front.clock.advance(86401)
        assert (await front.call("POST", path + "/restore"))[0] == 404
