"""OpenAI's own clients, bound to a session."""

import sys

import pytest

from splice import AsyncClient
from splice.endpoint import Endpoint
from splice.openai_client import openai_client
from tests.support.scripted_api import (
    Naps,
    ScriptedApi,
    answer,
    refuse,
    session_at,
    turn_json,
    vanish,
)
from tests.support.server_thread import ServerThread

RESPONSE = turn_json("Oslo", status="completed")
COMPLETION = {"id": "c", "object": "chat.completion", "created": 1, "model": "m", "choices": []}


async def said(api, ask):
    """What the bound client sends for a call."""
    async with api.serving():
        transport, session = session_at(api, Naps())
        async with session.openai() as openai:
            await ask(openai)
        await transport.close()
    return api.requests


async def test_a_response_goes_on_with_the_session_by_itself():
    api = ScriptedApi(answer(RESPONSE))

    requests = await said(api, lambda openai: openai.responses.create(input="The capital?"))

    body = {"input": "The capital?", "model": "default", "conversation": "conv_1"}
    assert requests == [("POST", "/v1/responses", body)]


@pytest.mark.parametrize(
    "place",
    [
        {"conversation": "conv_2"},
        {"previous_response_id": "resp_2"},
        {"extra_body": {"previous_response_id": "resp_2"}},
    ],
)
async def test_a_place_that_is_named_is_kept(place):
    api = ScriptedApi(answer(RESPONSE))

    def ask(openai):
        return openai.responses.create(input="hi", model="other", **place)

    ((_, _, body),) = await said(api, ask)

    named = place.get("extra_body", place)
    assert body == {"input": "hi", "model": "other", **named}


async def test_a_client_with_other_options_is_bound_as_well():
    api = ScriptedApi(answer(RESPONSE))

    def ask(openai):
        return openai.with_options(timeout=5).responses.create(input="hi")

    ((_, _, body),) = await said(api, ask)

    assert body["conversation"] == "conv_1"


async def test_what_is_sent_again_carries_the_same_key():
    api = ScriptedApi(
        vanish, refuse(503, "draining", retry_after_ms="1"), answer(RESPONSE), answer(RESPONSE)
    )

    async def ask(openai):
        await openai.responses.create(input="one")
        await openai.responses.create(input="two", extra_headers={"Idempotency-Key": "mine"})

    requests = await said(api, ask)

    keys = [headers["Idempotency-Key"] for headers in api.headers]
    assert keys[0] == keys[1] == keys[2] != keys[3] == "mine"
    assert requests[0] == requests[1] == requests[2]


async def test_what_knows_no_conversation_gets_none():
    api = ScriptedApi(answer(COMPLETION), answer({"data": [], "has_more": False}))

    async def ask(openai):
        messages = [{"role": "user", "content": "hi"}]
        await openai.chat.completions.create(model="m", messages=messages)
        await openai.conversations.items.list("conv_1")

    completion, listed = await said(api, ask)

    assert set(completion[2]) == {"model", "messages"}
    assert listed[:2] == ("GET", "/v1/conversations/conv_1/items")
    assert not [headers for headers in api.headers if "Idempotency-Key" in headers]


async def test_a_clients_own_names_the_model_and_nothing_else():
    api = ScriptedApi(answer(RESPONSE))
    async with (
        api.serving(),
        AsyncClient(api.url, headers={"x-team": "a"}) as client,
        client.openai() as openai,
    ):
        await openai.responses.create(input="hi")

    ((_, _, body),) = api.requests
    assert body == {"input": "hi", "model": "default"}
    assert api.headers[0]["x-team"] == "a"


@pytest.mark.parametrize(("key", "sent"), [("sk-splice-1", "sk-splice-1"), (None, "none")])
def test_the_blocking_client_is_bound_like_the_other(key, sent):
    with (
        ServerThread(answer(RESPONSE)) as api,
        openai_client(Endpoint.at(api.url, api_key=key), "conv_1") as openai,
    ):
        openai.responses.create(input="hi")

    assert api.requests[0][2]["conversation"] == "conv_1"
    assert api.headers[0]["Authorization"] == f"Bearer {sent}"


def test_without_the_package_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "openai", None)

    with pytest.raises(ImportError, match="pip install openai"):
        openai_client(Endpoint.at())
