"""Two tabs agree: what anybody does to a session reaches everybody who watches it."""

import asyncio

import pytest
from sqlalchemy import text

from sessions.database import Database
from sessions.session_events import KEPT
from sessions.store import Store
from sessions.types import SessionChange
from tests.integration.test_openapi import schema_of
from tests.support.fake_engine import FakeReply
from tests.support.front_end import receive, receive_until
from tests.support.whole_front import serving_whole


async def subscribe(ws, session, **fields):
    """Watch a session; what it says at once."""
    await ws.send_json({"type": "session.subscribe", "conversation": session["id"], **fields})
    return await receive(ws)


async def changes(ws, number):
    """The next changes; other frames are passed over."""
    found = []
    while len(found) < number:
        frame = await receive(ws)
        if frame["type"] == "splice:session.changed":
            found.append(frame)
    return found


async def test_whatever_is_done_by_rest_or_a_socket_reaches_every_watcher(tmp_path):
    async with (
        serving_whole(tmp_path) as front,
        front.client.ws_connect("/v1/ws") as one,
        front.client.ws_connect("/v1/ws") as two,
    ):
        session = await front.session(title="old")
        path = f"/v1/sessions/{session['id']}"
        states = [await subscribe(ws, session, event_id="e") for ws in (one, two)]

        await one.send_json(
            {"type": "response.create", "conversation": session["id"], "input": "hi"}
        )
        seen = await changes(two, 2)
        turn = seen[0]["response_id"]
        await front.call("PATCH", path, json={"title": "new", "pinned": True})
        await front.call("POST", path + "/head", json={"turn": None})
        await front.call("DELETE", path)
        await front.call("POST", path + "/restore")
        seen += await changes(two, 4)
        mine = await changes(one, 6)

    assert states[0] == states[1]
    assert states[0] == {
        "type": "splice:session.state",
        "conversation": session["id"],
        "revision": session["revision"],
        "resync": False,
        "session": session,
        "event_id": "e",
    }
    assert [(f["change"], f["response_id"], f["status"]) for f in seen] == [
        ("turn_started", turn, None),
        ("turn_ended", turn, "completed"),
        ("updated", None, None),
        ("head_moved", None, None),
        ("deleted", None, None),
        ("restored", None, None),
    ]
    assert seen[2]["fields"] == ["pinned", "title"]
    first = session["revision"] + 1
    assert [f["revision"] for f in seen] == list(range(first, first + 6))
    assert [f["revision"] for f in mine] == [f["revision"] for f in seen]
    assert mine[-1]["session"] == seen[-1]["session"]
    assert seen[-1]["session"]["title"] == "new"
    assert seen[-1]["session"]["head"] is None


async def test_a_deleted_session_is_shown_as_none(tmp_path):
    async with serving_whole(tmp_path) as front, front.client.ws_connect("/v1/ws") as ws:
        session = await front.session()
        await subscribe(ws, session)
        await front.call("DELETE", f"/v1/sessions/{session['id']}")
        (deleted,) = await changes(ws, 1)

    assert (deleted["change"], deleted["session"]) == ("deleted", None)


async def test_what_was_missed_is_told_again_behind_the_cursor(tmp_path):
    async with serving_whole(tmp_path) as front:
        session = await front.session()
        turn = await front.say(session["id"])
        await front.call("PATCH", f"/v1/sessions/{session['id']}", json={"title": "t"})
        now = (await front.call("GET", f"/v1/sessions/{session['id']}"))[1]
        async with front.client.ws_connect("/v1/ws") as ws:
            state = await subscribe(ws, session, after=session["revision"] + 1)
            missed = await changes(ws, 2)

    assert (state["revision"], state["resync"]) == (session["revision"] + 1, False)
    assert [f["change"] for f in missed] == ["turn_ended", "updated"]
    assert missed[0]["response_id"] == turn["id"]
    # The older one is overtaken already; the newest says how the session is.
    assert [f["session"] for f in missed] == [None, now]


@pytest.mark.parametrize("after", [0, 10_000])
async def test_a_cursor_that_can_not_be_continued_from_gets_a_resync(tmp_path, after):
    async with serving_whole(tmp_path) as front, front.client.ws_connect("/v1/ws") as ws:
        session = await front.session()
        state = await subscribe(ws, session, after=after)
        await front.call("PATCH", f"/v1/sessions/{session['id']}", json={"title": "t"})
        (changed,) = await changes(ws, 1)

    assert (state["resync"], state["revision"]) == (True, session["revision"])
    assert state["session"] == session
    assert changed["revision"] == session["revision"] + 1


async def test_only_the_newest_events_are_kept_and_an_older_cursor_gets_a_resync(tmp_path):
    async with serving_whole(tmp_path) as front:
        session = await front.session()
        database = Database(f"sqlite:///{tmp_path / 'splice.db'}")
        store = Store(database)
        for number in range(2 * KEPT):
            change = SessionChange(named=frozenset({"title"}), title=f"{number}")
            await store.change_session("anonymous", session["id"], change, expected_revision=None)
        news = await store.news(session["id"], KEPT)
        await database.close()
        async with front.client.ws_connect("/v1/ws") as ws:
            old = await subscribe(ws, session, after=session["revision"])
            young = await subscribe(ws, session, after=KEPT)

    assert old["resync"] is True
    assert young["resync"] is False
    assert [e.revision for e in news.events] == list(range(KEPT + 1, 2 * KEPT + 2))


