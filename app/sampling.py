"""Sampling parameters as callers send them, with OpenAI's ranges. What is absent is the default.

One set of fields serves turns, frames and chat completions; only the name of the length differs.
"""

import math
import re
from dataclasses import replace
from typing import Annotated, Any

from aiohttp import web
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    Field,
    StringConstraints,
    WithJsonSchema,
)

from app.keys import CONFIG, ENGINE
from sessions.types import SamplingParams

_TOKEN_ID = re.compile(r"^[0-9]{1,9}$")
MAX_STOPS = 4
MAX_BIASED_TOKENS = 1024

# A zero share would leave no token to draw; the smallest share leaves the likeliest one.
SMALLEST_TOP_P = 1e-6


def _as_list(value: object) -> object:
    return [value] if isinstance(value, str) else value


def _token_id(text: str) -> str:
    # OpenAI's clients send ids as keys; a word there would be nobody's token.
    if _TOKEN_ID.fullmatch(text) is None:
        raise ValueError('keys are ids of tokens, as in {"50256": -100}')
    return text


StopString = Annotated[str, StringConstraints(min_length=1, max_length=512)]
TokenKey = Annotated[
    str,
    AfterValidator(_token_id),
    WithJsonSchema({"type": "string", "pattern": _TOKEN_ID.pattern}),
]
Bias = Annotated[float, Field(ge=-100, le=100)]


def default_params(app: web.Application) -> SamplingParams:
    """Return what applies where a request names nothing.

    Raises EngineUnavailableError while no model is loaded.
    """
    return app[CONFIG].sampling.over(app[ENGINE].info.sampling)


class SamplingFields(BaseModel):
    """How the reply is drawn; null counts as absent."""

    temperature: float | None = Field(None, ge=0, le=2)
    top_p: float | None = Field(None, ge=0, le=1)
    top_k: int | None = Field(None, ge=-1, le=2**31 - 1)
    min_p: float | None = Field(None, ge=0, le=1)
    presence_penalty: float | None = Field(None, ge=-2, le=2)
    frequency_penalty: float | None = Field(None, ge=-2, le=2)
    repetition_penalty: float | None = Field(None, gt=0, le=10)
    seed: int | None = Field(None, ge=-(2**63), le=2**63 - 1)
    stop: Annotated[
        list[StopString] | None,
        BeforeValidator(_as_list, json_schema_input_type=StopString | list[StopString] | None),
    ] = Field(None, max_length=MAX_STOPS)
    stop_token_ids: list[Annotated[int, Field(ge=0, le=2**31 - 1)]] | None = Field(
        None, max_length=64
    )
    logit_bias: dict[TokenKey, Bias] | None = Field(None, max_length=MAX_BIASED_TOKENS)
    ignore_eos: bool | None = None
    deadline_s: float | None = Field(None, gt=0, le=86400)

    def length_limit(self) -> int | None:
        """Return the reply's limit in tokens, under whatever name the surface gives it."""
        return None

    def to_params(self, defaults: SamplingParams) -> SamplingParams:
        """Lay what was sent over the defaults."""
        given: dict[str, Any] = {
            name: value
            for name in SamplingFields.model_fields
            if (value := getattr(self, name)) is not None
        }
        if "top_p" in given:
            given["top_p"] = max(given["top_p"], SMALLEST_TOP_P)
        if "top_k" in given:
            given["top_k"] = max(given["top_k"], 0)  # -1 is how other servers say "off"
        for name in ("stop", "stop_token_ids"):
            if name in given:
                given[name] = tuple(given[name])
        if "logit_bias" in given:
            bias = {int(token): amount for token, amount in given["logit_bias"].items()}
            given["logit_bias"] = tuple(sorted(bias.items()))
        if defaults.deadline_s is not None:  # the operator's is a limit
            given["deadline_s"] = min(given.get("deadline_s", math.inf), defaults.deadline_s)
        if (limit := self.length_limit()) is not None:
            given["max_output_tokens"] = limit
        return replace(defaults, **given)

    def to_params_again(self, earlier: SamplingParams) -> SamplingParams:
        """Lay what was sent over how a turn was drawn that is to be drawn again.

        Its seed is dropped unless one is sent: it would draw the same reply.
        """
        return self.to_params(replace(earlier, seed=None))
