"""Every block's whereabouts: claim, grow, commit, park, release.

The only file that sees pool, index and tables together. It decides where a block's tokens come
from, never who runs (`scheduler`) nor what bytes are (`kv_cache`): where a block must be copied
it queues a `BlockCopy`, which the runner carries out, in order, before the next forward pass.

Invariants (`check`):
    ref_count = number of tables, running or parked, that contain the block
    a block with a hash, or with another holder, is copied before it is written
    only full, computed, committed blocks have a hash
    a parked table's blocks cover exactly its computed tokens
"""

from collections import Counter, OrderedDict
from collections.abc import Iterable
from collections.abc import Sequence as Items
from dataclasses import dataclass, replace

from model.block_pool import BlockPool
from model.block_table import BlockTable, num_blocks_for
from model.claim import ClaimSource, best_source, explain_miss
from model.errors import OutOfBlocksError
from model.messages import BlockView, ClaimReport, TableView, TierName
from model.prefix_index import BlockHasher, PrefixIndex
from model.sequence import Sequence


@dataclass(frozen=True, slots=True)
class BlockCopy:
    """Copy the whole block `source` over `target`."""

    source: int
    target: int


@dataclass(frozen=True, slots=True, eq=False)
class ParkedTable:
    """A table kept between turns; `token_ids` are those it was computed from, and one more."""

    turn_id: str
    conversation_id: str
    token_ids: list[int]
    table: BlockTable
    num_computed_tokens: int
    parked_s: float


