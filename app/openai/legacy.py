"""`/v1/completions`: OpenAI's older endpoint, which goes on with a text as it stands.

Nothing is stored, and no chat template is applied; a prompt is text or token ids, one or several.
"""

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import Annotated, Any

from aiohttp import web
from pydantic import ConfigDict, Field, StringConstraints

from app.answer import json_answer
from app.cache_diagnostics import cache_diagnostics
from app.keys import COMPLETIONS, OWNER, READINESS
from app.openai.chat import (
    Completion,
    completion_of,
    error_chunk,
    numbered,
    with_input_called,
)
from app.openai.chat_choice import finish_reason_of
from app.openai.chat_request import MAX_CHOICES, StreamOptions
from app.openai.choices import merged
from app.openai.foreign_fields import refuse_foreign_fields
from app.openai.usage import usage_of
from app.parsing import read_object, validate
from app.peer import beside, until_gone
from app.sampling import SamplingFields, default_params
from app.sse import serve_sse
from sessions.completion_events import (
    CompletionEvent,
    CompletionFinished,
    CompletionStarted,
    ReplyPiece,
)
from sessions.errors import DrainingError, InvalidInputError, UnsupportedInputError
from sessions.likelihoods import TokenLikelihood
from sessions.reply_parser import TextDelta
from sessions.types import SamplingParams

Json = dict[str, Any]
Prompt = str | list[int]
Events = AsyncGenerator[tuple[int, CompletionEvent], None]

_MAX_PROMPTS = 16
_DEFAULT_TOKENS = 16
TokenId = Annotated[int, Field(ge=0, le=2**31 - 1)]


class CompletionBody(SamplingFields):
    """`POST /v1/completions`."""

    model_config = ConfigDict(strict=True, frozen=True, extra="ignore")

    prompt: str | list[TokenId] | list[str] | list[list[TokenId]]
    model: Annotated[str, StringConstraints(max_length=512)] | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    max_tokens: int | None = Field(None, ge=1, le=2**31 - 1)
    n: int | None = Field(None, ge=1, le=MAX_CHOICES)
    best_of: int | None = None
    echo: bool | None = None
    suffix: str | None = None
    logprobs: int | None = Field(None, ge=0, le=20)

    def length_limit(self) -> int | None:
        """As OpenAI's, short unless asked otherwise."""
        return self.max_tokens or _DEFAULT_TOKENS

    @property
    def prompts(self) -> list[Prompt]:
        """One prompt, or several."""
        if isinstance(self.prompt, str):
            return [self.prompt]
        return [*_several(self.prompt)]


def _several(prompt: Sequence[Any]) -> list[Prompt]:
    return [list(prompt)] if prompt and isinstance(prompt[0], int) else list(prompt)


def routes() -> list[web.RouteDef]:
    """The route of the older completions."""
    return [web.post("/v1/completions", create)]


async def create(request: web.Request) -> web.StreamResponse:
    """Go on with a text."""
    if request.app[READINESS].is_draining:
        raise DrainingError("the server is stopping")
    body = _parsed(await read_object(request))
    includes_usage = body.stream_options is not None and bool(body.stream_options.include_usage)
    completion = completion_of(
        request, "text_completion", body.model, includes_usage=includes_usage
    )
    params = body.to_params(default_params(request.app))
    params = replace(params, num_logprobs=body.logprobs)
    prompts = [prompt for prompt in body.prompts for _ in range(body.n or 1)]
    echoes = await _echoes(request, prompts) if body.echo else [""] * len(prompts)
    choices = [_TextChoice(index, echo) for index, echo in enumerate(echoes)]
    events = _generated(request, prompts, params, completion.id)
    if body.stream:
        chunks = _chunks(completion, choices, events, body.n or 1)
        return await serve_sse(request, chunks, error_chunk)
    async with beside(until_gone(request)), aclosing(events):
        return json_answer(await _whole(completion, choices, events, body.n or 1))


def _parsed(value: Json) -> CompletionBody:
    refuse_foreign_fields(value, form=None, length="max_tokens")
    body = validate(CompletionBody, value)
    if body.suffix:
        raise UnsupportedInputError("suffix is not supported", param="suffix")
    if body.best_of is not None and body.best_of != (body.n or 1):
        raise UnsupportedInputError("best_of is not supported", param="best_of")
    if body.echo and body.logprobs is not None:
        raise UnsupportedInputError("a prompt's log probabilities are not supported", param="echo")
    if not body.prompts or any(not prompt for prompt in body.prompts):
        raise InvalidInputError("the prompt is empty", param="prompt")
    if len(body.prompts) * (body.n or 1) > _MAX_PROMPTS:
        raise InvalidInputError(
            f"at most {_MAX_PROMPTS} replies can be had at once", param="prompt"
        )
    return body


