"""What a grammar costs each step: filling its mask, and forbidding a row's logits by it."""

import json
import time
from dataclasses import dataclass, field
from pathlib import Path

import torch
from transformers import AutoTokenizer

from model.config import SamplingParams
from model.grammar import Grammar, GrammarKind
from model.matcher import Grammars
from model.sampler import Draw, sample

_PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string"},
        "age": {"type": "integer"},
        "tags": {"type": "array", "items": {"enum": ["red", "green", "blue"]}},
        "address": {
            "type": "object",
            "properties": {"street": {"type": "string"}, "zip": {"type": "string"}},
            "required": ["street"],
        },
    },
    "required": ["name", "age", "tags"],
}
_SAYINGS: tuple[tuple[Grammar, str], ...] = (
    (
        Grammar(kind=GrammarKind.JSON_SCHEMA, text=json.dumps(_PERSON)),
        '{"name": "Ada Lovelace", "age": 36, "tags": ["red", "blue"], '
        '"address": {"street": "12 St James\u2019s Square, London", "zip": "SW1Y"}}',
    ),
    (
        Grammar(kind=GrammarKind.JSON_OBJECT),
        '{"any": [1, 2.5e3, null, {"deep": {"er": "text, with \\"quotes\\" in it"}}], "b": true}',
    ),
    (
        Grammar(kind=GrammarKind.REGEX, text=r"[A-Z][a-z ]+, \d{4}-\d{2}-\d{2}"),
        "On a day, 2026-01-31",
    ),
)


@dataclass(slots=True)
class MaskCosts:
    """Seconds, an entry a step; and an entry a grammar compiled."""

    mask_s: list[float] = field(default_factory=list)
    apply_s: list[float] = field(default_factory=list)
    compile_s: list[float] = field(default_factory=list)


def measure_masks(folder: Path, rounds: int) -> MaskCosts:
    """Follow each saying so many times, a token a step."""
    torch.set_num_threads(1)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    costs, vocab_size = MaskCosts(), len(tokenizer)
    grammars = Grammars(tokenizer, vocab_size, (tokenizer.eos_token_id,))
    for grammar, _ in _SAYINGS:
        began = time.perf_counter()
        grammars.open(grammar)
        costs.compile_s.append(time.perf_counter() - began)
    for _ in range(rounds):
        for grammar, saying in _SAYINGS:
            constraint = grammars.open(grammar)
            for token_id in tokenizer.encode(saying, add_special_tokens=False):
                began = time.perf_counter()
                mask = constraint.mask()
                costs.mask_s.append(time.perf_counter() - began)
                costs.apply_s.append(_applied(vocab_size, mask) - _applied(vocab_size, None))
                constraint.take(token_id)
            assert constraint.error is None, constraint.error
    return costs


def _applied(vocab_size: int, mask: bytes | None) -> float:
    """Seconds that a greedy draw takes."""
    logits = torch.zeros(1, vocab_size)
    draw = Draw(SamplingParams(temperature=0.0), 0, 0, (), 0, mask)
    began = time.thread_time()  # a difference of two, which others' turns would blur
    sample(logits, [draw])
    return time.thread_time() - began
