"""A runner without a model, in which what a slot holds can be told from what it should hold.

A slot keeps a number made of its token and the number in the slot before it, so it stands for the
whole prefix, as keys and values do. A reply's next token is made of the last number: it is right
only if every block that was reused, copied, preempted or shared held exactly the right tokens.
"""

import zlib
from array import array
from collections.abc import Sequence

import torch

from model.batch import BatchRow
from model.block_supply import BlockEdit
from model.messages import CompiledStats
from model.sampler import Draw, Sampled, sample
from tests.support.memory_storage import PlainCarrier


def extend(prefix: int, token_id: int) -> int:
    return zlib.crc32(f"{prefix}/{token_id}".encode())


class ShadowRunner:
    def __init__(self, block_size: int, vocab_size: int) -> None:
        self.num_rows = 0
        self._block_size = block_size
        self._vocab_size = vocab_size
        self._slots: dict[int, int] = {}

    def compiled(self) -> CompiledStats:
        return CompiledStats()

    def edit(self, edits: Sequence[BlockEdit]) -> None:
        for edit in edits:
            for offset in range(self._block_size):
                # Poisoned slots are empty: reading one is a KeyError.
                target = edit.target * self._block_size + offset
                self._slots.pop(target, None)
                if edit.source is not None:
                    source = edit.source * self._block_size + offset
                    if source in self._slots:
                        self._slots[target] = self._slots[source]

    def forward(self, rows: Sequence[BatchRow], edits: Sequence[BlockEdit]) -> torch.Tensor:
        self.edit(edits)
        ends = [self._write(row) for row in rows]
        logits = torch.zeros(sum(r.has_logits for r in rows), self._vocab_size)
        wanted = [end for row, end in zip(rows, ends, strict=True) if row.has_logits]
        for i, end in enumerate(wanted):
            logits[i, end % self._vocab_size] = 50.0
        return logits

    @property
    def blocks(self) -> "ShadowRunner":
        """What transfers move."""
        return self

    # What transfers need of blocks: a slot is eight bytes.

    def carrier(self) -> PlainCarrier:
        return PlainCarrier(8 * self._block_size, self._read, self._put, max_blocks=3)

    def _read(self, block_id: int, num_tokens: int) -> bytes:
        slots = range(block_id * self._block_size, block_id * self._block_size + num_tokens)
        payload = array("Q", [self._slots[slot] for slot in slots])
        payload.extend([0] * (self._block_size - num_tokens))
        return payload.tobytes()

    def _put(self, block_id: int, payload: bytes) -> None:
        self._slots.update(enumerate(array("Q", payload), block_id * self._block_size))

    def sample(self, logits: torch.Tensor, draws: Sequence[Draw]) -> list[Sampled]:
        return sample(logits, draws)

    def reply(self, prompt: Sequence[int], num_tokens: int) -> list[int]:
        """What follows the prompt, computed without any cache."""
        prefix, token_ids = 0, []
        for token_id in prompt:
            prefix = extend(prefix, token_id)
        for _ in range(num_tokens):
            token_ids.append(prefix % self._vocab_size)
            prefix = extend(prefix, token_ids[-1])
        return token_ids

    def _write(self, row: BatchRow) -> int:
        prefix = self._slots[self._slot(row, row.start - 1)] if row.start else 0
        for position, token_id in enumerate(row.token_ids, row.start):
            prefix = extend(prefix, token_id)
            self._slots[self._slot(row, position)] = prefix
            self.num_rows += 1
        return prefix

    def _slot(self, row: BatchRow, position: int) -> int:
        block, offset = divmod(position, self._block_size)
        return row.block_ids[block] * self._block_size + offset
