"""Sessions as files: what goes out comes in again, and what is no session does not."""

import copy
import json

import pytest

from model.messages import FinishReason
from splice import AsyncClient
from tests.support.fake_engine import FakeReply
from tests.support.whole_front import serving_whole

FAILED = {"code": "engine_died", "message": "the engine died", "retryable": True}


def named_by_place(exported: dict) -> dict:
    """An export whose ids say only which turn is meant."""
    exported = copy.deepcopy(exported)
    numbers = {turn["id"]: number for number, turn in enumerate(exported["turns"])}
    exported["head"] = numbers.get(exported["head"])
    for turn in exported["turns"]:
        turn["id"], turn["parent"] = numbers[turn["id"]], numbers.get(turn["parent"])
    return exported


async def told(front) -> tuple[dict, dict]:
    """A session with an edited question, a regenerated and a cut reply: it and its export."""
    session = await front.session(
        title="Norway",
        instructions="Be brief.",
        metadata={"a": "b"},
        reasoning="keep",
        sampling={"temperature": 0.5},
        pinned=True,
    )
    path = f"/v1/sessions/{session['id']}"
    first = await front.say(session["id"], "one", stop=["#"], logit_bias={"5": 1.5})
    await front.say(session["id"], "two", metadata={"c": "d"})
    await front.call("POST", f"{path}/turns/{first['id']}/regenerate", json={"seed": 3})
    front.engine.replies.append(FakeReply(pieces=("cut",), reason=FinishReason.LENGTH))
    await front.say(session["id"], "due", parent=first["id"])
    status, exported = await front.call("GET", path + "/export")
    assert status == 200
    return session, exported


def a_turn(**changes) -> dict:
    turn = {
        "id": "1",
        "parent": None,
        "status": "completed",
        "created_at": 1795900000.5,
        "completed_at": 1795900001.5,
        "input": [{"role": "user", "content": "hello"}],
        "reply": "Hi",
    }
    return {**turn, **changes}


def a_file(*turns, **changes) -> dict:
    head = turns[-1]["id"] if turns else None
    whole = {"object": "splice.export", "version": 1, "session": {}, "head": head}
    return {**whole, "turns": list(turns), **changes}


async def test_what_goes_out_comes_in_again(tmp_path):
    async with serving_whole(tmp_path) as front:
        session, exported = await told(front)

        status, copied = await front.call("POST", "/v1/sessions/import", json=exported)

        assert status == 201
        assert copied["id"] != session["id"]
        again = (await front.call("GET", f"/v1/sessions/{copied['id']}/export"))[1]
        assert named_by_place(again) == named_by_place(exported)
        assert not {t["id"] for t in again["turns"]} & {t["id"] for t in exported["turns"]}
        assert [t["status"] for t in again["turns"]] == ["completed"] * 3 + ["incomplete"]
        assert (copied["revision"], copied["pinned"]) == (1, True)


async def test_an_imported_conversation_goes_on_and_can_be_found(tmp_path):
    async with serving_whole(tmp_path) as front:
        _, exported = await told(front)
        _, copied = await front.call("POST", "/v1/sessions/import", json=exported)

        turn = await front.say(copied["id"], "three")
        again = await front.say(copied["id"], "four")

        assert turn["previous_response_id"] == copied["head"]
        texts = [i for r in front.engine.requests[-2:] for i in [r.token_ids]]
        assert tuple(texts[1][: len(texts[0])]) == tuple(texts[0])
        assert again["status"] == "completed"
        _, page = await front.call("GET", "/v1/search?q=norway")
        assert copied["id"] in [hit["id"] for hit in page["data"]]


async def test_failed_and_silent_turns_come_in_and_are_skipped_in_the_history(tmp_path):
    async with serving_whole(tmp_path) as front:
        turns = (
            a_turn(id="1"),
            a_turn(id="2", parent="1", status="cancelled", reply=""),
            a_turn(id="3", parent="2", status="failed", reply="", error=FAILED),
        )
        _, copied = await front.call("POST", "/v1/sessions/import", json=a_file(*turns))
        path = f"/v1/sessions/{copied['id']}"

        await front.say(copied["id"], "on")

        _, shown = await front.call("GET", path + "/turns")
        assert [t["status"] for t in shown["data"]] == [
            "completed",
            "cancelled",
            "failed",
            "completed",
        ]
        assert shown["data"][2]["error"] == FAILED
        _, alone = await front.call("POST", "/v1/sessions/import", json=a_file(a_turn(id="1")))
        await front.say(alone["id"], "on")
        assert front.engine.requests[-1].token_ids == front.engine.requests[-2].token_ids


