"""What the engine core needs of others, as it sees them: the loaded model and its tokenizer."""

from collections.abc import Sequence as Items
from dataclasses import dataclass
from typing import Protocol

import torch

from model.batch import BatchRow
from model.block_supply import BlockEdit
from model.errors import ModelError
from model.messages import CompiledStats, GenerationEvent
from model.sampler import Draw, Sampled


class Runner(Protocol):
    """What the core needs of `runner.ModelRunner`."""

    num_rows: int

    def compiled(self) -> CompiledStats:
        """How it stands with the compiled step."""
        ...

    def edit(self, edits: Items[BlockEdit]) -> None:
        """Carry out edits of blocks; they are done when this returns."""
        ...

    def forward(self, rows: Items[BatchRow], edits: Items[BlockEdit]) -> torch.Tensor:
        """Logits `[B, V]` behind the rows that want them."""
        ...

    def sample(self, logits: torch.Tensor, draws: Items[Draw]) -> list[Sampled]:
        """A token for each row of logits."""
        ...


class Tokenizer(Protocol):
    """What the core needs of a tokenizer."""

    def decode(self, token_ids: list[int]) -> str:
        """Ids to text, special tokens left out."""
        ...

    def encode(self, text: str) -> list[int]:
        """Text to ids as behind other text, nothing added."""
        ...


@dataclass(frozen=True, slots=True)
class Output:
    """What happened to one generation in a step."""

    request_id: str
    event: GenerationEvent | ModelError


@dataclass(frozen=True, slots=True, kw_only=True)
class CoreLimits:
    """What the loaded model and its cache allow. Tokens, and the ids that end a reply."""

    max_context_tokens: int
    vocab_size: int
    eos_token_ids: frozenset[int]
    block_bytes: int