async def test_a_session_is_watched_once_a_socket_and_again_moves_the_cursor(tmp_path):
    async with serving_whole(tmp_path) as front, front.client.ws_connect("/v1/ws") as ws:
        session = await front.session()
        await subscribe(ws, session)
        await subscribe(ws, session)
        await front.call("PATCH", f"/v1/sessions/{session['id']}", json={"title": "t"})
        await changes(ws, 1)
        await ws.send_json({"type": "session.unsubscribe", "conversation": session["id"]})
        await ws.send_json({"type": "ping", "nonce": 1})
        behind = await receive(ws)
        await front.call("PATCH", f"/v1/sessions/{session['id']}", json={"title": "u"})
        await ws.send_json({"type": "ping", "nonce": 2})
        last = await receive(ws)

    assert [behind["nonce"], last["nonce"]] == [1, 2]


async def test_nobody_watches_what_is_not_there_or_too_much(tmp_path):
    async with (
        serving_whole(tmp_path, max_subscriptions=1) as front,
        front.client.ws_connect("/v1/ws") as ws,
    ):
        missing = await subscribe(ws, {"id": "conv_0"}, event_id="e1")
        session, other = await front.session(), await front.session()
        await subscribe(ws, session)
        refused = await subscribe(ws, other, event_id="e2")

    assert (missing["status"], missing["error"]["code"]) == (404, "session_not_found")
    assert (missing["event_id"], missing["conversation"]) == ("e1", "conv_0")
    assert (refused["error"]["code"], refused["event_id"]) == ("too_many_subscriptions", "e2")


async def test_many_changes_at_once_arrive_in_order_and_each_once(tmp_path):
    async with serving_whole(tmp_path) as front, front.client.ws_connect("/v1/ws") as ws:
        sessions = [await front.session() for _ in range(4)]
        for session in sessions:
            await subscribe(ws, session)
        front.engine.default = FakeReply(pieces=("a", "b"))

        async def use(session):
            for number in range(5):
                await front.say(session["id"], f"{number}")
                await front.call(
                    "PATCH", f"/v1/sessions/{session['id']}", json={"title": f"{number}"}
                )

        await asyncio.gather(*(use(session) for session in sessions))
        seen = await changes(ws, 4 * 15)

    for session in sessions:
        mine = [f["revision"] for f in seen if f["conversation"] == session["id"]]
        assert mine == list(range(session["revision"] + 1, session["revision"] + 16))


async def test_the_events_are_still_there_after_a_restart(tmp_path):
    async with serving_whole(tmp_path) as front:
        session = await front.session()
        await front.say(session["id"])
    async with serving_whole(tmp_path) as front, front.client.ws_connect("/v1/ws") as ws:
        await subscribe(ws, session, after=session["revision"])
        frames = await receive_until(ws, "splice:session.changed")
        frames += await changes(ws, 1)

    assert [f["change"] for f in frames] == ["turn_started", "turn_ended"]


async def test_a_gap_that_nobody_can_explain_ends_in_a_resync(tmp_path):
    async with serving_whole(tmp_path) as front, front.client.ws_connect("/v1/ws") as ws:
        session = await front.session()
        await subscribe(ws, session, event_id="e")
        async with front.database.writing() as tx:
            await tx.execute(text("UPDATE sessions SET revision = revision + 1"))
        await front.call("PATCH", f"/v1/sessions/{session['id']}", json={"title": "t"})
        state = await receive(ws)
        await front.call("PATCH", f"/v1/sessions/{session['id']}", json={"title": "u"})
        (changed,) = await changes(ws, 1)

    assert (state["type"], state["resync"]) == ("splice:session.state", True)
    assert (state["revision"], state["session"]["title"]) == (session["revision"] + 2, "t")
    assert changed["revision"] == state["revision"] + 1


async def test_the_frames_are_as_the_document_says(tmp_path):
    async with serving_whole(tmp_path) as front, front.client.ws_connect("/v1/ws") as ws:
        document = (await front.call("GET", "/openapi.json"))[1]
        session = await front.session()
        frames = [await subscribe(ws, session)]
        await front.say(session["id"])
        await front.call("DELETE", f"/v1/sessions/{session['id']}")
        frames += await changes(ws, 3)
        frames.append(await subscribe(ws, {"id": "conv_0"}, event_id="e"))

    validator = schema_of(document, "ServerFrame")
    assert not [error.message for frame in frames for error in validator.iter_errors(frame)]
    asked = {"type": "session.subscribe", "conversation": "conv_1", "after": 3}
    assert schema_of(document, "ClientFrame").is_valid(asked)
