"""The tensors behind the blocks: one allocation, block-major.

`[N, L, 2, P, K, D]`: a block's bytes for all layers lie together, so that moving a block to another
tier is one copy; a layer's view of all blocks is strided. The order inside a block is part of
`prefix_index.LAYOUT_VERSION`. Letters are explained in `batch`.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
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
        self._stream: torch.cuda.Stream | None = None
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
            self._bytes = _bytes_of(self._blocks)

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

    @property
    def block_bytes(self) -> int:
        """A block's size."""
        return self.shape.block_bytes

    def in_place(self, block_id: int) -> memoryview | None:
        """A block's own bytes, where the device is the CPU: a transfer need not copy them twice."""
        if self._bytes is None:
            return None
        start = block_id * self.block_bytes
        return self._bytes[start : start + self.block_bytes]

    @contextmanager
    def reading(self, block_id: int, num_tokens: int) -> Iterator[memoryview]:
        """A block's bytes to store; what lies behind its first `num_tokens` slots is zero, for it
        may be another conversation's. In place, where the block is full and the device the CPU."""
        block = self._blocks[block_id]
        is_partial = num_tokens < self.shape.block_size
        if block.device.type != "cpu":
            block = self._copied_aside(block)
        elif is_partial:
            block = block.clone()
        if is_partial:
            # Here, not on the device: its own stream and the side stream don't wait for each other.
            block[:, :, num_tokens:] = 0
        yield _bytes_of(block)

    @contextmanager
    def writing(self, block_id: int) -> Iterator[memoryview]:
        """Room for the bytes of a block that isn't in place; they are on the device when the
        context ends well."""
        block = self._blocks[block_id]
        staging = torch.empty(block.shape, dtype=block.dtype, pin_memory=True)
        yield _bytes_of(staging)
        with torch.cuda.stream(self._side_stream()):
            block.copy_(staging, non_blocking=True)
            torch.cuda.current_stream().synchronize()

    def _copied_aside(self, block: torch.Tensor) -> torch.Tensor:
        """The block in pinned memory, by a stream that computing doesn't wait for."""
        with torch.cuda.stream(self._side_stream()):
            staging = torch.empty(block.shape, dtype=block.dtype, pin_memory=True)
            staging.copy_(block, non_blocking=True)
            torch.cuda.current_stream().synchronize()
        return staging

    def _side_stream(self) -> torch.cuda.Stream:
        if self._stream is None:
            self._stream = torch.cuda.Stream(self._blocks.device)  # type: ignore[no-untyped-call]
        return self._stream

    def edit(self, edits: Iterable[BlockEdit]) -> None:
        """Carry out edits one after the other: a target may be a later one's source."""
        for edit in edits:
            if edit.source is None:
                self._blocks[edit.target].fill_(torch.nan)
            else:
                self._blocks[edit.target].copy_(self._blocks[edit.source])


def _bytes_of(block: torch.Tensor) -> memoryview:
    """A contiguous CPU tensor's memory, as bytes."""
    return memoryview(block.view(torch.uint8).numpy()).cast("B")  # type: ignore[arg-type]
