"""Branches over HTTP and the websocket: trees, heads, and replies that go on."""

import pytest

from model.messages import FinishReason
from splice import AsyncClient
from tests.support.fake_engine import FakeReply
from tests.support.whole_front import serving_whole

CUT = FakeReply(pieces=("Once ", "upon"), reason=FinishReason.LENGTH)
REST = FakeReply(pieces=(" a ", "time"))


async def test_a_tree_shows_branches_and_the_head_goes_back_to_any(tmp_path):
    async with serving_whole(tmp_path) as front, AsyncClient(front.base_url) as client:
        session = await front.session()
        path = f"/v1/sessions/{session['id']}"
        first = await front.say(session["id"], "one")
        edited = await front.say(session["id"], "uno", parent=None)

        status, tree = await front.call("GET", path + "/tree")

        assert (status, tree["head"]) == (200, edited["id"])
        nodes = [(t["id"], t["parent"], t["input_preview"]) for t in tree["turns"]]
        assert nodes == [(first["id"], None, "one"), (edited["id"], None, "uno")]
        revision = tree["revision"]
        body = {"turn": first["id"], "expected_revision": revision}
        status, moved = await front.call("POST", path + "/head", json=body)
        assert (status, moved["head"], moved["revision"]) == (200, first["id"], revision + 1)
        assert (await front.say(session["id"]))["previous_response_id"] == first["id"]
        mine = await client.sessions.get(session["id"])
        assert (await mine.move_head(None)).head is None
        assert len((await mine.tree())["turns"]) == 3


@pytest.mark.parametrize(
    ("body", "status"), [({}, 400), ({"turn": "resp_none"}, 404), ({"turn": 1}, 400)]
)
async def test_a_head_that_cannot_be_is_refused(tmp_path, body, status):
    async with serving_whole(tmp_path) as front:
        session = await front.session()

        answer = await front.call("POST", f"/v1/sessions/{session['id']}/head", json=body)

        assert answer[0] == status


async def test_a_cut_reply_goes_on(tmp_path):
    async with serving_whole(tmp_path) as front, AsyncClient(front.base_url) as client:
        front.engine.replies.extend([CUT, REST, REST, REST, REST])
        session = await front.session(sampling={"max_output_tokens": 7})
        cut = await front.say(session["id"], "tell")
        path = f"/v1/sessions/{session['id']}/turns/{cut['id']}/continue"

        status, turn = await front.call("POST", path, json={})

        assert (status, turn["output"][0]["content"][0]["text"]) == (200, "Once upon a time")
        assert turn["input"] == cut["input"]
        assert turn["max_output_tokens"] == 9 + 7
        mine = await client.sessions.get(session["id"])
        assert (await mine.go_on(cut["id"], max_output_tokens=50)).text == "Once upon a time"
        on = await mine.stream_on(cut["id"], max_output_tokens=40).final()
        _, stored = await front.call("GET", f"/v1/sessions/{session['id']}/turns/{on.id}")
        assert (on.text, stored["max_output_tokens"]) == ("Once upon a time", 9 + 40)
        async with front.client.ws_connect("/v1/ws") as ws:
            await ws.send_json({"type": "response.continue", "response_id": cut["id"]})
            events = [await ws.receive_json()]
            while events[-1]["type"] != "response.completed":
                events.append(await ws.receive_json())
        deltas = [e["delta"] for e in events if e["type"] == "response.output_text.delta"]
        assert deltas == ["Once upon", " a ", "time"]
        assert [e["sequence_number"] for e in events] == list(range(len(events)))


async def test_a_complete_reply_does_not_go_on(tmp_path):
    async with serving_whole(tmp_path) as front:
        session = await front.session()
        turn = await front.say(session["id"])
        path = f"/v1/sessions/{session['id']}/turns/{turn['id']}/continue"

        status, body = await front.call("POST", path)

        assert (status, body["error"]["code"]) == (409, "conflict")
        status, body = await front.call("POST", path, json={"max_output_tokens": 0})
        assert (status, body["error"]["param"]) == (400, "max_output_tokens")
