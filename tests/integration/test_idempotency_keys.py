"""`Idempotency-Key`: what opens a session or goes into one is done once, not at every sending."""

import asyncio

import pytest

from tests.support.fake_engine import FakeReply
from tests.support.whole_front import serving_whole


async def test_a_session_is_opened_once_however_many_ask_with_its_key(tmp_path):
    """At the same time, and later with something else."""
    async with serving_whole(tmp_path) as front:
        key = {"Idempotency-Key": "k1"}

        async def create(**fields):
            return await front.call("POST", "/v1/sessions", json=fields, headers=key)

        answers = await asyncio.gather(*(create(title="t") for _ in range(6)))
        assert {status for status, _ in answers} == {201}
        (made,) = {session["id"] for _, session in answers}

        status, refused = await create(title="u")
        assert (status, refused["error"]["code"]) == (409, "idempotency_conflict")
        await front.call("PATCH", f"/v1/sessions/{made}", json={"title": "v"})
        assert (await create(title="t"))[1]["title"] == "v"
        await front.call("DELETE", f"/v1/sessions/{made}")
        status, refused = await create(title="t")
        assert (status, refused["error"]["code"]) == (409, "idempotency_conflict")
        await front.call("POST", f"/v1/sessions/{made}/restore")
        assert (await create(title="t"))[1]["id"] == made

        key["Idempotency-Key"] = "k2"
        assert (await create(title="t"))[1]["id"] != made


async def test_of_two_requests_with_one_key_each_finds_what_it_opened(tmp_path):
    async with serving_whole(tmp_path) as front:
        key = {"Idempotency-Key": "k"}

        async def create(title):
            return await front.call("POST", "/v1/sessions", json={"title": title}, headers=key)

        made = await asyncio.gather(create("t"), create("u"))
        opened = {s["title"]: s["id"] for status, s in made if status == 201}
        again = {title: (await create(title))[1]["id"] for title in opened}

        assert opened
        assert again == opened
        assert (await create("v"))[0] == 409


@pytest.mark.parametrize("key", ["", "x" * 201])
async def test_a_key_that_is_none_is_refused_by_name(tmp_path, key):
    async with serving_whole(tmp_path) as front:
        headers = {"Idempotency-Key": key}
        status, refused = await front.call("POST", "/v1/sessions", json={}, headers=headers)

    assert (status, refused["error"]["param"]) == (400, "Idempotency-Key")


async def test_items_that_are_put_in_again_with_their_key_are_there_once(tmp_path):
    item = {"role": "user", "content": "aside"}
    async with serving_whole(tmp_path) as front:
        headers = {"Idempotency-Key": "k"}
        made = [
            await front.call("POST", "/v1/conversations", json={"items": [item]}, headers=headers)
            for _ in range(2)
        ]
        path = f"/v1/conversations/{made[0][1]['id']}/items"
        put = [
            await front.call(
                "POST", path, json={"items": [item]}, headers=headers | {"Idempotency-Key": "l"}
            )
            for _ in range(2)
        ]
        other = {"items": [{**item, "content": "b"}]}
        status, _ = await front.call("POST", path, json=other, headers={"Idempotency-Key": "l"})
        listed = (await front.call("GET", path))[1]["data"]

    assert made[0] == made[1]
    assert put[0] == put[1]
    assert status == 409
    assert len(listed) == 2


async def test_an_import_and_a_fork_are_made_once_by_their_keys(tmp_path):
    async with serving_whole(tmp_path) as front:
        session = await front.session(title="t")
        await front.say(session["id"])
        exported = (await front.call("GET", f"/v1/sessions/{session['id']}/export"))[1]
        for path, body in (
            (f"/v1/sessions/{session['id']}/fork", {}),
            ("/v1/sessions/import", exported),
        ):
            headers = {"Idempotency-Key": f"of {path[-6:]}"}
            first = await front.call("POST", path, json=body, headers=headers)
            await front.say(session["id"])  # the head moves, and what was made does not
            again = await front.call("POST", path, json=body, headers=headers)
            assert first == again
            assert first[0] == 201
            headers["Idempotency-Key"] += ", another"
            assert (await front.call("POST", path, json=body, headers=headers))[0] == 201


async def test_a_response_with_a_key_goes_on_for_its_client_to_ask_again(tmp_path):
    async with serving_whole(tmp_path) as front:
        session = (await front.session(title="t"))["id"]
        front.engine.replies.append(FakeReply(holds_after=1))
        body = {"input": "hi", "conversation": session, "stream": True}
        headers = {"Idempotency-Key": "k"}
        async with front.client.post("/v1/responses", json=body, headers=headers) as answer:
            await answer.content.readuntil(b"response.output_text.delta")
            answer.close()
        (turn,) = (await front.call("GET", f"/v1/sessions/{session}"))[1]["active"]
        front.engine.let_go()
        body["stream"] = False
        status, response = await front.call("POST", "/v1/responses", json=body, headers=headers)
        other = {**body, "input": "ho"}
        refused, _ = await front.call("POST", "/v1/responses", json=other, headers=headers)
        turns = (await front.call("GET", f"/v1/sessions/{session}/turns?all=true"))[1]["data"]

    assert (status, response["id"], response["status"]) == (200, turn, "completed")
    assert refused == 409
    assert [t["id"] for t in turns] == [turn]


async def test_a_response_is_known_again_though_its_conversation_has_changed(tmp_path):
    """A summary and the session's sampling go into what is made of it, and are others by now."""
    async with serving_whole(tmp_path) as front:
        session = (await front.session())["id"]
        await front.say(session, "one " * 20)
        compact = [{"type": "compaction", "compact_threshold": 1}]
        body = {"input": "hi", "conversation": session, "context_management": compact}
        headers = {"Idempotency-Key": "k"}
        front.engine.replies.append(FakeReply(pieces=("In short.",)))
        first = await front.call("POST", "/v1/responses", json=body, headers=headers)
        await front.call("PATCH", f"/v1/sessions/{session}", json={"sampling": {"top_p": 0.5}})
        num_asked = len(front.engine.requests)
        front.engine.replies.append(FakeReply(pieces=("In other words.",)))
        again = await front.call("POST", "/v1/responses", json=body, headers=headers)

    assert first == again
    assert first[0] == 200
    assert [item["type"] for item in first[1]["output"]] == ["compaction", "message"]
    assert len(front.engine.requests) == num_asked  # nothing was summed up again


async def test_two_owners_may_have_the_same_key(tmp_path):
    async with serving_whole(tmp_path) as front:
        asked = {"path": "/v1/sessions"}
        made = [
            await front.manager.keyed.opened(
                owner, "k", asked, lambda new, owner=owner: front.manager.create(owner, id=new)
            )
            for owner in ("ann", "bob", "ann")
        ]

    assert made[0] == made[2]
    assert made[0].id != made[1].id