async def _echoes(request: web.Request, prompts: Sequence[Prompt]) -> list[str]:
    completions = request.app[COMPLETIONS]
    return [p if isinstance(p, str) else await completions.raw_text(p) for p in prompts]


def _generated(
    request: web.Request, prompts: Sequence[Prompt], params: SamplingParams, name: str
) -> Events:
    completions, owner = request.app[COMPLETIONS], request[OWNER]

    def start(number: int) -> AsyncGenerator[CompletionEvent, None]:
        request_id = f"{name}-{number}" if number else name
        return completions.stream_raw(
            owner, prompts[number], numbered(params, number), request_id=request_id
        )

    return with_input_called("prompt", merged(len(prompts), start))


class _TextChoice:
    """One choice as it grows."""

    def __init__(self, index: int, echo: str) -> None:
        self._index = index
        self._echo = echo
        self._offset = len(echo)
        self.started: CompletionStarted | None = None
        self.finished: CompletionFinished | None = None

    def take(self, event: CompletionEvent) -> list[Json]:
        """The choices of the chunks for an event."""
        match event:
            case CompletionStarted():
                self.started = event
                return [self._choice(self._echo, None)] if self._echo else []
            case ReplyPiece():
                text = "".join(e.text for e in event.events if isinstance(e, TextDelta))
                likelihoods = [each for share in event.likelihoods for each in share]
                return [self._choice(text, self._logprobs(likelihoods))] if text else []
            case CompletionFinished():
                self.finished = event
                reason = finish_reason_of(event.finished)
                return [{**self._choice("", None), "finish_reason": reason}]

    def whole(self, told: Sequence[Json]) -> Json:
        """All that `take` told, as one."""
        logprobs = [choice["logprobs"] for choice in told if choice["logprobs"] is not None]
        joined = {
            name: [entry for each in logprobs for entry in each[name]]
            for name in ("tokens", "token_logprobs", "top_logprobs", "text_offset")
        }
        text = "".join(choice["text"] for choice in told)
        return {**told[-1], "text": text, "logprobs": joined if logprobs else None}

    def _choice(self, text: str, logprobs: Json | None) -> Json:
        return {
            "index": self._index,
            "text": text,
            "logprobs": logprobs,
            "finish_reason": None,
        }

    def _logprobs(self, taken: Sequence[TokenLikelihood]) -> Json | None:
        if not taken:
            return None
        offsets: list[int] = []
        for each in taken:
            offsets.append(self._offset)
            self._offset += len(each.token.text)
        return {
            "tokens": [each.token.text for each in taken],
            "token_logprobs": [each.logprob for each in taken],
            "top_logprobs": [
                {token.text: value for token, value in each.likeliest} for each in taken
            ],
            "text_offset": offsets,
        }


async def _chunks(
    completion: Completion, choices: list[_TextChoice], events: Events, num_each: int
) -> AsyncGenerator[bytes, None]:
    async with aclosing(events):
        async for index, event in events:
            for choice in choices[index].take(event):
                yield completion.chunk([choice])
    if completion.includes_usage:
        yield completion.chunk([], **_closing(choices, num_each))


async def _whole(
    completion: Completion, choices: list[_TextChoice], events: Events, num_each: int
) -> Json:
    told: list[list[Json]] = [[] for _ in choices]
    async for index, event in events:
        told[index] += choices[index].take(event)
    wholes = [choice.whole(told[index]) for index, choice in enumerate(choices)]
    return {**completion.body(completion.kind), "choices": wholes, **_closing(choices, num_each)}


def _closing(choices: Sequence[_TextChoice], num_each: int) -> Json:
    """What is said at the end; of every prompt there are so many choices, one after another."""
    starts = [choice.started for choice in choices if choice.started is not None]
    ends = [choice.finished for choice in choices if choice.finished is not None]
    assert len(starts) == len(ends) == len(choices), "a generation ended without its last event"
    return {
        "usage": usage_of([start.claim for start in starts[::num_each]], ends),
        "prompt_cache_diagnostics": cache_diagnostics(starts[0].claim),
    }
