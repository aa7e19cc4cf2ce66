"""The tensors behind the blocks: one allocation, block-major.

`[N, L, 2, P, K, D]`: a block's bytes for all layers lie together, so that moving a block to another
tier is one copy; a layer's view of all blocks is strided. The order inside a block is part of
`prefix_index.LAYOUT_VERSION`. Letters are explained in `batch`.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial

import torch

from model.block_supply import BlockEdit
from model.carriers import CudaLane, InPlaceCarrier, Lane, StagedCarrier, bytes_of
from model.tiers.mover import Carrier, Part


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
    """Keys and values of `num_blocks` blocks on one device. `lane` makes what copies from and to
    it, for each thread that does; without one that is CUDA's, or nothing on the CPU."""

    def __init__(
        self,
        shape: KVShape,
        num_blocks: int,
        device: torch.device,
        lane: Callable[[], Lane] | None = None,
    ) -> None:
        self.shape = shape
        self.num_blocks = num_blocks
        self.block_bytes = shape.block_bytes
        self._lane = lane or (partial(CudaLane, device) if device.type == "cuda" else None)
        self._bytes: memoryview | None = None
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
        if device.type == "cpu":
            self._bytes = bytes_of(self._blocks)

    @property
    def tensor(self) -> torch.Tensor:
        """Every block, `[N, L, 2, P, K, D]`."""
        return self._blocks

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
        """Store key and value `[T, K, D]`, rounded to the cache's dtype, at `places`: block ids and
        offsets, `[T]` each."""
        view = self._blocks[:, layer]
        view[:, 0].index_put_(places, key.to(view.dtype))
        view[:, 1].index_put_(places, value.to(view.dtype))

    def poison(self) -> None:
        """Fill every block with NaN."""
        self._blocks.fill_(torch.nan)

    def carrier(self) -> Carrier:
        """What takes blocks' bytes to this process's memory and back, a new one for each thread."""
        if self._lane is not None:
            return StagedCarrier(self._blocks, self._lane())
        return InPlaceCarrier(self.block_bytes, self._view, self._copy, self.shape.block_size)

    def _view(self, block_id: int) -> memoryview:
        assert self._bytes is not None, "the device isn't the CPU"
        start = block_id * self.block_bytes
        return self._bytes[start : start + self.block_bytes]

    def _copy(self, part: Part) -> memoryview:
        block_id, num_tokens = part
        block = self._blocks[block_id].clone()
        block[:, :, num_tokens:] = 0
        return bytes_of(block)

    def edit(self, edits: Iterable[BlockEdit]) -> None:
        """Carry out edits one after the other: a target may be a later one's source."""
        for edit in edits:
            if edit.source is None:
                self._blocks[edit.target].fill_(torch.nan)
            else:
                self._blocks[edit.target].copy_(self._blocks[edit.source])
