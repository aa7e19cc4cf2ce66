"""One step's input as tensors. Sequences are laid end to end, without padding.

Letters for shapes, here and in all of `model/`:
    T tokens in the step, B sequences, M blocks in a table, N blocks in the cache, P tokens a block,
    L layers, H query heads, K key-value heads, G = H / K, D head size, S tokens of one sequence's
    history and chunk together, V vocabulary
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from model.block_table import num_blocks_for


@dataclass(frozen=True, slots=True)
class BatchRow:
    """One sequence's part of a step: `token_ids` at positions `start` and on, written through
    `block_ids`; the logits behind its last token are wanted or not."""

    token_ids: Sequence[int]
    start: int
    block_ids: Sequence[int]
    has_logits: bool

    @property
    def end(self) -> int:
        """S: positions that exist after the step."""
        return self.start + len(self.token_ids)


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """One step. `places` are each token's block and the offset in it; `tables[i]` has just the
    blocks that cover sequence i's S positions; `spans[i]` is its rows' half-open range in T."""

    token_ids: torch.Tensor  # [T]
    positions: torch.Tensor  # [T]
    places: tuple[torch.Tensor, torch.Tensor]  # [T], [T]
    tables: tuple[torch.Tensor, ...]  # B times [M]
    spans: tuple[tuple[int, int], ...]
    ends: tuple[int, ...]  # S of each sequence
    logits_rows: torch.Tensor  # rows of T that are sampled from

    @classmethod
    def build(cls, rows: Sequence[BatchRow], block_size: int, device: torch.device) -> "Batch":
        """Lay the rows end to end on the device."""
        token_ids: list[int] = []
        positions: list[int] = []
        blocks: list[int] = []
        spans: list[tuple[int, int]] = []
        logits_rows: list[int] = []
        for row in rows:
            spans.append((len(token_ids), len(token_ids) + len(row.token_ids)))
            token_ids += row.token_ids
            positions += range(row.start, row.end)
            blocks += [row.block_ids[p // block_size] for p in range(row.start, row.end)]
            if row.has_logits:
                logits_rows.append(len(token_ids) - 1)
        places = torch.tensor([blocks, [p % block_size for p in positions]])
        return cls(
            token_ids=torch.tensor(token_ids).to(device),
            positions=torch.tensor(positions).to(device),
            places=tuple(places.to(device)),
            tables=tuple(
                torch.tensor(row.block_ids[: num_blocks_for(row.end, block_size)]).to(device)
                for row in rows
            ),
            spans=tuple(spans),
            ends=tuple(row.end for row in rows),
            logits_rows=torch.tensor(logits_rows, dtype=torch.long).to(device),
        )
