"""Physical KV blocks: who holds each one, and which is reused next.

A block is *held* (ref_count > 0) or *free*. A free block keeps its contents until it is allocated
again, so the prefix index may still know it; the pool knows nothing of contents.

Invariants (`check`, and tests/property/test_block_pool.py):
    every block is held or free, never both
    held + free = num_blocks
    free blocks are queued in the order in which they will be reused
"""

from collections import OrderedDict
from collections.abc import Iterable, Mapping

from model.errors import OutOfBlocksError


class BlockPool:
    """Reference counts and the order of reuse of `num_blocks` blocks, named 0 to num_blocks - 1."""

    def __init__(self, num_blocks: int) -> None:
        self.num_blocks = num_blocks
        self._ref_counts = [0] * num_blocks
        self._free: OrderedDict[int, None] = OrderedDict.fromkeys(range(num_blocks))

    @property
    def num_free(self) -> int:
        """Blocks nobody holds."""
        return len(self._free)

    def ref_count(self, block_id: int) -> int:
        """How many holders the block has."""
        return self._ref_counts[block_id]

    def free_block_ids(self) -> Iterable[int]:
        """The free blocks, next to be reused first."""
        return self._free.keys()

    def allocate(self, num_blocks: int) -> list[int]:
        """Take the free blocks that wait longest, each held once; all, or OutOfBlocksError."""
        if num_blocks > len(self._free):
            raise OutOfBlocksError(num_blocks, len(self._free))
        taken = [self._free.popitem(last=False)[0] for _ in range(num_blocks)]
        for block_id in taken:
            self._ref_counts[block_id] = 1
        return taken

    def hold(self, block_ids: Iterable[int]) -> None:
        """Add a holder to each block; a free one is taken out of the queue, contents and all."""
        for block_id in block_ids:
            self._free.pop(block_id, None)
            self._ref_counts[block_id] += 1

    def release(self, block_id: int, *, reuse_first: bool) -> None:
        """Take one holder away. The last one frees the block: to the end of the queue, or to its
        front when nothing can ever find the contents again."""
        assert self._ref_counts[block_id] > 0, f"block {block_id} released but not held"
        self._ref_counts[block_id] -= 1
        if self._ref_counts[block_id] == 0:
            self._free[block_id] = None
            if reuse_first:
                self._free.move_to_end(block_id, last=False)

    def check(self, holders: Mapping[int, int]) -> None:
        """Compare with `holders` (block id → how many tables contain it); AssertionError if off."""
        for block_id, count in enumerate(self._ref_counts):
            held = holders.get(block_id, 0)
            assert count == held, f"block {block_id}: ref_count {count}, {held} holders"
            assert (count == 0) == (block_id in self._free), f"block {block_id} is held and free"
        assert len(self._free) <= self.num_blocks
