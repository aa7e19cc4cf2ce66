"""A server that answers as its script says, for the client's tests."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web

from splice import AsyncSession
from splice.endpoint import Endpoint
from splice.json_value import Json
from splice.transport import Transport

Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Naps:
    """Sleeping that takes no time and is written down."""

    def __init__(self) -> None:
        self.lengths: list[float] = []

    async def __call__(self, seconds: float) -> None:
        self.lengths.append(seconds)
        await asyncio.sleep(0)


class ScriptedApi:
    """Takes an answer from the script for each request, and keeps what was asked."""

    def __init__(self, *answers: Answer) -> None:
        self.url = ""
        self.requests: list[tuple[str, str, Any]] = []
        self.headers: list[Mapping[str, str]] = []
        self._answers = list(answers)

    @asynccontextmanager
    async def serving(self) -> AsyncIterator["ScriptedApi"]:
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self._answer)
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        host, port = runner.addresses[0][:2]
        self.url = f"http://{host}:{port}"
        try:
            yield self
        finally:
            await runner.cleanup()

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        body = await request.json() if request.can_read_body else None
        self.requests.append((request.method, str(request.rel_url), body))
        self.headers.append(request.headers.copy())
        assert self._answers, f"nothing in the script for {request.method} {request.rel_url}"
        return await self._answers.pop(0)(request)


def session_at(api: ScriptedApi, naps: Naps, **options: Any) -> tuple[Transport, AsyncSession]:
    """A session there, and what to close behind it."""
    transport = Transport(Endpoint.at(api.url, **options), sleep=naps)
    return transport, AsyncSession(transport, session_json())


def answer(body: Any, *, status: int = 200, **headers: str) -> Answer:
    async def plainly(request: web.Request) -> web.Response:
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return web.json_response(body, status=status, headers=named)

    return plainly


def refuse(status: int, code: str, **headers: str) -> Answer:
    error = {"message": f"said {code}", "type": "t", "param": "input", "code": code}
    return answer({"error": error}, status=status, x_request_id="req_1", **headers)


async def stream_head(request: web.Request, *events: Json) -> web.StreamResponse:
    """Send events, and leave the stream open."""
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
    await response.prepare(request)
    await response.write(b": here\n\n")
    for event in events:
        line = f"event: {event['type']}\ndata: {json.dumps(event)}\n\n"
        await response.write(line.encode())
    return response


def stream(*events: Json, then_break: bool = False) -> Answer:
    """Send the events; then either end properly, or tear the connection."""

    async def streaming(request: web.Request) -> web.StreamResponse:
        response = await stream_head(request, *events)
        if then_break:
            assert request.transport is not None
            request.transport.abort()
            await asyncio.sleep(0)
        else:
            await response.write(b"data: [DONE]\n\n")
        return response

    return streaming


async def vanish(request: web.Request) -> web.StreamResponse:
    """Take the request, and tear the connection before there is an answer."""
    assert request.transport is not None
    request.transport.abort()
    await asyncio.sleep(0)
    return web.Response()


def turn_json(text: str = "", *, status: str = "in_progress") -> Json:
    part = {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
    item = {"id": "msg_1", "type": "message", "role": "assistant", "content": [part]}
    return {
        "id": "resp_1",
        "object": "response",
        "status": status,
        "model": "tiny",
        "conversation": {"id": "conv_1"},
        "previous_response_id": None,
        "error": None,
        "incomplete_details": None,
        "input": [
            {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hi"}]}
        ],
        "output": [item] if text else [],
        "usage": None,
        "splice": {"client_turn_id": None, "metrics": None},
    }


def session_json(session_id: str = "conv_1", **fields: Any) -> Json:
    return {
        "id": session_id,
        "object": "session",
        "title": None,
        "instructions": None,
        "model": "tiny",
        "metadata": {},
        "head": None,
        "forked_from": None,
        "revision": 1,
        "created_at": 1,
        "updated_at": 2,
        **fields,
    }


def turn_events(*deltas: str) -> list[Json]:
    """A whole turn's events, numbered."""
    text = "".join(deltas)
    metrics = {"ttft_ms": 1.0, "total_ms": 2.0, "kv": {"reused": 3, "computed": 4, "reason": None}}
    events: list[dict[str, Any]] = [
        {"type": "response.created", "response": turn_json()},
        {"type": "response.in_progress", "response": turn_json()},
        *({"type": "response.output_text.delta", "delta": delta} for delta in deltas),
        {"type": "splice:metrics", "response_id": "resp_1", **metrics},
        {"type": "response.completed", "response": turn_json(text, status="completed")},
    ]
    return [{**event, "sequence_number": number} for number, event in enumerate(events)]
