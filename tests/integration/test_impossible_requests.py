"""Responses that can't be made are refused before anything is stored: over HTTP and in a lane, kept
or not, each with the code and the part that is at fault."""

import pytest

from model.errors import InvalidGenerationError
from tests.support.front_end import receive

FORM = {"text": {"format": {"type": "grammar", "syntax": "regex", "definition": "["}}}
TOOL = {"type": "function", "name": "f", "parameters": {}}
CALL = {"tools": [TOOL], "tool_choice": "required"}
STRICT = {"tools": [{**TOOL, "strict": True}]}


def refuse(grammar):
    raise InvalidGenerationError("the grammar can't be used: broken", param=grammar.param)


async def stored(front):
    """Every session with its revision, and how many turns it has."""
    found = []
    for listed in ("true", "false"):
        sessions = (await front.call("GET", f"/v1/sessions?listed={listed}"))[1]["data"]
        for session in sessions:
            turns = (await front.call("GET", f"/v1/sessions/{session['id']}/turns"))[1]["data"]
            found.append((session["id"], session["revision"], len(turns)))
    return found


async def refused(front, body, conversation):
    """The one error that a request is answered with, whichever way it comes and is to be kept."""
    errors = []
    for how in (
        {},
        {"stream": True},
        {"background": True},
        {"conversation": conversation},
        {"store": False},
        {"store": False, "stream": True},
    ):
        status, answer = await front.call("POST", "/v1/responses", json={**body, **how})
        assert status == 400, answer
        errors.append(answer["error"])
    async with front.client.ws_connect("/v1/responses") as ws:
        for is_stored in (True, False):
            frame = {"type": "response.create", "stream_id": "a", "store": is_stored}
            await ws.send_json({**frame, **body})
            answer = await receive(ws)
            assert (answer["type"], answer["status"], answer["stream_id"]) == ("error", 400, "a")
            errors.append(answer["error"])
        await ws.send_json({"type": "response.create", "input": "x", "store": False})
        while (frame := await receive(ws))["type"] != "response.completed":
            assert frame["type"] not in ("error", "response.failed"), frame
    assert errors == errors[:1] * len(errors)
    return errors[0]


@pytest.mark.parametrize(
    ("fields", "param"), [(FORM, "text.format"), (CALL, "tools"), (STRICT, "tools")]
)
async def test_what_no_grammar_can_hold_is_refused_before_anything_is_stored(front, fields, param):
    session = await front.session()
    await front.say(session["id"])
    before = await stored(front)
    front.engine.on_grammar = refuse

    error = await refused(front, {"input": "x", **fields}, session["id"])

    assert (error["type"], error["code"]) == ("invalid_request_error", "invalid_request")
    assert (error["param"], error["message"]) == (param, "the grammar can't be used: broken")
    assert await stored(front) == before
    assert all(request.params.grammar is None for request in front.engine.requests)


async def test_a_form_waits_for_an_engine_that_comes_back(front):
    """Nobody can tell then whether it can be compiled, and no turn is lost for that."""
    front.engine.is_up = False
    front.engine.on_grammar = refuse

    status, answer = await front.call("POST", "/v1/responses", json={"input": "x", **FORM})

    assert (status, answer["status"]) == (200, "failed")
    assert answer["error"]["code"] == "engine_unavailable"


async def test_a_form_that_takes_long_to_compile_keeps_no_turn_from_beginning(front, monkeypatch):
    monkeypatch.setattr("sessions.reply_terms.MAX_JUDGING_S", 0.01)
    front.engine.compiles.clear()

    status, answer = await front.call("POST", "/v1/responses", json={"input": "x", **FORM})

    assert (status, answer["status"]) == (200, "completed")
    assert front.engine.requests[-1].params.grammar.text == "["


async def test_a_last_turn_that_is_too_long_alone_is_refused_though_turns_may_go(front):
    session = await front.session()
    await front.say(session["id"])
    before, num_asked = await stored(front), len(front.engine.requests)

    error = await refused(
        front, {"input": "x " * 5000, "instructions": "Hm.", "truncation": "auto"}, session["id"]
    )
    chat = {"messages": [{"role": "user", "content": "x " * 5000}], "truncation": "auto"}
    status, answer = await front.call("POST", "/v1/chat/completions", json=chat)

    for told, param in ((error, "input"), (answer["error"], "messages")):
        assert (told["type"], told["code"]) == ("invalid_request_error", "context_length_exceeded")
        assert told["param"] == param
        assert "with its last turn alone, which is never cut; the context holds" in told["message"]
    assert status == 400
    assert await stored(front) == before
    assert len(front.engine.requests) == num_asked + 1  # the short one behind them all
