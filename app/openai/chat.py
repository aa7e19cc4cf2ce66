"""`/v1/chat/completions`: OpenAI's stateless endpoint, text in and text out.

Nothing is stored; what was computed before is found by what was said. The reply belongs to its
connection: when the client leaves, generation stops.
"""

import secrets
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Any

from aiohttp import web

from app.answer import json_answer
from app.cache_diagnostics import cache_diagnostics
from app.errors import WITH_PARAM, WireError
from app.keys import COMPLETIONS, CONFIG, ENGINE, OWNER, READINESS
from app.openai.chat_choice import ChatChoice
from app.openai.chat_request import ChatBody, parse_chat
from app.openai.choices import merged
from app.openai.models import is_served, model_not_found
from app.openai.usage import usage_of
from app.parsing import read_object
from app.peer import beside, until_gone
from app.sampling import default_params
from app.sse import data_event, serve_sse
from sessions.completion_events import (
    CompletionEvent,
    CompletionFinished,
    CompletionRequest,
    CompletionStarted,
    ReplyPiece,
)
from sessions.errors import DrainingError
from sessions.types import SamplingParams

Json = dict[str, Any]
Events = AsyncGenerator[tuple[int, CompletionEvent], None]


def routes() -> list[web.RouteDef]:
    """The route of chat completions."""
    return [web.post("/v1/chat/completions", create)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Completion:
    """What every chunk of one completion repeats."""

    id: str
    kind: str
    created: int
    model: str
    fingerprint: str
    includes_usage: bool

    def chunk(self, choices: list[Json], **more: Any) -> bytes:  # noqa: ANN401 - JSON
        """Write a chunk; the key `usage` is there only for those who asked for it."""
        body = self.body(f"{self.kind}.chunk" if self.kind == "chat.completion" else self.kind)
        body["choices"] = choices
        if self.includes_usage:
            body["usage"] = None
        return data_event({**body, **more})

    def body(self, kind: str) -> Json:
        """What stands around choices."""
        return {
            "id": self.id,
            "object": kind,
            "created": self.created,
            "model": self.model,
            "system_fingerprint": self.fingerprint,
            "service_tier": "default",
        }


class _Ends:
    """What a completion's choices come to, as far as they have."""

    def __init__(self, num_choices: int) -> None:
        self._num_choices = num_choices
        self._started: CompletionStarted | None = None
        self._ends: list[CompletionFinished] = []

    def start(self, started: CompletionStarted) -> None:
        self._started = self._started or started

    def end(self, finished: CompletionFinished) -> None:
        self._ends.append(finished)

    @property
    def closing(self) -> Json:
        """What is said at the end of all."""
        assert self._started is not None, "a generation ended before it began"
        assert len(self._ends) == self._num_choices, "a generation ended without its last event"
        said: Json = {
            "usage": usage_of([self._started.claim], self._ends),
            "prompt_cache_diagnostics": cache_diagnostics(self._started.claim),
        }
        if self._started.num_dropped_messages:
            said["splice"] = {"dropped_messages": self._started.num_dropped_messages}
        return said


async def create(request: web.Request) -> web.StreamResponse:
    """Complete a chat."""
    if request.app[READINESS].is_draining:
        raise DrainingError("the server is stopping")
    body = parse_chat(await read_object(request))
    completion = completion_of(
        request, "chat.completion", body.model, includes_usage=body.includes_usage
    )
    asked = body.to_request(default_params(request.app), request.headers, completion.id)
    choices = [_choice(body, asked, index) for index in range(body.n or 1)]
    generated = _generated(request, asked, completion.id, len(choices))
    events = with_input_called("messages", generated)
    if body.stream:
        return await serve_sse(request, _chunks(completion, choices, events), error_chunk)
    async with beside(until_gone(request)), aclosing(events):
        return json_answer(await _whole(completion, choices, events))


def completion_of(
    request: web.Request, kind: str, model: str | None, *, includes_usage: bool
) -> Completion:
    """A new completion's name and date. Raises RequestError for a model that isn't served."""
    config, info = request.app[CONFIG], request.app[ENGINE].info
    if model is not None and not is_served(model, config, info):
        raise model_not_found(model, param="model")
    prefix = "chatcmpl" if kind == "chat.completion" else "cmpl"
    return Completion(
        id=f"{prefix}-{secrets.token_hex(12)}",
        kind=kind,
        created=int(config.clock().timestamp()),
        model=info.model_id,
        fingerprint=f"fp_{info.fingerprint[:12]}",
        includes_usage=includes_usage,
    )


def numbered(params: SamplingParams, number: int) -> SamplingParams:
    """The parameters of one choice: each draws by a seed of its own."""
    if params.seed is None:
        return params
    return replace(params, seed=(params.seed + number) % 2**63)


def _choice(body: ChatBody, asked: CompletionRequest, index: int) -> ChatChoice:
    return ChatChoice(
        index,
        may_call=bool(asked.choice.of(asked.tools)),
        has_logprobs=bool(body.logprobs),
    )


def _generated(
    request: web.Request, asked: CompletionRequest, name: str, num_choices: int
) -> Events:
    completions, owner = request.app[COMPLETIONS], request[OWNER]

    def start(number: int) -> AsyncGenerator[CompletionEvent, None]:
        one = replace(asked, params=numbered(asked.params, number))
        request_id = f"{name}-{number}" if number else name
        return completions.stream(owner, one, request_id=request_id)

    return merged(num_choices, start)


async def with_input_called(name: str, events: Events) -> Events:
    """Pass events on; an error about a turn's `input` is one about what the address calls so."""
    async with aclosing(events):
        try:
            async for event in events:
                yield event
        except WITH_PARAM as exc:
            if exc.param is not None and exc.param.startswith("input"):
                exc.param = name + exc.param.removeprefix("input")
            raise


async def _chunks(
    completion: Completion, choices: list[ChatChoice], events: Events
) -> AsyncGenerator[bytes, None]:
    """Write the chunks in OpenAI's order: role, text, reason, and usage behind all choices."""
    ends = _Ends(len(choices))
    async with aclosing(events):
        async for index, event in events:
            for choice in _told(choices[index], event, ends):
                yield completion.chunk([choice])
    if completion.includes_usage:
        yield completion.chunk([], **ends.closing)


def _told(choice: ChatChoice, event: CompletionEvent, ends: _Ends) -> list[Json]:
    match event:
        case CompletionStarted():
            ends.start(event)
            return choice.start()
        case ReplyPiece():
            return choice.piece(event)
        case CompletionFinished():
            ends.end(event)
            return choice.end(event)


async def _whole(completion: Completion, choices: list[ChatChoice], events: Events) -> Json:
    ends = _Ends(len(choices))
    told: dict[int, Json] = {}
    async for index, event in events:
        match event:
            case CompletionStarted():
                ends.start(event)
            case ReplyPiece():
                choices[index].piece(event)
            case CompletionFinished():
                ends.end(event)
                told[index] = choices[index].whole(event)
    body = completion.body(completion.kind)
    return {**body, "choices": [told[index] for index in sorted(told)], **ends.closing}


def error_chunk(error: WireError) -> bytes:
    """Write an error into a stream that has begun; OpenAI's client raises it."""
    return data_event({"error": error.error()})
