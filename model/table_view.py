"""Block tables as they are shown: ids, tokens, tier, sharing, bytes."""

from collections.abc import Sequence
from dataclasses import dataclass

from model.block_pool import BlockPool
from model.messages import BlockView, TableView, TierName
from model.prefix_index import PrefixIndex


@dataclass(frozen=True, slots=True)
class TableViewer:
    """Looks blocks up in the pool and the index; `block_bytes` is one block's size."""

    pool: BlockPool
    index: PrefixIndex
    block_size: int
    block_bytes: int

    def view(
        self,
        turn_id: str,
        block_ids: Sequence[int],
        num_tokens: int,
        num_computed: int,
        *,
        idle_s: float | None,
    ) -> TableView:
        """One table; `idle_s` None says that it is running."""
        return TableView(
            turn_id=turn_id,
            is_running=idle_s is None,
            num_tokens=num_tokens,
            num_computed_tokens=num_computed,
            idle_s=idle_s or 0.0,
            num_bytes=len(block_ids) * self.block_bytes,
            blocks=tuple(
                self._block(block_id, num_computed - i * self.block_size)
                for i, block_id in enumerate(block_ids)
            ),
        )

    def _block(self, block_id: int, num_left: int) -> BlockView:
        block_hash = self.index.hash_of(block_id)
        return BlockView(
            block_id=block_id,
            num_tokens=max(0, min(self.block_size, num_left)),
            tier=TierName.DEVICE,
            num_holders=self.pool.ref_count(block_id),
            block_hash=None if block_hash is None else block_hash.hex(),
        )
