"""Responses that meet: two behind one that is kept, one that is left as it begins."""

import asyncio

import pytest

from sessions.terms import Terms
from sessions.types import InputMessage, SamplingParams, TurnEnded, TurnRequest
from tests.support.chat import ANN
from tests.support.fake_engine import FakeReply
from tests.support.front_end import receive


def saying(text):
    return TurnRequest(
        input=(InputMessage(role="user", text=text),),
        params=SamplingParams(),
        terms=Terms(is_parsed=True),
    )


async def last(events):
    return [event.turn async for _, event in events if isinstance(event, TurnEnded)][-1]


async def test_what_is_followed_stays_until_its_followers_are_made(front):
    ephemeral = front.manager.ephemeral
    kept = await last(ephemeral.run(ANN, saying("one"), None, keeps=True))

    async with ephemeral.held(kept), ephemeral.held(kept):
        await ephemeral.forget(kept.id)
        assert ephemeral.told(kept.id) == (kept,)
        follower = await last(ephemeral.run(ANN, saying("two"), kept))
        assert follower.usage.cached_tokens > 0
    assert ephemeral.kept(ANN, kept.id) is None
    assert kept.session_id in front.engine.released


async def test_a_summary_stands_for_what_was_said_without_rows(front):
    async with front.client.ws_connect("/v1/responses") as ws:
        await ws.send_json({"type": "response.create", "input": "one " * 50, "store": False})
        while (frame := await receive(ws))["type"] != "response.completed":
            pass
        front.engine.replies.append(FakeReply(pieces=("In short.",)))
        body = {
            "type": "response.create",
            "input": "two",
            "previous_response_id": frame["response"]["id"],
            "context_management": [{"type": "compaction", "compact_threshold": 1}],
        }
        await ws.send_json(body)
        while (frame := await receive(ws))["type"] != "response.completed":
            assert frame["type"] not in ("error", "response.failed"), frame

    assert [item["type"] for item in frame["response"]["output"]] == ["compaction", "message"]
    assert len(frame["response"]["input"]) == 1


@pytest.mark.parametrize("is_background", [False, True])
async def test_a_response_whose_socket_is_lost_as_it_begins_is_as_if_lost_later(
    front, is_background
):
    front.engine.default = FakeReply(pieces=("a", "b"), holds_after=1)
    session = await front.session()
    body = {"input": "x", "conversation": session["id"], "background": is_background}
    # As long as somebody else writes, no turn can be stored.
    async with front.client.ws_connect("/v1/responses") as ws, front.database.writing():
        await ws.send_json({"type": "response.create", **body})
        while not front.manager.num_active:  # noqa: ASYNC110 - there is no event to wait for
            await asyncio.sleep(0)
        await ws.close()

    async with asyncio.timeout(5):
        while not (turns := await turns_of(front, session)):
            pass
        if is_background:
            front.engine.let_go()
        async with front.client.get(f"/v1/responses/{turns[0]['id']}?stream=true") as answer:
            await answer.read()
    (turn,) = await turns_of(front, session)
    assert turn["status"] == ("completed" if is_background else "cancelled")


async def turns_of(front, session):
    return (await front.call("GET", f"/v1/sessions/{session['id']}/turns"))[1]["data"]


async def test_a_response_that_cannot_begin_leaves_no_session(front):
    first = (await front.call("POST", "/v1/responses", json={"input": "x"}))[1]
    await front.call(
        "POST", "/v1/responses", json={"input": "y", "previous_response_id": first["id"]}
    )
    before = await unlisted(front)

    for fields in ({}, {"previous_response_id": first["id"]}):
        body = {"input": "x" * 9000, **fields}
        status, answer = await front.call("POST", "/v1/responses", json=body)
        assert (status, answer["error"]["code"]) == (400, "context_length_exceeded")

    assert await unlisted(front) == before


async def unlisted(front):
    sessions = (await front.call("GET", "/v1/sessions?listed=false"))[1]["data"]
    return [(session["id"], session["revision"]) for session in sessions]


async def test_a_response_that_is_deleted_while_it_streams_ends_and_is_found_no_more(front):
    front.engine.default = FakeReply(pieces=("a", "b"), holds_after=1)
    async with front.client.post("/v1/responses", json={"input": "x", "stream": True}) as answer:
        head = await answer.content.readuntil(b"\n\n")
        response_id = head.split(b'"id":"')[1].split(b'"')[0].decode()
        await front.engine.held(response_id)
        assert (await front.call("DELETE", f"/v1/responses/{response_id}"))[0] == 200
        rest = await answer.content.read()

    assert rest.endswith(b"data: [DONE]\n\n")
    assert b'"status":"cancelled"' in rest
    assert (await front.call("GET", f"/v1/responses/{response_id}"))[0] == 404
