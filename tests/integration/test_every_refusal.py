"""Every refusal of the front end's own is reachable through the wire, and as docs/errors.md says.

`REFUSED` walks with the table of refusals: a code without a provocation fails here.
"""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from app.errors import FOUND_BY_THE_SERVER, REFUSALS
from tests.integration.test_socket_limits import closed_with, upgrade_headers
from tests.support.front_end import FrontEnd, receive, receive_until, serving

BODY = {"messages": [{"role": "user", "content": "hi"}]}


async def _ask(front: FrontEnd, method: str, path: str, **kwargs) -> str:
    """The code of a refusal, whose status and advice must be the table's."""
    async with front.client.request(method, path, **kwargs) as answer:
        error = (await answer.json())["error"]
    refusal = {**REFUSALS, **FOUND_BY_THE_SERVER}[error["code"]]
    assert answer.status == refusal.status
    assert (answer.headers["x-should-retry"] == "true") is refusal.is_retryable
    return error["code"]


async def _no_key():
    async with serving() as front:
        front.keys.add("ann")
        return await _ask(front, "GET", "/v1/ws", headers=upgrade_headers())


async def _a_key_for_something_else():
    async with serving() as front:
        headers = {"Authorization": f"Bearer {front.keys.add('ann')}"}
        return await _ask(front, "GET", "/v1/cache", headers=headers)


async def _a_strange_host():
    async with serving() as front:
        headers = {**upgrade_headers(), "Host": "elsewhere.example"}
        return await _ask(front, "GET", "/v1/ws", headers=headers)


async def _a_strange_page():
    async with serving() as front:
        headers = {**upgrade_headers(), "Origin": "https://elsewhere.example"}
        return await _ask(front, "GET", "/v1/ws", headers=headers)


async def _a_strange_model():
    async with serving() as front:
        return await _ask(front, "POST", "/v1/chat/completions", json={**BODY, "model": "strange"})


async def _a_strange_parent():
    body = {"input": "hi", "previous_response_id": "resp_0"}
    async with serving() as front:
        return await _ask(front, "POST", "/v1/responses", json=body)


async def _frame(*frames, **config):
    """The code of the last answer to frames on a websocket of responses."""
    async with serving(**config) as front, front.client.ws_connect("/v1/responses") as ws:
        for frame in frames:
            await ws.send_json(frame)
            answer = await receive(ws)
        error = answer["error"]
        assert answer.get("status", 400) == REFUSALS[error["code"]].status
        return error["code"]


def _in_lane(name):
    body = {"input": "hi", "previous_response_id": "resp_0"}
    return {"type": "response.create", "stream_id": name, **body}


async def _a_lane_without_a_name():
    return await _frame(_in_lane(""))


async def _a_lane_too_many():
    return await _frame(*(_in_lane(f"lane-{number}") for number in range(33)))


async def _a_socket_too_old():
    return await _frame({"type": "nothing"}, response_socket_s=0.0)


async def _steering():
    return await _frame({"type": "response.steer", "input": "hi"})


async def _no_upgrade():
    async with serving() as front:
        return await _ask(front, "GET", "/v1/ws")


async def _too_often():
    async with serving(owner_requests_per_minute=2) as front:
        async with front.client.ws_connect("/v1/ws") as ws:
            for _ in range(2):
                await ws.send_json({"type": "response.resume", "response_id": "resp_0"})
            codes = [(await receive(ws))["error"]["code"] for _ in range(2)]
            await ws.send_json({"type": "ping"})
            assert (await receive(ws))["type"] == "pong"
        code = await _ask(front, "GET", "/v1/sessions")
        assert sorted(codes) == [code, "turn_not_found"]
        return code


async def _too_much_to_read():
    async with serving(max_streams=1) as front, front.client.ws_connect("/v1/ws") as ws:
        for _ in range(2):
            session = await front.session()
            frame = {"type": "response.create", "conversation": session.id, "input": "hi"}
            await ws.send_json(frame)
        return await _told_and_left_open(ws)


async def _too_much_to_watch():
    async with serving(max_subscriptions=1) as front, front.client.ws_connect("/v1/ws") as ws:
        front.manager.catalog = _Watched()
        for number in range(2):
            await ws.send_json({"type": "session.subscribe", "conversation": f"conv_{number}"})
        return await _told_and_left_open(ws)


