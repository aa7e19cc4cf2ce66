"""Block tables as they are shown: ids, tokens, tiers, sharing, bytes. Of a table that only tiers
have, those blocks are shown on the device that can be found there by name."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from model.block_pool import BlockPool
from model.messages import BlockView, TableView, TierName
from model.parked_tables import ParkedTable
from model.prefix_index import BlockHash, PrefixIndex
from model.sequence import Sequence as Generation
from model.tiers.base import Hold
from model.tiers.tier import Tier


@dataclass(frozen=True, slots=True)
class TableViewer:
    """Looks blocks up in the pool, the index and the tiers; `block_bytes` is one block's size."""

    pool: BlockPool
    index: PrefixIndex
    tiers: Sequence[Tier]
    block_size: int
    block_bytes: int

    def running(self, sequence: Generation) -> TableView:
        """A table in use; it is not idle."""
        return TableView(
            turn_id=sequence.id,
            is_running=True,
            num_tokens=sequence.num_tokens,
            num_computed_tokens=sequence.num_computed_tokens,
            idle_s=0.0,
            num_bytes=len(sequence.table) * self.block_bytes,
            blocks=tuple(
                self._on_device(block_id, sequence.num_computed_tokens - i * self.block_size)
                for i, block_id in enumerate(sequence.table.block_ids)
            ),
        )

    def parked(self, parked: ParkedTable, now_s: float) -> TableView:
        """A table between turns."""
        tail = parked.last_key
        last = len(parked.table) - 1
        return TableView(
            turn_id=parked.turn_id,
            is_running=False,
            num_tokens=len(parked.token_ids),
            num_computed_tokens=parked.num_computed_tokens,
            idle_s=now_s - parked.parked_s,
            num_bytes=len(parked.table) * self.block_bytes,
            blocks=tuple(
                self._on_device(
                    block_id,
                    parked.num_computed_tokens - i * self.block_size,
                    tail if i == last else None,
                )
                for i, block_id in enumerate(parked.table.block_ids)
            ),
        )

    def stored(self, conversation_id: str, shown: set[str], wall_s: float) -> Iterator[TableView]:
        """The conversation's tables that only tiers have, each as the quickest one has it."""
        for tier in self.tiers:
            for hold in tier.tree.holds_of(conversation_id):
                if hold.turn_id not in shown:
                    shown.add(hold.turn_id)
                    yield self._stored(tier, hold, wall_s)

    def _stored(self, tier: Tier, hold: Hold, wall_s: float) -> TableView:
        chain = tier.tree.chain(hold.tail)
        return TableView(
            turn_id=hold.turn_id,
            is_running=False,
            num_tokens=hold.num_tokens + 1,
            num_computed_tokens=hold.num_tokens,
            idle_s=max(0.0, wall_s - hold.used_at),
            num_bytes=len(chain) * self.block_bytes,
            blocks=tuple(self._by_key(tier, r.key, r.num_tokens) for r in chain),
        )

    def _on_device(self, block_id: int, num_left: int, key: BlockHash | None = None) -> BlockView:
        block_hash = self.index.hash_of(block_id)
        return BlockView(
            block_id=block_id,
            num_tokens=max(0, min(self.block_size, num_left)),
            tier=TierName.DEVICE,
            num_holders=self.pool.ref_count(block_id),
            block_hash=None if block_hash is None else block_hash.hex(),
            stored_in=self._stored_in(block_hash or key),
        )

    def _by_key(self, tier: Tier, key: BlockHash, num_tokens: int) -> BlockView:
        found = self.index.longest_chain([key])
        return BlockView(
            block_id=found[0] if found else None,
            num_tokens=num_tokens,
            tier=TierName.DEVICE if found else tier.name,
            num_holders=self.pool.ref_count(found[0]) if found else 0,
            block_hash=key.hex(),
            stored_in=self._stored_in(key),
        )

    def _stored_in(self, key: BlockHash | None) -> tuple[TierName, ...]:
        return tuple(t.name for t in self.tiers if key is not None and key in t.tree)