async def test_an_imported_turn_replays_as_one_piece(tmp_path):
    async with serving_whole(tmp_path) as front, AsyncClient(front.base_url) as client:
        session = await client.sessions.bring_in(a_file(a_turn(reply="Hello there")))
        turn = (await session.turns())[0]

        stream = session.resume(turn)

        assert [text async for text in stream.text_stream] == ["Hello there"]
        assert (await session.export())["turns"][0]["reply"] == "Hello there"


async def test_a_fork_is_exported_with_what_lies_before_it(tmp_path):
    async with serving_whole(tmp_path) as front:
        session = await front.session()
        await front.say(session["id"], "one")
        _, fork = await front.call("POST", f"/v1/sessions/{session['id']}/fork", json={})
        await front.say(fork["id"], "two")

        _, exported = await front.call("GET", f"/v1/sessions/{fork['id']}/export")

        assert [t["input"][0]["content"] for t in exported["turns"]] == ["one", "two"]


async def test_an_export_comes_in_again_whatever_the_clock_said(tmp_path):
    """Turns as old as their parents, and older."""
    turns = [
        a_turn(id=str(number), parent=str(number - 1) if number else None, created_at=created_at)
        for number, created_at in enumerate([50, 50, 50, 50, 40, 30, 30, 60])
    ]
    async with serving_whole(tmp_path) as front:
        _, session = await front.call("POST", "/v1/sessions/import", json=a_file(*turns))
        _, exported = await front.call("GET", f"/v1/sessions/{session['id']}/export")

        status, again = await front.call("POST", "/v1/sessions/import", json=exported)

        assert status == 201, again
        _, twice = await front.call("GET", f"/v1/sessions/{again['id']}/export")
        assert named_by_place(twice) == named_by_place(exported)
        assert [turn["parent"] for turn in named_by_place(exported)["turns"]] == [None, *range(7)]


@pytest.mark.parametrize("what", ["json", "markdown"])
async def test_what_was_taken_out_of_a_conversation_is_in_no_file(tmp_path, what):
    async with serving_whole(tmp_path) as front:
        session = await front.session()
        front.engine.replies.append(FakeReply(pieces=("plums",)))
        await front.say(session["id"], "apples")
        await front.say(session["id"], "pears")
        items = f"/v1/conversations/{session['id']}/items"
        _, page = await front.call("GET", f"{items}?order=asc")
        for item in page["data"][:2]:  # all of a turn
            await front.call("DELETE", f"{items}/{item['id']}")
        path = f"/v1/sessions/{session['id']}"

        async with front.client.get(f"{path}/export?format={what}") as answer:
            text = await answer.text()
        _, turns = await front.call("GET", f"{path}/turns")

        assert [word for word in ("apples", "plums", "pears") if word in text] == ["pears"]
        assert (turns["data"][0]["input"], turns["data"][0]["output"]) == ([], [])
        if what == "json":
            body = json.loads(text)
            status, again = await front.call("POST", "/v1/sessions/import", json=body)
            assert status == 201, again
            _, exported = await front.call("GET", f"/v1/sessions/{again['id']}/export")
            assert named_by_place(exported)["turns"] == named_by_place(body)["turns"]


async def test_a_branch_is_read_as_markdown(tmp_path):
    async with serving_whole(tmp_path) as front:
        session, _ = await told(front)
        path = f"/v1/sessions/{session['id']}/export?format=markdown"

        async with front.client.get(path) as answer:
            text = await answer.text()

        assert answer.content_type == "text/markdown"
        assert f'filename="{session["id"]}.md"' in answer.headers["Content-Disposition"]
        assert text == (
            "# Norway\n\n## System\n\nBe brief.\n\n## User\n\none\n\n## Assistant\n\nHello\n\n"
            "## User\n\ndue\n\n## Assistant\n\ncut\n"
        )


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({}, "object"),
        (a_file(version=2), "version"),
        (a_file(a_turn(), head="9"), "head"),
        (a_file(a_turn(), a_turn()), "turns[1].id"),
        (a_file(a_turn(parent="9")), "turns[0].parent"),
        (a_file(a_turn(status="running")), "turns[0].status"),
        (a_file(a_turn(sampling={"temperature": 9})), "turns[0].sampling.temperature"),
        (a_file(a_turn(created_at=-1)), "turns[0].created_at"),
        (a_file(session={"pinned": "yes"}), "session.pinned"),
    ],
)
async def test_what_is_no_session_is_refused_by_name(tmp_path, body, param):
    async with serving_whole(tmp_path) as front:
        status, answer = await front.call("POST", "/v1/sessions/import", json=body)

        assert (status, answer["error"]["param"]) == (400, param)
        assert (await front.call("GET", "/v1/sessions"))[1]["data"] == []


async def test_other_formats_are_refused(tmp_path):
    async with serving_whole(tmp_path) as front:
        session = await front.session()

        status, body = await front.call("GET", f"/v1/sessions/{session['id']}/export?format=pdf")

        assert (status, body["error"]["param"]) == (400, "format")
