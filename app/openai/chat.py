"""`/v1/chat/completions`: OpenAI's stateless endpoint, text in and text out.

Nothing is stored; what was computed before is found by its tokens. The reply belongs to its
connection: when the client leaves, generation stops.
"""

import secrets
from collections.abc import AsyncGenerator, AsyncIterator
from dataclasses import dataclass
from typing import Any

from aiohttp import web

from app.answer import json_answer
from app.errors import WITH_PARAM, WireError
from app.keys import COMPLETIONS, CONFIG, ENGINE, OWNER, READINESS
from app.openai.chat_request import ChatBody, parse_chat
from app.openai.models import is_served, model_not_found
from app.parsing import read_object
from app.peer import beside, closing, until_gone
from app.sampling import default_params
from app.sse import data_event, serve_sse
from model.messages import (
    ClaimReport,
    FinishReason,
    GenerationDelta,
    GenerationEvent,
    GenerationFinished,
    GenerationStarted,
)
from sessions.errors import DrainingError

Json = dict[str, Any]


def routes() -> list[web.RouteDef]:
    """The route of chat completions."""
    return [web.post("/v1/chat/completions", create)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Completion:
    """What every chunk of one completion repeats."""

    id: str
    created: int
    model: str
    fingerprint: str
    includes_usage: bool

    def chunk(self, choices: list[Json], usage: Json | None = None) -> bytes:
        """Write a chunk; the key `usage` is there only for those who asked for it."""
        body = self._body("chat.completion.chunk", choices)
        if self.includes_usage:
            body["usage"] = usage
        return data_event(body)

    def whole(self, finished: GenerationFinished, claim: ClaimReport) -> Json:
        """Build the answer that isn't streamed."""
        message: Json = {
            "role": "assistant",
            "content": finished.text,
            "refusal": None,
            "annotations": [],
        }
        choice = {
            "index": 0,
            "finish_reason": _finish_reason(finished),
            "message": message,
            "logprobs": None,
        }
        return {**self._body("chat.completion", [choice]), "usage": usage_of(finished, claim)}

    def _body(self, kind: str, choices: list[Json]) -> Json:
        return {
            "id": self.id,
            "object": kind,
            "created": self.created,
            "model": self.model,
            "system_fingerprint": self.fingerprint,
            "service_tier": "default",
            "choices": choices,
        }


async def create(request: web.Request) -> web.StreamResponse:
    """Complete a chat."""
    if request.app[READINESS].is_draining:
        raise DrainingError("the server is stopping")
    body = parse_chat(await read_object(request))
    completion = _completion(request, body)
    events = _named_for_chat(
        request.app[COMPLETIONS].stream(
            request[OWNER],
            body.to_messages(),
            body.to_params(default_params(request.app)),
            request_id=completion.id,
        )
    )
    if body.stream:
        return await serve_sse(request, _chunks(completion, events), error_chunk)
    async with beside(until_gone(request)), closing(events):
        return json_answer(await _whole(completion, events))


async def _named_for_chat(
    events: AsyncIterator[GenerationEvent],
) -> AsyncGenerator[GenerationEvent, None]:
    """Pass events on; an error about a turn's `input` is one about `messages` here."""
    async with closing(events):
        try:
            async for event in events:
                yield event
        except WITH_PARAM as exc:
            if exc.param is not None and exc.param.startswith("input"):
                exc.param = "messages" + exc.param.removeprefix("input")
            raise


def _completion(request: web.Request, body: ChatBody) -> Completion:
    config, info = request.app[CONFIG], request.app[ENGINE].info
    if body.model is not None and not is_served(body.model, config, info):
        raise model_not_found(param="model")
    return Completion(
        id=f"chatcmpl-{secrets.token_hex(12)}",
        created=int(config.clock().timestamp()),
        model=info.model_id,
        fingerprint=f"fp_{info.fingerprint[:12]}",
        includes_usage=body.includes_usage,
    )


async def _chunks(
    completion: Completion, events: AsyncIterator[GenerationEvent]
) -> AsyncGenerator[bytes, None]:
    """Write the chunks in OpenAI's order: role, text, reason, usage."""
    claim = ClaimReport(num_prompt_tokens=0)
    async with closing(events):
        async for event in events:
            match event:
                case GenerationStarted():
                    claim = event.claim
                    role = {"role": "assistant", "content": "", "refusal": None}
                    yield completion.chunk([_choice(role)])
                case GenerationDelta(text=text) if text:
                    yield completion.chunk([_choice({"content": text})])
                case GenerationFinished():
                    yield completion.chunk([_choice({}, _finish_reason(event))])
                    if completion.includes_usage:
                        yield completion.chunk([], usage_of(event, claim))


async def _whole(completion: Completion, events: AsyncIterator[GenerationEvent]) -> Json:
    claim = ClaimReport(num_prompt_tokens=0)
    async for event in events:
        if isinstance(event, GenerationStarted):
            claim = event.claim
        elif isinstance(event, GenerationFinished):
            return completion.whole(event, claim)
    raise AssertionError("a generation ended without its last event")


def error_chunk(error: WireError) -> bytes:
    """Write an error into a stream that has begun; OpenAI's client raises it."""
    return data_event({"error": error.error()})


def usage_of(finished: GenerationFinished, claim: ClaimReport) -> Json:
    """Build chat's usage; the cached and the written tokens are parts of the prompt's."""
    num_prompt, num_reply = claim.num_prompt_tokens, len(finished.token_ids)
    return {
        "prompt_tokens": num_prompt,
        "completion_tokens": num_reply,
        "total_tokens": num_prompt + num_reply,
        "prompt_tokens_details": {
            "cached_tokens": claim.num_reused,
            "cache_write_tokens": claim.computed,
            "audio_tokens": 0,
        },
        "completion_tokens_details": {
            "reasoning_tokens": 0,
            "audio_tokens": 0,
            "accepted_prediction_tokens": 0,
            "rejected_prediction_tokens": 0,
        },
    }


def _choice(delta: Json, finish_reason: str | None = None) -> Json:
    return {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish_reason}


def _finish_reason(finished: GenerationFinished) -> str:
    is_cut = finished.reason in (FinishReason.LENGTH, FinishReason.DEADLINE)
    return "length" if is_cut else "stop"
