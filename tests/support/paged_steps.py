"""Steps for attention backends: random sequences in scattered blocks of a cache full of NaN."""

import random
from dataclasses import dataclass

import torch

from model.attention.base import AttentionSpec
from model.batch import Batch, BatchRow
from model.block_table import num_blocks_for

CPU = torch.device("cpu")


@dataclass(frozen=True)
class Shape:
    """`sequences` are (positions that exist before the step, positions computed in it); keys and
    values have the queries' dtype unless another is given."""

    sequences: tuple[tuple[int, int], ...]
    block_size: int = 4
    num_kv_heads: int = 2
    num_groups: int = 3
    head_size: int = 8
    dtype: torch.dtype = torch.float32
    kv_dtype: torch.dtype | None = None


class PagedStep:
    """One step. What isn't a sequence's own is NaN, in its own blocks too."""

    def __init__(self, shape: Shape, seed: int = 0) -> None:
        self.shape = shape
        generator = torch.Generator().manual_seed(seed)
        size, heads = shape.block_size, shape.num_kv_heads
        needs = [num_blocks_for(sum(s), size) for s in shape.sequences]
        block_ids = random.Random(seed).sample(range(sum(needs) + 3), sum(needs))

        kv_dtype = shape.kv_dtype or shape.dtype

        def noise(*dims: int) -> torch.Tensor:
            return torch.randn(*dims, generator=generator).to(kv_dtype)

        self.kv = torch.full(
            (sum(needs) + 3, 2, size, heads, shape.head_size), torch.nan, dtype=kv_dtype
        )
        self.keys, self.values, self.tables, rows = [], [], [], []
        for (history, chunk), need in zip(shape.sequences, needs, strict=True):
            mine, block_ids = block_ids[:need], block_ids[need:]
            self.tables.append(mine)
            length = history + chunk
            self.keys.append(noise(length, heads, shape.head_size))
            self.values.append(noise(length, heads, shape.head_size))
            for position in range(length):
                block, offset = mine[position // size], position % size
                self.kv[block, 0, offset] = self.keys[-1][position]
                self.kv[block, 1, offset] = self.values[-1][position]
            rows.append(BatchRow([0] * chunk, history, mine, has_logits=True))
        self.batch = Batch.build(rows, size, CPU)
        num_rows = sum(chunk for _, chunk in shape.sequences)
        self.query = torch.randn(
            num_rows, heads * shape.num_groups, shape.head_size, generator=generator
        ).to(shape.dtype)

    def dense(self, spec: AttentionSpec) -> torch.Tensor:
        """Row by row over each sequence's own keys and values, in float64."""
        outputs, row = [], 0
        for (history, chunk), keys, values in zip(
            self.shape.sequences, self.keys, self.values, strict=True
        ):
            for position in range(history, history + chunk):
                first = 0 if spec.window is None else max(0, position - spec.window + 1)
                outputs.append(
                    _attend_row(
                        self.query[row].double(),
                        keys[first : position + 1].double(),
                        values[first : position + 1].double(),
                        spec,
                    )
                )
                row += 1
        return torch.stack(outputs)


def _attend_row(
    query: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, spec: AttentionSpec
) -> torch.Tensor:
    query = query.unflatten(0, (keys.shape[1], -1))  # [K, G, D]
    scores = torch.einsum("kgd,skd->kgs", query, keys) * spec.scaling
    if spec.softcap is not None:
        scores = spec.softcap * torch.tanh(scores / spec.softcap)
    return torch.einsum("kgs,skd->kgd", scores.softmax(dim=-1), values).flatten(0, 1)
