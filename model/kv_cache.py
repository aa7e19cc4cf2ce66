"""The tensors behind the blocks: one allocation, block-major.

`[N, L, 2, P, K, D]`: a block's bytes for all layers lie together, so that moving a block to another
tier is one copy; a layer's view of all blocks is strided. The order inside a block is part of
`prefix_index.LAYOUT_VERSION`. Letters are explained in `batch`.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import torch

from model.block_supply import BlockEdit


@dataclass(frozen=True, slots=True, kw_only=True)
class KVShape:
    """What one block of a model holds."""

    num_layers: int
    block_size: int
    num_kv_heads: int
    head_size: int
    dtype: torch.dtype

    @property
    def block_bytes(self) -> int:
        """Bytes of one block, keys and values of all layers."""
        num_values = self.num_layers * 2 * self.block_size * self.num_kv_heads * self.head_size
        return num_values * self.dtype.itemsize


class KVCache:
    """Keys and values of `num_blocks` blocks on one device."""

    def __init__(self, shape: KVShape, num_blocks: int, device: torch.device) -> None:
        self.shape = shape
        self.num_blocks = num_blocks
        # Zeros, not garbage: slots that were never written are read and masked by some backends.
        self._blocks = torch.zeros(
            num_blocks,
            shape.num_layers,
            2,
            shape.block_size,
            shape.num_kv_heads,
            shape.head_size,
            dtype=shape.dtype,
            device=device,
        )  # [N, L, 2, P, K, D]

    def layer(self, index: int) -> torch.Tensor:
        """One layer's keys and values of every block, `[N, 2, P, K, D]`, a strided view."""
        return self._blocks[:, index]

    def write(
        self,
        layer: int,
        places: tuple[torch.Tensor, torch.Tensor],
        key: torch.Tensor,
        value: torch.Tensor,
    ) -> None:
        """Store key and value `[T, K, D]` at `places`: block ids and offsets, `[T]` each."""
        view = self._blocks[:, layer]
        view[:, 0].index_put_(places, key)
        view[:, 1].index_put_(places, value)

    def poison(self) -> None:
        """Fill every block with NaN."""
        self._blocks.fill_(torch.nan)

    def edit(self, edits: Iterable[BlockEdit]) -> None:
        """Carry out edits one after the other: a target may be a later one's source."""
        for edit in edits:
            if edit.source is None:
                self._blocks[edit.target].fill_(torch.nan)
            else:
                self._blocks[edit.target].copy_(self._blocks[edit.source])