class CacheManager:
    """Tables and blocks of one device. Owned by the engine core; no thread safety, no tensors."""

    def __init__(self, num_blocks: int, hasher: BlockHasher) -> None:
        self.block_size = hasher.block_size
        self.pool = BlockPool(num_blocks)
        self.index = PrefixIndex()
        self.num_evicted_blocks = 0
        self._hasher = hasher
        self._parked: OrderedDict[str, ParkedTable] = OrderedDict()  # least recently parked first
        self._running: dict[str, Sequence] = {}
        self._copies: list[BlockCopy] = []

    # Claim

    def claim(self, sequence: Sequence) -> ClaimReport:
        """Give a waiting sequence the longest run of computed tokens that exists for its own.

        At least one token is left to compute. The whole prompt's blocks can be had afterwards, or
        OutOfBlocksError is raised and nothing has changed.
        """
        assert not sequence.table.block_ids, f"{sequence.id} holds blocks already"
        source = self._find_source(sequence)
        self._require_prompt(sequence, source)
        if source.turn_id is not None and source.is_whole:
            # Nothing of it lies behind what is claimed, so its blocks are exactly those wanted.
            sequence.table.block_ids = self._parked.pop(source.turn_id).table.block_ids
            sequence.num_computed_tokens = source.num_tokens
        else:
            self._share(sequence, source)
        sequence.num_named_blocks = 0
        self._running[sequence.id] = sequence
        return self._report(sequence)

    def _find_source(self, sequence: Sequence) -> ClaimSource:
        root = self._hasher.root(sequence.request.owner)
        self._hasher.extend(sequence.block_hashes, root, sequence.token_ids)
        chain = self.index.longest_chain(sequence.block_hashes)
        tables = self._tables_for(sequence)
        return best_source(sequence.token_ids, tables, chain, self.block_size)

    def _tables_for(self, sequence: Sequence) -> Iterable[ClaimSource]:
        """What the parent, the siblings and the origin have, the parent's parked table first."""
        request = sequence.request
        if request.conversation_id is None:
            return
        parent = self._parked.get(request.parent_turn_id or "")
        family = {request.conversation_id}
        if parent is not None:
            family.add(parent.conversation_id)
            yield self._parked_source(parent, request.conversation_id)
        if request.origin_conversation_id is not None:
            family.add(request.origin_conversation_id)
        for parked in self._parked.values():
            if parked is not parent and parked.conversation_id in family:
                yield self._parked_source(parked, request.conversation_id)
        for other in self._running.values():
            if other.request.conversation_id in family:
                yield ClaimSource(other.token_ids, other.num_computed_tokens, other.table.block_ids)

    def _parked_source(self, parked: ParkedTable, conversation_id: str) -> ClaimSource:
        return ClaimSource(
            parked.token_ids,
            parked.num_computed_tokens,
            parked.table.block_ids,
            turn_id=parked.turn_id,
            is_own=parked.conversation_id == conversation_id,
        )

    def _require_prompt(self, sequence: Sequence, source: ClaimSource) -> None:
        """Check that the prompt's missing blocks can be had, not counting what the source lends."""
        lent = source.block_ids[: num_blocks_for(source.num_tokens, self.block_size)]
        wanted = num_blocks_for(sequence.num_tokens, self.block_size) - len(lent)
        # A partial block is copied before it is written.
        self._require(wanted + (source.num_tokens % self.block_size != 0), lent)

    def _share(self, sequence: Sequence, source: ClaimSource) -> None:
        num_full, rest = divmod(source.num_tokens, self.block_size)
        shared = source.block_ids[:num_full]
        self.pool.hold(shared)
        sequence.table.block_ids = list(shared)
        sequence.num_computed_tokens = num_full * self.block_size
        if rest:
            # Held while a place for the copy is found: reclaiming must not hand it out again.
            partial = source.block_ids[num_full]
            self.pool.hold((partial,))
            sequence.table.block_ids += self._copy_of(partial)
            sequence.num_computed_tokens = source.num_tokens

    def _report(self, sequence: Sequence) -> ClaimReport:
        reused = sequence.num_computed_tokens
        reason, diverged_at = explain_miss(sequence.request, reused, self._hasher.fingerprint)
        return ClaimReport(
            num_prompt_tokens=sequence.num_prompt_tokens,
            from_device=reused,
            computed=sequence.num_prompt_tokens - reused,
            reason=reason,
            diverged_at=diverged_at,
        )

    # Grow and commit

    def grow(self, sequence: Sequence, num_new_tokens: int) -> None:
        """Give the next `num_new_tokens` positions blocks that may be written.

        Raises OutOfBlocksError when parked tables can't yield enough either; nothing has changed.
        """
        table, start = sequence.table, sequence.num_computed_tokens
        first = start // self.block_size
        wanted = max(0, num_blocks_for(start + num_new_tokens, self.block_size) - len(table))
        # A named block is written again when its last token is to be computed once more.
        must_copy = first < len(table) and self._is_frozen(table.block_ids[first])
        self._reclaim(wanted + must_copy)
        if must_copy:
            table.block_ids[first : first + 1] = self._copy_of(table.block_ids[first])
        table.block_ids += self._allocate(wanted)

    def commit(self, sequence: Sequence) -> None:
        """Name the full blocks whose tokens are computed and can't be taken back."""
        num_final = min(sequence.num_computed_tokens, sequence.num_committed_tokens)
        if num_final // self.block_size <= sequence.num_named_blocks:
            return
        root = self._hasher.root(sequence.request.owner)
        self._hasher.extend(sequence.block_hashes, root, sequence.token_ids[:num_final])
        for i in range(sequence.num_named_blocks, num_final // self.block_size):
            self.index.register(sequence.block_hashes[i], sequence.table.block_ids[i])
            sequence.num_named_blocks = i + 1

    # Park and release

    def park(self, sequence: Sequence, now_s: float) -> None:
        """End a sequence: keep its table under its turn, or give everything back if it has no
        conversation. Blocks behind the last computed token go back at once."""
        del self._running[sequence.id]
        conversation_id = sequence.request.conversation_id
        if conversation_id is None or sequence.num_computed_tokens == 0:
            self._release_table(sequence.table)
            return
        self._release_blocks(sequence.table.truncate(sequence.num_computed_tokens))
        if sequence.id in self._parked:  # the turn was generated before
            self._drop_parked(sequence.id, forget=False)
        self._parked[sequence.id] = ParkedTable(
            turn_id=sequence.id,
            conversation_id=conversation_id,
            token_ids=sequence.token_ids,
            table=BlockTable(self.block_size, sequence.table.block_ids),
            num_computed_tokens=sequence.num_computed_tokens,
            parked_s=now_s,
        )
        sequence.table.block_ids = []

    def release(self, sequence: Sequence) -> None:
        """Take a running sequence's blocks away; named ones can still be found until reused."""
        del self._running[sequence.id]
        self._release_table(sequence.table)
        sequence.num_computed_tokens = 0

    def release_conversation(self, conversation_id: str, *, forget: bool) -> int:
        """Give up a conversation's parked tables; with `forget`, the names of the blocks that
        become free too, so that nothing is left to reuse. The number of blocks freed."""
        turns = [p.turn_id for p in self._parked.values() if p.conversation_id == conversation_id]
        return sum(self._drop_parked(turn_id, forget=forget) for turn_id in turns)

    def evict_all(self) -> int:
        """Forget everything that no running sequence holds; how many blocks that were."""
        num_parked = sum(self._drop_parked(turn_id, forget=True) for turn_id in list(self._parked))
        return num_parked + sum(self.index.forget(b) for b in self.pool.free_block_ids())

    def take_copies(self) -> list[BlockCopy]:
        """The copies to carry out before the next forward pass, in this order."""
        copies, self._copies = self._copies, []
        return copies

    # Blocks

    def _require(self, num_blocks: int, lent: Items[int] = ()) -> None:
        """Raise OutOfBlocksError unless so many can be had, without touching `lent`."""
        available = self.pool.num_free - sum(self.pool.ref_count(b) == 0 for b in lent)
        if num_blocks > available:
            available += self._num_spare(num_blocks - available, lent)
        if num_blocks > available:
            raise OutOfBlocksError(num_blocks, available)

    def _num_spare(self, enough: int, lent: Items[int]) -> int:
        """The blocks that only parked tables hold, counted no further than `enough`: a cache that
        serves is full of them, and this is asked whenever a sequence begins a block."""
        left_out, num_seen, num_spare = set(lent), Counter[int](), 0
        for parked in self._parked.values():
            for block_id in reversed(parked.table.block_ids):
                if num_spare >= enough:
                    return num_spare
                num_seen[block_id] += 1
                is_spare = num_seen[block_id] == self.pool.ref_count(block_id)
                num_spare += is_spare and block_id not in left_out
        return num_spare

    def _is_frozen(self, block_id: int) -> bool:
        return self.index.hash_of(block_id) is not None or self.pool.ref_count(block_id) > 1

    def _copy_of(self, block_id: int) -> list[int]:
        """Exchange one hold on a block for a fresh block with the same contents."""
        self._reclaim(1)
        (target,) = self._allocate(1)
        self._copies.append(BlockCopy(block_id, target))
        self._release_blocks((block_id,))
        return [target]

    def _allocate(self, num_blocks: int) -> list[int]:
        block_ids = self.pool.allocate(num_blocks)
        self.num_evicted_blocks += sum(self.index.forget(block_id) for block_id in block_ids)
        return block_ids

    def _reclaim(self, num_blocks: int) -> None:
        """Have at least `num_blocks` free, taking from parked tables: the one parked longest first,
        and its tail before its head, since a head is of use to more others."""
        self._require(num_blocks)
        while self.pool.num_free < num_blocks:
            parked = next(iter(self._parked.values()))
            self._shrink(parked, num_blocks)

    def _shrink(self, parked: ParkedTable, num_wanted: int) -> None:
        table = parked.table
        while table.block_ids and self.pool.num_free < num_wanted:
            self._release_blocks((table.block_ids.pop(),))
        if not table.block_ids:
            del self._parked[parked.turn_id]
            return
        num_left = min(parked.num_computed_tokens, table.num_slots)
        self._parked[parked.turn_id] = replace(parked, num_computed_tokens=num_left)

    def _drop_parked(self, turn_id: str, *, forget: bool) -> int:
        block_ids = self._parked.pop(turn_id).table.block_ids
        num_free_before = self.pool.num_free
        if forget:
            for block_id in block_ids:
                if self.pool.ref_count(block_id) == 1:
                    self.index.forget(block_id)
        self._release_blocks(reversed(block_ids))
        return self.pool.num_free - num_free_before

    def _release_table(self, table: BlockTable) -> None:
        self._release_blocks(table.truncate(0))

    def _release_blocks(self, block_ids: Iterable[int]) -> None:
        for block_id in block_ids:
            self.pool.release(block_id, reuse_first=self.index.hash_of(block_id) is None)

    # Views

    @property
    def num_parked_tables(self) -> int:
        """Tables kept between turns."""
        return len(self._parked)

    def count_blocks(self) -> tuple[int, int, int, int]:
        """Blocks held by running tables, by parked ones only, free and named, free and empty."""
        running = {b for s in self._running.values() for b in s.table.block_ids}
        parked = {b for p in self._parked.values() for b in p.table.block_ids} - running
        named = sum(1 for b in self.pool.free_block_ids() if self.index.hash_of(b) is not None)
        return len(running), len(parked), named, self.pool.num_free - named

    def view(self, conversation_id: str, now_s: float, block_bytes: int) -> tuple[TableView, ...]:
        """The conversation's tables, parked and running."""
        views = [
            self._view(
                p.turn_id,
                p.table,
                p.num_computed_tokens,
                len(p.token_ids),
                block_bytes,
                now_s - p.parked_s,
            )
            for p in self._parked.values()
            if p.conversation_id == conversation_id
        ]
        views += [
            self._view(s.id, s.table, s.num_computed_tokens, s.num_tokens, block_bytes, None)
            for s in self._running.values()
            if s.request.conversation_id == conversation_id
        ]
        return tuple(views)

    def _view(
        self,
        turn_id: str,
        table: BlockTable,
        num_computed: int,
        num_tokens: int,
        block_bytes: int,
        idle_s: float | None,
    ) -> TableView:
        size = self.block_size
        blocks = [
            BlockView(
                block_id=block_id,
                num_tokens=max(0, min(size, num_computed - i * size)),
                tier=TierName.DEVICE,
                num_holders=self.pool.ref_count(block_id),
                block_hash=block_hash.hex()
                if (block_hash := self.index.hash_of(block_id))
                else None,
            )
            for i, block_id in enumerate(table.block_ids)
        ]
        return TableView(
            turn_id=turn_id,
            is_running=idle_s is None,
            num_tokens=num_tokens,
            num_computed_tokens=num_computed,
            idle_s=idle_s or 0.0,
            num_bytes=len(blocks) * block_bytes,
            blocks=tuple(blocks),
        )

    def check(self) -> None:
        """The books: raises AssertionError with the block that is off."""
        holders = Counter(b for p in self._parked.values() for b in p.table.block_ids)
        for sequence in self._running.values():
            holders.update(sequence.table.block_ids)
        self.pool.check(holders)
        self.index.check()
        for parked in self._parked.values():
            covered = num_blocks_for(parked.num_computed_tokens, self.block_size)
            assert len(parked.table) == covered > 0, f"{parked.turn_id}: {len(parked.table)} blocks"
            assert parked.num_computed_tokens < len(parked.token_ids), parked.turn_id
