"""The document that describes the API: valid, complete, and true."""

import json

import pytest
from aiohttp import web
from jsonschema import Draft202012Validator
from openapi_spec_validator import OpenAPIV31SpecValidator

from app import openapi_file
from app.openapi import known_calls
from tests.support.front_end import receive_until, serving
from tests.support.whole_front import serving_whole


async def read(front, path="/openapi.json"):
    status, document = await front.call("GET", path)
    assert status == 200
    return document


def schema_of(document, name):
    """A validator of one component, with all that it refers to."""
    ref = {"$ref": f"#/components/schemas/{name}", "components": document["components"]}
    return Draft202012Validator(ref)


async def test_the_document_is_valid_and_open_to_everybody():
    async with serving() as front:
        front.keys.add("ann")
        document = await read(front)

    OpenAPIV31SpecValidator(document).validate()
    assert document["openapi"] == "3.1.0"


async def test_every_route_is_in_it():
    async with serving() as front:
        document = await read(front)
        routes = {
            (route.method, route.resource.canonical)
            for route in front.client.app.router.routes()
            if route.method != "HEAD" and isinstance(route.resource, web.Resource)
        }

    described = {
        (method.upper(), path)
        for path, operations in document["paths"].items()
        for method in operations
    }
    assert routes - {("GET", "/")} == described
    assert known_calls() <= described


async def test_every_body_is_described():
    async with serving() as front:
        document = await read(front)

    bare = [
        (method, path)
        for path, operations in document["paths"].items()
        for method, operation in operations.items()
        if method in ("post", "patch", "put") and "requestBody" not in operation
    ]
    assert not bare


async def test_each_status_of_a_refusal_is_named():
    async with serving() as front:
        document = await read(front)

    turns = document["paths"]["/v1/sessions/{session}/turns"]["post"]
    assert set(turns["responses"]) == {
        *("200", "400", "401", "403", "404", "409", "413", "429", "500", "503")
    }
    assert turns["requestBody"]["required"]
    assert set(document["paths"]["/healthz"]["get"]["responses"]) == {"200", "403", "500", "503"}


async def test_a_base_path_is_the_servers_address():
    async with serving(base_path="/chat") as front:
        document = await read(front, "/chat/openapi.json")

    assert document["servers"] == [{"url": "/chat"}]
    assert "/v1/sessions" in document["paths"]


@pytest.mark.parametrize(
    ("name", "value", "is_valid"),
    [
        ("TurnBody", {"input": "hi"}, True),
        ("TurnBody", {"input": [{"role": "user", "content": "hi"}], "parent": None}, True),
        (
            "TurnBody",
            {"input": [{"role": "user", "content": [{"type": "input_text", "text": "hi"}]}]},
            True,
        ),
        ("TurnBody", {"input": "hi", "temprature": 1}, False),
        ("TurnBody", {"input": "hi", "stop": "x", "temperature": 0}, True),
        ("TurnBody", {"input": "hi", "temperature": 3}, False),
        ("TurnBody", {}, False),
        ("SessionBody", {"title": "x", "reasoning": "drop"}, True),
        ("SessionBody", {"reasoning": "hide"}, False),
        ("ClientFrame", {"type": "response.cancel", "response_id": "resp_1"}, True),
        ("ClientFrame", {"type": "response.create", "input": "hi"}, False),
        ("ClientFrame", {"type": "ping", "nonce": 1}, True),
        ("ClientFrame", {"type": "pong"}, False),
    ],
)
async def test_the_schemas_take_what_the_server_takes(name, value, is_valid):
    async with serving() as front:
        document = await read(front)

    assert schema_of(document, name).is_valid(value) is is_valid


async def test_answers_are_as_the_schemas_say():
    async with serving() as front:
        front.manager.auto_reply = "a b"
        document = await read(front)
        _, session = await front.call("POST", "/v1/sessions", json={"title": "x"})
        place = f"/v1/sessions/{session['id']}"
        answers = {
            "Session": session,
            "Turn": (await front.call("POST", place + "/turns", json={"input": "hi"}))[1],
            "TurnList": (await front.call("GET", place + "/turns"))[1],
            "SessionList": (await front.call("GET", "/v1/sessions"))[1],
            "Ticket": (await front.call("POST", "/v1/ws-tickets"))[1],
            "Error": (await front.call("GET", "/v1/sessions/conv_none"))[1],
            "Deleted": (await front.call("DELETE", place))[1],
        }

    for name, answer in answers.items():
        schema_of(document, name).validate(answer)


async def test_what_is_found_is_as_the_schema_says(tmp_path):
    async with serving_whole(tmp_path) as front:
        session = await front.session(title="tides")
        await front.say(session["id"], "when is high tide?")
        _, found = await front.call("GET", "/v1/search?q=tide")
        schema_of(await read(front), "HitList").validate(found)

    assert {hit["kind"] for hit in found["data"]} == {"title", "message"}


async def test_the_document_can_be_had_without_a_server(capsys):
    openapi_file.main()
    async with serving() as front:
        served = await read(front)

    printed = json.loads(capsys.readouterr().out)
    assert printed["paths"] == served["paths"]
    assert printed["components"] == served["components"]


async def test_frames_are_as_the_schemas_say():
    async with serving() as front, front.client.ws_connect("/v1/ws") as ws:
        front.manager.auto_reply = "a b"
        document = await read(front)
        session = await front.session()
        await ws.send_json({"type": "ping", "nonce": "n"})
        await ws.send_json({"type": "nonsense"})
        await ws.send_json({"type": "response.create", "conversation": session.id, "input": "hi"})
        frames = await receive_until(ws, "response.completed")

    for frame in frames:
        schema_of(document, "ServerFrame").validate(frame)
    assert {"pong", "error", "splice:metrics"} <= {frame["type"] for frame in frames}
