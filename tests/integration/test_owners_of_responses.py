"""Another owner's responses, conversations and items are nobody's, over HTTP and websocket.

What is tried is walked: every path of `/openapi.json` that names one of them needs a row here.
"""

import pytest

from tests.integration.test_owners import (
    answer_to,
    call,
    filled,
    made_up,
    server,  # noqa: F401 - a fixture
    shape_of,
)
from tests.support.front_end import receive

CALLS = {
    "GET /v1/responses/{response}": [{}, {"stream": "true"}, {"starting_after": "3"}],
    "DELETE /v1/responses/{response}": [{}],
    "POST /v1/responses/{response}/cancel": [{}],
    "GET /v1/responses/{response}/input_items": [{}, {"order": "asc"}],
    "GET /v1/conversations/{conversation}": [{}],
    "POST /v1/conversations/{conversation}": [{"metadata": {"a": "b"}}],
    "DELETE /v1/conversations/{conversation}": [{}],
    "GET /v1/conversations/{conversation}/items": [{}, {"order": "asc"}],
    "POST /v1/conversations/{conversation}/items": [
        {"items": [{"role": "user", "content": "x"}]},
    ],
    "GET /v1/conversations/{conversation}/items/{item}": [{}],
    "DELETE /v1/conversations/{conversation}/items/{item}": [{}],
}

# Of one's own what names somebody else's.
BODIES = [
    ("/v1/responses", {"input": "x", "previous_response_id": "{response}"}, 400),
    ("/v1/responses", {"input": "x", "previous_response_id": "{response}", "store": False}, 400),
    ("/v1/responses", {"input": "x", "conversation": "{conversation}"}, 404),
    ("/v1/responses", {"input": [{"type": "item_reference", "id": "{item}"}]}, 400),
    ("/v1/responses/input_tokens", {"input": "x", "previous_response_id": "{response}"}, 400),
    ("/v1/responses/input_tokens", {"input": "x", "conversation": "{conversation}"}, 404),
    ("/v1/conversations", {"items": [{"type": "item_reference", "id": "{item}"}]}, 400),
    (
        "/v1/conversations/{mine}/items",
        {"items": [{"type": "item_reference", "id": "{item}"}]},
        400,
    ),
]


async def ids_of(client, ann, bob):
    """Ann's response, its conversation and an item, and a conversation of Bob's."""
    _, response = await call(client, ann, "POST", "/v1/responses", input="hello")
    _, mine = await call(client, bob, "POST", "/v1/conversations")
    return {
        "response": response["id"],
        "conversation": response["conversation"]["id"],
        "item": response["input"][0]["id"],
        "mine": mine["id"],
    }


def within(value, ids):
    """As `filled`, also in lists."""
    if isinstance(value, list):
        return [within(part, ids) for part in value]
    if isinstance(value, dict):
        return {name: within(part, ids) for name, part in value.items()}
    return filled(value, ids) if isinstance(value, str) else value


async def test_anothers_ids_in_every_route_are_answered_as_made_up_ones_are(server):  # noqa: F811
    client, ann, bob = server
    ids = await ids_of(client, ann, bob)
    wrong = made_up(ids)
    _, document = await call(client, bob, "GET", "/openapi.json")
    walked = {
        f"{method.upper()} {path}": (method.upper(), path)
        for path, operations in document["paths"].items()
        for method in operations
        if {"{response}", "{conversation}", "{item}"} & set(path.split("/"))
    }
    assert set(walked) == set(CALLS), "each route needs a row, and each row a route"

    for name, (method, path) in walked.items():
        for fields in CALLS[name]:
            theirs = await answer_to(client, bob, method, path.format(**ids), fields)
            none = await answer_to(client, bob, method, path.format(**wrong), fields)
            assert theirs[0] == none[0] == 404, (name, theirs)
            assert shape_of(theirs, ids) == shape_of(none, wrong), name

    status, response = await call(client, ann, "GET", f"/v1/responses/{ids['response']}")
    assert (status, response["status"]) == (200, "completed")
    path = f"/v1/conversations/{ids['conversation']}/items"
    assert len((await call(client, ann, "GET", path))[1]["data"]) == 2


async def test_an_item_is_not_reached_through_a_conversation_of_ones_own(server):  # noqa: F811
    client, ann, bob = server
    ids = await ids_of(client, ann, bob)

    for method in ("GET", "DELETE"):
        path = f"/v1/conversations/{ids['mine']}/items/{ids['item']}"
        assert (await call(client, bob, method, path))[0] == 404


@pytest.mark.parametrize(("path", "fields", "status"), BODIES)
async def test_anothers_ids_in_a_body_are_answered_as_made_up_ones_are(
    server,  # noqa: F811
    path,
    fields,
    status,
):
    client, ann, bob = server
    ids = await ids_of(client, ann, bob)
    wrong = made_up(ids)

    theirs = await answer_to(client, bob, "POST", path.format(**ids), within(fields, ids))
    none = await answer_to(client, bob, "POST", path.format(**ids), within(fields, wrong))

    assert theirs[0] == none[0] == status
    assert shape_of(theirs, ids) == shape_of(none, wrong)


async def test_anothers_ids_in_frames_are_answered_as_made_up_ones_are(server):  # noqa: F811
    client, ann, bob = server
    ids = await ids_of(client, ann, bob)
    wrong = made_up(ids)
    frames = [{"type": "response.cancel", "response_id": "{response}"}]
    frames += [
        {"type": "response.create", **fields}
        for path, fields, _ in BODIES
        if path == "/v1/responses"
    ]

    async with client.ws_connect("/v1/responses", headers=bob) as ws:
        for frame in frames:
            answers = []
            for known in (ids, wrong):
                await ws.send_json(within(frame, known))
                answer = await receive(ws)
                assert answer["type"] == "error", frame
                answers.append(shape_of(answer, known))
            assert answers[0] == answers[1], frame


async def test_what_one_owners_socket_keeps_is_not_anothers(server):  # noqa: F811
    client, ann, bob = server
    async with (
        client.ws_connect("/v1/responses", headers=ann) as anns,
        client.ws_connect("/v1/responses", headers=bob) as bobs,
    ):
        await anns.send_json({"type": "response.create", "input": "x", "store": False})
        while (frame := await receive(anns))["type"] != "response.completed":
            pass
        follow = {"input": "x", "previous_response_id": frame["response"]["id"]}
        await bobs.send_json({"type": "response.create", **follow})
        assert (await receive(bobs))["error"]["code"] == "previous_response_not_found"
