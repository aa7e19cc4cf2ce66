"""Grammars over a small tokenizer that can write anything, and random bounded schemas."""

import json
import random
from functools import cache
from typing import Any

from transformers import PreTrainedTokenizerFast

from model.config import SamplingParams
from model.grammar import Grammar, GrammarKind
from model.matcher import Grammars
from tests.support.tiny_tokenizer import make_tokenizer

EOS = 2  # <|im_end|>


class Words:
    """A tokenizer as the core sees it."""

    def __init__(self, tokenizer: PreTrainedTokenizerFast) -> None:
        self._tokenizer = tokenizer

    def decode(self, token_ids: list[int]) -> str:
        return self._tokenizer.decode(
            token_ids, skip_special_tokens=True, clean_up_tokenization_spaces=False
        )

    def encode(self, text: str) -> list[int]:
        return self._tokenizer.encode(text, add_special_tokens=False)


@cache
def tokenizer() -> PreTrainedTokenizerFast:
    return make_tokenizer(None)


def make_grammars(vocab_size: int | None = None) -> Grammars:
    return Grammars(tokenizer(), vocab_size or len(tokenizer()), (EOS,))


def schema(value: object, **fields: Any) -> Grammar:
    return Grammar(kind=GrammarKind.JSON_SCHEMA, text=json.dumps(value), **fields)


def regex(text: str) -> Grammar:
    return Grammar(kind=GrammarKind.REGEX, text=text)


def params(grammar: Grammar | None, **fields: Any) -> SamplingParams:
    return SamplingParams(**{"seed": 1, "grammar": grammar, **fields})


def random_schema(seed: int) -> dict[str, Any]:
    """A schema of which no instance is long."""
    return _any(random.Random(seed), 3)


def _any(draw: random.Random, depth: int) -> dict[str, Any]:
    makers = [_string, _integer, _boolean, _enum, _null, _const]
    if depth:
        makers += [_object, _array, _union, _object]
    return draw.choice(makers)(draw, depth)


def _string(draw: random.Random, _depth: int) -> dict[str, Any]:
    if draw.random() < 0.3:
        return {"type": "string", "pattern": draw.choice(["^[a-z]{2,5}$", "^(ab|cd)[0-9]?$"])}
    return {"type": "string", "minLength": draw.randint(0, 2), "maxLength": draw.randint(2, 8)}


def _integer(draw: random.Random, _depth: int) -> dict[str, Any]:
    low = draw.randint(-50, 50)
    return {"type": "integer", "minimum": low, "maximum": low + draw.randint(0, 1000)}


def _boolean(_draw: random.Random, _depth: int) -> dict[str, Any]:
    return {"type": "boolean"}


def _null(_draw: random.Random, _depth: int) -> dict[str, Any]:
    return {"type": "null"}


def _enum(draw: random.Random, _depth: int) -> dict[str, Any]:
    return {"enum": draw.sample(["red", "green", 3, None, True, "naïve ☃", "a\nb", ""], 3)}


def _const(draw: random.Random, _depth: int) -> dict[str, Any]:
    return {"const": draw.choice(["x", 1, {"a": [1, 2]}, [None]])}


def _array(draw: random.Random, depth: int) -> dict[str, Any]:
    low = draw.randint(0, 2)
    return {
        "type": "array",
        "items": _any(draw, depth - 1),
        "minItems": low,
        "maxItems": low + draw.randint(0, 2),
    }


def _object(draw: random.Random, depth: int) -> dict[str, Any]:
    names = draw.sample(["id", "name", "größe", "a b", 'q"uote', "list", "x"], draw.randint(0, 4))
    return {
        "type": "object",
        "properties": {name: _any(draw, depth - 1) for name in names},
        "required": [name for name in names if draw.random() < 0.7],
        "additionalProperties": False,
    }


def _union(draw: random.Random, depth: int) -> dict[str, Any]:
    return {"anyOf": [_any(draw, depth - 1) for _ in range(draw.randint(1, 3))]}
