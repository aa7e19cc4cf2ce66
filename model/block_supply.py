"""Blocks for whoever needs some: free ones first, then what parked tables yield.

Knows pool, index and parked tables, and what must happen to a block's bytes when its contents
change hands (`BlockEdit`); nothing of sequences.

Invariants:
    a block whose contents nobody may read any more has no name
    what is handed out is held once, by whoever asked
"""

from collections import Counter
from collections.abc import Callable, Iterable
from collections.abc import Sequence as Items
from dataclasses import dataclass

from model.block_pool import BlockPool
from model.errors import OutOfBlocksError
from model.eviction import Score
from model.parked_tables import ParkedTable, ParkedTables
from model.prefix_index import BlockHash, PrefixIndex


@dataclass(frozen=True, slots=True)
class BlockEdit:
    """Copy the whole block `source` over `target`; without a source, fill it with NaN."""

    source: int | None
    target: int


class BlockSupply:
    """Allocates, releases, and decides with `worth` whose parked blocks are given up first."""

    def __init__(
        self,
        pool: BlockPool,
        index: PrefixIndex,
        parked: ParkedTables,
        worth: Callable[[ParkedTable], Score],
        *,
        poison_blocks: bool,
    ) -> None:
        self.num_evicted_blocks = 0
        self._pool = pool
        self._index = index
        self._parked = parked
        self._worth = worth
        self._poison_blocks = poison_blocks
        # The turn whose table is given up now, block after block, until it may be another's turn.
        self._victim: str | None = None
        self._edits: list[BlockEdit] = []

    def take_edits(self) -> list[BlockEdit]:
        """What to do to blocks before anybody reads or writes one, in this order."""
        edits, self._edits = self._edits, []
        return edits

    def require(self, num_blocks: int, lent: Items[int] = ()) -> None:
        """Raise OutOfBlocksError unless so many can be had, without touching `lent`."""
        if num_blocks + len(lent) <= self._pool.num_free:
            return  # however many of the lent ones are free
        available = self._pool.num_free - sum(self._pool.ref_count(b) == 0 for b in lent)
        if num_blocks > available:
            available += self._num_spare(num_blocks - available, lent)
        if num_blocks > available:
            raise OutOfBlocksError(num_blocks, available)

    def _num_spare(self, enough: int, lent: Items[int]) -> int:
        """The blocks that only parked tables hold, counted no further than `enough`: a cache that
        serves is full of them, and this is asked whenever a sequence begins a block."""
        left_out, num_seen, num_spare = set(lent), Counter[int](), 0
        for parked in self._parked:
            for block_id in reversed(parked.table.block_ids):
                if num_spare >= enough:
                    return num_spare
                num_seen[block_id] += 1
                is_spare = num_seen[block_id] == self._pool.ref_count(block_id)
                num_spare += is_spare and block_id not in left_out
        return num_spare

    def reclaim(self, num_blocks: int) -> None:
        """Have at least `num_blocks` free, taking from the parked table that is worth least, tail
        first. Raises OutOfBlocksError, and has taken nothing then."""
        self.require(num_blocks)
        while self._pool.num_free < num_blocks:
            self.release((self._parked.shrink(self._choose_victim()),))

    def reconsider(self) -> None:
        """Another table may be worth less by now: time has passed, or something was stored."""
        self._victim = None

    def _choose_victim(self) -> str:
        """The same until `reconsider`, for choosing looks at all of them."""
        if self._victim is None or self._parked.get(self._victim) is None:
            self._victim = min(self._parked, key=self._worth).turn_id
        return self._victim

    def allocate(self, num_blocks: int) -> list[int]:
        """Take free blocks, each held once; there must be so many (`reclaim`)."""
        block_ids = self._pool.allocate(num_blocks)
        self.num_evicted_blocks += sum(self.forget(block_id) for block_id in block_ids)
        return block_ids

    def copy_of(self, block_id: int) -> list[int]:
        """Exchange one hold on a block for a fresh block with the same contents."""
        self.reclaim(1)
        (target,) = self.allocate(1)
        self._edits.append(BlockEdit(block_id, target))
        self.release((block_id,))
        return [target]

    def is_frozen(self, block_id: int) -> bool:
        """Whether a block must be copied before it is written."""
        return self._index.hash_of(block_id) is not None or self._pool.ref_count(block_id) > 1

    def hold(self, block_ids: Iterable[int]) -> None:
        """Add a holder to each block; a free one leaves the queue, contents and all."""
        self._pool.hold(block_ids)

    def name(self, block_hash: BlockHash, block_id: int) -> None:
        """What a full block holds is known from here on."""
        self._index.register(block_hash, block_id)

    def park(self, table: ParkedTable) -> None:
        """Keep a table, whose blocks go on being held, in place of what its turn had before."""
        if self._parked.get(table.turn_id) is not None:
            self.release(self._parked.take(table.turn_id).table.truncate(0))
        self._parked.add(table)
        self.reconsider()  # it may be worth less, and so may what it supersedes

    def release(self, block_ids: Iterable[int]) -> None:
        """Take a hold off each block; those with a name can be found until they are reused."""
        for block_id in block_ids:
            is_lost = self._index.hash_of(block_id) is None
            self._pool.release(block_id, reuse_first=is_lost)
            if is_lost and self._pool.ref_count(block_id) == 0:
                self._poison(block_id)

    def forget(self, block_id: int) -> bool:
        """Take a block's name away; whether it had one."""
        was_named = self._index.forget(block_id)
        if was_named and self._pool.ref_count(block_id) <= 1:
            self._poison(block_id)
        return was_named

    def drop_parked(
        self, turn_id: str, *, keep_names: bool = False, is_erased: bool = False
    ) -> int:
        """Release a parked table; the blocks that became free. They lose their names, unless they
        may still serve until they are reused; and their bytes, if those are to be erased."""
        block_ids = self._parked.take(turn_id).table.block_ids
        num_free_before = self._pool.num_free
        if keep_names:
            self.release(reversed(block_ids))
        else:
            self.drop(block_ids, is_erased=is_erased)
        return self._pool.num_free - num_free_before

    def drop(self, block_ids: Items[int], *, is_erased: bool = False) -> None:
        """Take a hold off each block; those that become free lose their names, and their bytes if
        those are to be erased."""
        for block_id in block_ids:
            if self._pool.ref_count(block_id) == 1:
                self.forget(block_id)
                if is_erased:
                    self._edits.append(BlockEdit(None, block_id))
        self.release(reversed(block_ids))

    def _poison(self, block_id: int) -> None:
        """Nobody may read the block's contents from here on; in the debug mode nobody can."""
        if self._poison_blocks:
            self._edits.append(BlockEdit(None, block_id))