class _Watched:
    """A catalog in which nothing happens."""

    async def watch(self, *_args, **_kwargs):
        await asyncio.Event().wait()
        yield


async def _too_fast():
    async with serving(max_frames_per_s=1) as front, front.client.ws_connect("/v1/ws") as ws:
        for _ in range(3):
            await ws.send_json({"type": "ping"})
        return await _told_and_closed(ws, 1008)


async def _a_socket_too_many_of_an_owner():
    async with (
        serving(owner_max_sockets=1) as front,
        front.client.ws_connect("/v1/ws"),
        front.client.ws_connect("/v1/ws") as ws,
    ):
        return await _told_and_closed(ws, 1013)


async def _a_socket_too_many():
    async with serving(max_sockets=1) as front, front.client.ws_connect("/v1/ws"):
        return await _ask(front, "GET", "/v1/ws", headers=upgrade_headers())


async def _told_and_left_open(ws) -> str:
    code = (await receive_until(ws, "error"))[-1]["error"]["code"]
    assert REFUSALS[code].socket == "stays open"
    await ws.send_json({"type": "ping"})
    await receive_until(ws, "pong")
    return code


async def _told_and_closed(ws, close_code: int) -> str:
    frame = (await receive_until(ws, "error"))[-1]
    code = frame["error"]["code"]
    assert frame["status"] == REFUSALS[code].status
    assert REFUSALS[code].socket == f"is closed with {close_code}"
    assert await closed_with(ws) == close_code
    return code


async def _nothing_there():
    async with serving() as front:
        return await _ask(front, "GET", "/v1/nothing")


async def _another_method():
    async with serving() as front:
        return await _ask(front, "PUT", "/v1/sessions")


async def _a_body_too_large():
    async with serving(max_body_bytes=100) as front:
        async with front.client.ws_connect("/v1/ws") as ws:
            await ws.send_str("x" * 1000)
            assert await closed_with(ws) == 1009
        return await _ask(front, "POST", "/v1/sessions", json={"title": "x" * 1000})


async def _a_bug():
    async with serving() as front:
        async with front.client.ws_connect("/v1/ws") as ws:
            front.manager.raises = ZeroDivisionError("a bug")
            await ws.send_json({"type": "response.resume", "response_id": "resp_0"})
            frame = (await receive_until(ws, "error"))[-1]
            await ws.send_json({"type": "ping"})
            await receive_until(ws, "pong")
        front.manager.raises = ZeroDivisionError("a bug")
        code = await _ask(front, "GET", "/v1/sessions")
        assert (frame["status"], frame["error"]["code"]) == (500, code)
        return code


REFUSED: dict[str, Callable[[], Awaitable[str]]] = {
    "invalid_api_key": _no_key,
    "missing_scope": _a_key_for_something_else,
    "host_not_allowed": _a_strange_host,
    "origin_not_allowed": _a_strange_page,
    "model_not_found": _a_strange_model,
    "previous_response_not_found": _a_strange_parent,
    "invalid_stream_id": _a_lane_without_a_name,
    "websocket_stream_limit_reached": _a_lane_too_many,
    "websocket_connection_limit_reached": _a_socket_too_old,
    "steering_not_supported": _steering,
    "upgrade_required": _no_upgrade,
    "rate_limit_exceeded": _too_often,
    "too_many_streams": _too_much_to_read,
    "too_many_subscriptions": _too_much_to_watch,
    "too_many_frames": _too_fast,
    "too_many_owner_sockets": _a_socket_too_many_of_an_owner,
    "too_many_sockets": _a_socket_too_many,
    "not_found": _nothing_there,
    "method_not_allowed": _another_method,
    "request_too_large": _a_body_too_large,
    "internal": _a_bug,
}


def test_each_refusal_has_its_provocation():
    assert set(REFUSED) == {*REFUSALS, *FOUND_BY_THE_SERVER}


@pytest.mark.parametrize("code", REFUSED)
async def test_each_refusal_comes_through_the_wire(code):
    assert await REFUSED[code]() == code
