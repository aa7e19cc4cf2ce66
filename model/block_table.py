"""The blocks of one token sequence, in order: logical position → physical slot.

A table names blocks and owns no reference counts: whoever changes a table (`cache_manager`) moves
the counts with it. Entry i holds the positions i·block_size … (i+1)·block_size - 1.
"""

from collections.abc import Iterable


def num_blocks_for(num_tokens: int, block_size: int) -> int:
    """How many blocks `num_tokens` positions take up."""
    return -(-num_tokens // block_size)


class BlockTable:
    """An ordered list of block ids."""

    __slots__ = ("block_ids", "block_size")

    def __init__(self, block_size: int, block_ids: Iterable[int] = ()) -> None:
        self.block_size = block_size
        self.block_ids: list[int] = list(block_ids)

    def __len__(self) -> int:
        return len(self.block_ids)

    @property
    def num_slots(self) -> int:
        """Positions that have a place."""
        return len(self.block_ids) * self.block_size

    def slot(self, position: int) -> int:
        """The flat index of a position's place in the cache: block_id · block_size + offset."""
        block, offset = divmod(position, self.block_size)
        return self.block_ids[block] * self.block_size + offset

    def truncate(self, num_tokens: int) -> list[int]:
        """Cut back to what `num_tokens` positions need; the removed block ids, tail first."""
        keep = num_blocks_for(num_tokens, self.block_size)
        removed = self.block_ids[keep:]
        del self.block_ids[keep:]
        return removed[::-1]
