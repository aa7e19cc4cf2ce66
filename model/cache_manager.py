"""Every block's whereabouts: claim, grow, commit, park, release.

The only file that sees pool, index and tables together. It decides where a block's tokens come
from, never who runs (`scheduler`) nor what bytes are (`kv_cache`): what must happen to a block's
bytes is queued as a `BlockEdit`, which the runner carries out, in order, before the next forward
pass.

Invariants (`check`):
    ref_count = number of tables, running or parked, that contain the block
    a block with a hash, or with another holder, is copied before it is written
    only full, computed, committed blocks have a hash
    a parked table's blocks cover exactly its computed tokens
"""

from collections.abc import Iterable

from model.block_pool import BlockPool
from model.block_supply import BlockSupply
from model.block_table import BlockTable, num_blocks_for
from model.claim import ClaimSource, best_table
from model.claim_records import ClaimRecords
from model.messages import ClaimReport, Residency, TableView, TierName
from model.parked_tables import ParkedTable, ParkedTables
from model.pending_prefixes import PendingPrefixes
from model.prefix_index import BlockHash, BlockHasher, PrefixIndex
from model.residency import Measure, residencies
from model.sequence import Sequence
from model.table_view import TableViewer
from model.tiering import Tiering, TierSetup


class PrefixPendingError(Exception):
    """The beginning of this sequence's prompt is being computed for another one, or restored, right
    now: wait for it."""


class CacheManager:
    """Tables and blocks of one device. Owned by the engine core; no thread safety, no tensors."""

    def __init__(
        self,
        num_blocks: int,
        hasher: BlockHasher,
        *,
        setup: TierSetup | None = None,
        poison_blocks: bool = False,
    ) -> None:
        self.block_size = hasher.block_size
        self.pool = BlockPool(num_blocks)
        self.index = PrefixIndex()
        self._hasher = hasher
        self._parked = ParkedTables()
        self.supply = BlockSupply(
            self.pool, self.index, self._parked, self._worth, poison_blocks=poison_blocks
        )
        self.tiering = Tiering(
            setup or TierSetup.without_tiers(hasher), self.pool, self.supply, self._parked, hasher
        )
        self._pending = PendingPrefixes()
        self._records = ClaimRecords()
        self._running: dict[str, Sequence] = {}

    def _worth(self, parked: ParkedTable) -> tuple[bool, int, float]:
        return self.tiering.worth(parked)

    # Claim

    def claim(self, sequence: Sequence) -> ClaimReport:
        """Give a waiting sequence the longest run of computed tokens that exists for its own.

        At least one token is left to compute. The whole prompt's blocks can be had afterwards, or
        OutOfBlocksError is raised; PrefixPendingError when more can be reused in a moment. Then
        nothing has changed.
        """
        assert not sequence.table.block_ids, f"{sequence.id} holds blocks already"
        if self.tiering.is_waited_for(sequence):
            raise PrefixPendingError
        if sequence.claimed_s is None:
            sequence.claimed_s = self.tiering.now_s
        source = self._find_source(sequence)
        self._require_settled(sequence, source)
        self._require_prompt(sequence, source)
        self._require_restored(sequence, source)
        if source.turn_id is not None and source.is_whole:
            # Nothing of it lies behind what is claimed, so its blocks are exactly those wanted.
            sequence.table.block_ids = self._parked.take(source.turn_id).table.block_ids
            sequence.num_computed_tokens = source.num_tokens
        else:
            self._share(sequence, source)
        # What is claimed has its names, or is a twin of a block that has.
        sequence.num_named_blocks = sequence.num_computed_tokens // self.block_size
        self._running[sequence.id] = sequence
        self._pending.announce(sequence.id, self._missing_hashes(sequence))
        report = self._report(sequence)
        self._forget_restore(sequence)
        if not sequence.num_preemptions:  # a preempted one comes back for itself, not for somebody
            self._records.remember(sequence.request)
        return report

    def _find_source(self, sequence: Sequence) -> ClaimSource:
        """The longest run of tokens that is there. What a table knows of its tokens' hashes is not
        computed again, so the cost is that of the new blocks; unless the salt enters elsewhere."""
        table = best_table(sequence.token_ids, self._tables_for(sequence))
        num_known = table.num_tokens // self.block_size if table else 0
        num_public = sequence.request.num_public_tokens
        known = table.block_hashes if table and table.num_public_tokens == num_public else ()
        if len(sequence.block_hashes) < num_known:
            sequence.block_hashes = list(known[:num_known])
        self._hash_blocks(sequence, sequence.num_tokens)
        # The chain can only be longer if it has the block behind the table's last full one.
        beyond = sequence.block_hashes[num_known : num_known + 1]
        if table is not None and not self.index.has(beyond):
            return table
        chain = self.index.longest_chain(sequence.block_hashes)
        num_chained = min(len(chain) * self.block_size, sequence.num_tokens - 1)
        if table is not None and table.num_tokens >= num_chained:
            return table
        return ClaimSource(sequence.token_ids, num_chained, chain, sequence.block_hashes)

    def _tables_for(self, sequence: Sequence) -> Iterable[ClaimSource]:
        """What was restored for it, and what the parent, the siblings and the origin have, the
        parent's parked table first."""
        request = sequence.request
        if sequence.restored and (restored := self._parked.get(sequence.id)) is not None:
            yield self._parked_source(restored, restored.conversation_id)
        if request.conversation_id is None:
            return
        parent = self._parked.get(request.parent_turn_id)
        family = {request.conversation_id, request.origin_conversation_id}
        if parent is not None and parent.owner == request.owner:
            family.add(parent.conversation_id)
            yield self._parked_source(parent, request.conversation_id)
        for parked in self._parked.of(*family):
            if parked.owner == request.owner and parked is not parent:
                yield self._parked_source(parked, request.conversation_id)
        for other in self._running.values():
            if other.request.conversation_id in family and other.request.owner == request.owner:
                yield ClaimSource(
                    other.token_ids,
                    other.num_computed_tokens,
                    other.table.block_ids,
                    other.block_hashes,
                    other.request.num_public_tokens,
                )

    def _parked_source(self, parked: ParkedTable, conversation_id: str) -> ClaimSource:
        return ClaimSource(
            parked.token_ids,
            parked.num_computed_tokens,
            parked.table.block_ids,
            parked.block_hashes,
            parked.num_public_tokens,
            turn_id=parked.turn_id,
            is_own=parked.conversation_id == conversation_id,
        )

    def _require_settled(self, sequence: Sequence, source: ClaimSource) -> None:
        """Check that waiting for blocks which others compute would not give more than `source`."""
        num_full = source.num_tokens // self.block_size
        num_pending = self._pending.count(sequence.block_hashes[num_full:])
        num_coming = (num_full + num_pending) * self.block_size
        if min(num_coming, sequence.num_tokens - 1) > source.num_tokens:
            raise PrefixPendingError

    def _require_prompt(self, sequence: Sequence, source: ClaimSource) -> None:
        """Check that the prompt's missing blocks can be had, not counting what the source lends."""
        lent = source.block_ids[: num_blocks_for(source.num_tokens, self.block_size)]
        wanted = num_blocks_for(sequence.num_tokens, self.block_size) - len(lent)
        # A partial block is copied before it is written.
        self.supply.require(wanted + (source.num_tokens % self.block_size != 0), lent)

    def _require_restored(self, sequence: Sequence, source: ClaimSource) -> None:
        """Check that restoring would not give more than `source`; if it would, it is begun."""
        if coming := self.tiering.begin_restore(sequence, source):
            self._pending.announce(sequence.id, coming)
            raise PrefixPendingError

    def _forget_restore(self, sequence: Sequence) -> None:
        """What was restored is claimed; what something better made needless is let go."""
        sequence.restored, sequence.restore_miss = (), None
        left = self._parked.get(sequence.id)
        if left is not None and left.is_single_use:
            self.supply.drop_parked(sequence.id, keep_names=True)

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
            sequence.table.block_ids += self.supply.copy_of(partial)
            sequence.num_computed_tokens = source.num_tokens

    def _missing_hashes(self, sequence: Sequence) -> list[BlockHash]:
        return sequence.block_hashes[sequence.num_computed_tokens // self.block_size :]

    def _report(self, sequence: Sequence) -> ClaimReport:
        # A sequence that goes on behind tokens of its reply may find some of those too.
        request = sequence.request
        reused = min(sequence.num_computed_tokens, sequence.num_prompt_tokens)
        reason, diverged_at = self._records.explain(request, reused, self._hasher.fingerprint)
        come = dict.fromkeys(TierName, 0)
        for run in sequence.restored:
            come[run.tier] += max(0, min(run.end, reused) - run.start)
        return ClaimReport(
            num_prompt_tokens=sequence.num_prompt_tokens,
            from_device=reused - come[TierName.CPU] - come[TierName.DISK],
            from_cpu=come[TierName.CPU],
            from_disk=come[TierName.DISK],
            computed=sequence.num_prompt_tokens - reused,
            reason=sequence.restore_miss or reason,
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
        must_copy = first < len(table) and self.supply.is_frozen(table.block_ids[first])
        self.supply.reclaim(wanted + must_copy)
        if must_copy:
            table.block_ids[first : first + 1] = self.supply.copy_of(table.block_ids[first])
        table.block_ids += self.supply.allocate(wanted)

    def commit(self, sequence: Sequence) -> None:
        """Name the full blocks whose tokens are computed and can't be taken back."""
        num_final = min(sequence.num_computed_tokens, sequence.num_committed_tokens)
        if num_final // self.block_size == sequence.num_named_blocks:
            return
        self._hash_blocks(sequence, num_final)
        for i in range(sequence.num_named_blocks, num_final // self.block_size):
            self.index.register(sequence.block_hashes[i], sequence.table.block_ids[i])
            self._pending.settle(sequence.id, sequence.block_hashes[i])
            sequence.num_named_blocks = i + 1

    def _hash_blocks(self, sequence: Sequence, num_tokens: int) -> None:
        request = sequence.request
        token_ids = memoryview(sequence.token_ids)[:num_tokens]  # not a copy of the history
        self._hasher.extend(
            sequence.block_hashes, token_ids, request.owner, request.num_public_tokens
        )

    # Park and release

    def park(self, sequence: Sequence, now_s: float) -> None:
        """End a sequence: keep its table under its turn, or give everything back if it has no
        conversation. Blocks behind the last computed token go back at once."""
        self._stop(sequence)
        conversation_id = sequence.request.conversation_id
        if conversation_id is None or sequence.num_computed_tokens == 0:
            self.supply.release(sequence.table.truncate(0))
            return
        self.supply.release(sequence.table.truncate(sequence.num_computed_tokens))
        request = sequence.request
        self.supply.park(
            ParkedTable(
                turn_id=sequence.id,
                conversation_id=conversation_id,
                owner=request.owner,
                token_ids=sequence.token_ids,
                block_hashes=sequence.block_hashes,
                num_public_tokens=request.num_public_tokens,
                table=BlockTable(self.block_size, sequence.table.block_ids),
                num_computed_tokens=sequence.num_computed_tokens,
                parked_s=now_s,
                parent_turn_id=request.parent_turn_id,
                tail_key=self._tail_key(sequence),
                num_uses=max(0, self._records.num_claims(conversation_id) - 1),
                ttl_s=request.retain_s,
                priority=request.priority,
            )
        )
        sequence.table.block_ids = []

    def _tail_key(self, sequence: Sequence) -> BlockHash | None:
        num_full, rest = divmod(sequence.num_computed_tokens, self.block_size)
        if not rest:
            return None
        return self._hasher.tail_key(
            sequence.block_hashes[:num_full],
            sequence.token_ids[num_full * self.block_size : sequence.num_computed_tokens],
            sequence.request.owner,
            sequence.request.num_public_tokens,
        )

    def release(self, sequence: Sequence) -> None:
        """Take a running sequence's blocks away; named ones can still be found until reused."""
        self._stop(sequence)
        self.supply.release(sequence.table.truncate(0))
        sequence.num_computed_tokens = 0

    def _stop(self, sequence: Sequence) -> None:
        del self._running[sequence.id]
        self._pending.withdraw(sequence.id)

    def release_conversation(self, conversation_id: str) -> int:
        """Give up a conversation's parked tables, and the names of the blocks that become free; how
        many those are; their bytes go, and what only it has in the tiers. Blocks that were taken
        from it before may keep theirs until reused."""
        self._records.forget(conversation_id)
        self.tiering.release(conversation_id)
        return self._drop(conversation_id, is_erased=True)

    def evict(self, conversation_id: str) -> int:
        """Give up a conversation's parked tables; how many blocks became free. What the tiers have
        stays, and the conversation is remembered."""
        return self._drop(conversation_id)

    def _drop(self, conversation_id: str, *, is_erased: bool = False) -> int:
        tables = self._parked.of(conversation_id)
        return sum(self.supply.drop_parked(p.turn_id, is_erased=is_erased) for p in tables)

    def evict_all(self) -> int:
        """Forget everything that no running sequence holds; how many blocks that were."""
        num_parked = sum(self.supply.drop_parked(p.turn_id) for p in list(self._parked))
        return num_parked + sum(self.supply.forget(b) for b in self.pool.free_block_ids())

    # Time

    @property
    def num_transfers(self) -> int:
        """Transfers under way, which somebody may wait for."""
        return self.tiering.num_in_flight

    def tick(self, now_s: float) -> None:
        """Take note of the transfers that are over, and order those that are due."""
        for sequence in self.tiering.tick(now_s):
            self._pending.withdraw(sequence.id)

    # Views

    @property
    def num_parked_tables(self) -> int:
        """Tables kept between turns."""
        return len(self._parked)

    def count_blocks(self) -> tuple[int, int, int, int]:
        """Blocks held by running tables, by parked ones only, free and named, free and empty."""
        running = {b for s in self._running.values() for b in s.table.block_ids}
        parked = set(self._parked.holders()) - running
        named = sum(1 for b in self.pool.free_block_ids() if self.index.hash_of(b) is not None)
        return len(running), len(parked), named, self.pool.num_free - named

    def view(self, conversation_id: str, now_s: float, block_bytes: int) -> tuple[TableView, ...]:
        """The conversation's tables: parked, running, and those that only tiers have."""
        viewer = TableViewer(
            self.pool, self.index, self.tiering.tiers(), self.block_size, block_bytes
        )
        parked = [viewer.parked(p, now_s) for p in self._parked.of(conversation_id)]
        running = [
            viewer.running(s)
            for s in self._running.values()
            if s.request.conversation_id == conversation_id
        ]
        shown = {view.turn_id for view in (*parked, *running)}
        stored = viewer.stored(conversation_id, shown, self.tiering.wall_s())
        return (*parked, *running, *stored)

    def residency(self, now_s: float, block_bytes: int) -> tuple[Residency, ...]:
        """Where each conversation's newest table is. Costs what there is of tables and holds."""
        running = {
            s.request.conversation_id: s
            for s in self._running.values()
            if s.request.conversation_id is not None
        }
        return residencies(
            running, self._parked, self.tiering, Measure(now_s, self.block_size, block_bytes)
        )

    def check(self) -> None:
        """The books: raises AssertionError with the block that is off."""
        holders = self._parked.holders() + self.tiering.holders()
        for sequence in self._running.values():
            holders.update(sequence.table.block_ids)
        self.pool.check(holders)
        self.index.check()
        for parked in self._parked:
            covered = num_blocks_for(parked.num_computed_tokens, self.block_size)
            assert len(parked.table) == covered > 0, f"{parked.turn_id}: {len(parked.table)} blocks"
            assert parked.num_computed_tokens <= len(parked.token_ids), parked.turn_id
        self.tiering.check()
