"""Blocks that come back from the tiers for a sequence that waits for them.

A sequence whose tokens lie in a tier isn't scheduled until they are on the device, where it finds
them as a parked table; others overtake it meanwhile. What can't be restored, or not soon enough, is
computed, and the claim says so.

Invariants:
    a restore holds its blocks, those it goes on from and those it fills, until it is over
    a block that a medium's thread may still touch is held, whoever has stopped waiting for it
"""

from collections import Counter
from collections.abc import Iterator
from collections.abc import Sequence as Items
from dataclasses import dataclass
from itertools import islice

from model.block_supply import BlockSupply
from model.block_table import BlockTable
from model.claim import ClaimSource
from model.costs import CostModel, TierRun
from model.errors import OutOfBlocksError
from model.messages import MissReason
from model.parked_tables import ParkedTable
from model.prefix_index import BlockHash, BlockHasher
from model.sequence import RestoredRun, Sequence
from model.tiers.base import Record
from model.tiers.jobs import Item, Transfer
from model.tiers.tier import Tier

_MIN_PATIENCE_S = 0.5
"""A restore may take as long as computing would, but at least this: that cost is an estimate."""
_MAX_PATIENCE_S = 10.0


_Run = tuple[Tier, list[Record]]
"""Records that lie in one tier, one behind the other."""


@dataclass(slots=True, eq=False)
class Restore:
    """One sequence's blocks on their way. `block_ids` are those of its first tokens, of which the
    first `num_shared` were on the device; `runs` are the transfers that fill the others, in order.
    """

    sequence: Sequence
    block_ids: list[int]
    num_shared: int
    runs: list[tuple[Tier, Transfer]]
    started_s: float
    deadline_s: float
    num_running: int
    is_wanted: bool = True


class Restores:
    """Decides what is restored, and hands over what has come."""

    def __init__(
        self,
        tiers: Items[Tier],
        supply: BlockSupply,
        hasher: BlockHasher,
        costs: CostModel,
    ) -> None:
        self._tiers = tiers
        self._supply = supply
        self._hasher = hasher
        self._costs = costs
        self._by_sequence: dict[str, Restore] = {}
        self._by_transfer: dict[Transfer, Restore] = {}
        # Blocks of those given up, each until the transfer is back that may still touch it.
        self._stuck: dict[Transfer, frozenset[int]] = {}

    def is_waited_for(self, sequence: Sequence) -> bool:
        """Whether the sequence's tokens are on their way."""
        return sequence.id in self._by_sequence

    # Begin

    def begin(self, sequence: Sequence, source: ClaimSource, now_s: float) -> list[BlockHash]:
        """Order what the tiers have of the sequence's tokens beyond `source`, as far as restoring
        it pays; the hashes of what will come, none if nothing was ordered. Raises OutOfBlocksError.
        """
        if sequence.restored or sequence.restore_miss is not None:
            return []  # it was tried already, and this is what came of it
        first = source.num_tokens // self._hasher.block_size
        runs = self._worthwhile(sequence, source, first, self._find(sequence, first))
        if not runs:
            return []
        keys = [record.key for _, records in runs for record in records]
        shared = list(source.block_ids[:first])
        self._supply.hold(shared)
        try:
            self._supply.reclaim(len(keys))
        except OutOfBlocksError:
            self._supply.release(shared)
            raise
        self._order(sequence, runs, shared, self._supply.allocate(len(keys)), now_s)
        return keys

    def _find(self, sequence: Sequence, first: int) -> list[_Run]:
        """The run of records from block `first` on, each from the quickest tier that has it, and a
        partial tail behind it if one fits the tokens."""
        tiers = [tier for tier in self._tiers if tier.is_on]
        hashes, num_full = sequence.block_hashes, first
        runs: list[_Run] = []
        for tier in tiers:  # what one has not, it has nothing behind
            if records := tier.tree.run(islice(hashes, num_full, None)):
                runs.append((tier, records))
                num_full += len(records)
        if num_full and not runs and _look_up(tiers, hashes[num_full - 1]) is None:
            return []  # a tail's parent is always there too
        for key in self._tail_keys(sequence, num_full):
            if (place := _look_up(tiers, key)) is not None:
                tier, tail = place
                if runs and runs[-1][0] is tier:
                    runs[-1][1].append(tail)
                else:
                    runs.append((tier, [tail]))
                break
        return runs

    def _tail_keys(self, sequence: Sequence, num_full: int) -> Iterator[BlockHash]:
        """What a partial block behind the full ones could be called, the longest first."""
        size, request = self._hasher.block_size, sequence.request
        hashes = sequence.block_hashes[:num_full]
        start = num_full * size
        for end in range(min(start + size, sequence.num_tokens) - 1, start, -1):
            ids = sequence.token_ids[start:end]
            yield self._hasher.tail_key(hashes, ids, request.owner, request.num_public_tokens)

    def _worthwhile(
        self, sequence: Sequence, source: ClaimSource, first: int, runs: list[_Run]
    ) -> list[_Run]:
        """The runs as far as restoring them pays."""
        start = first * self._hasher.block_size
        num_tokens = sum(record.num_tokens for _, records in runs for record in records)
        end = min(start + num_tokens, sequence.num_tokens - 1)
        if end <= source.num_tokens:
            return []
        costs = [TierRun(tier.name, len(records)) for tier, records in runs]
        num_left = self._costs.num_blocks_to_restore(source.num_tokens, end, costs)
        if num_left < sum(run.num_blocks for run in costs):
            sequence.restore_miss = MissReason.RECOMPUTE_CHEAPER
        worthwhile: list[_Run] = []
        for tier, records in runs:
            if num_left:
                worthwhile.append((tier, records[:num_left]))
                num_left -= len(worthwhile[-1][1])
        return worthwhile

    def _order(
        self,
        sequence: Sequence,
        found: list[_Run],
        shared: list[int],
        targets: list[int],
        now_s: float,
    ) -> None:
        places = iter(targets)
        # Each run takes as many places as it has records.
        runs = [(tier, tier.restore(list(map(Item, records, places)))) for tier, records in found]
        start = len(shared) * self._hasher.block_size
        compute_s = self._costs.compute_s(start, start + len(targets) * self._hasher.block_size)
        patience_s = min(max(compute_s, _MIN_PATIENCE_S), _MAX_PATIENCE_S)
        restore = Restore(
            sequence,
            [*shared, *targets],
            len(shared),
            runs,
            started_s=now_s,
            deadline_s=now_s + patience_s,
            num_running=len(runs),
        )
        self._by_sequence[sequence.id] = restore
        self._by_transfer.update((transfer, restore) for _, transfer in runs)

    # End

    def settle(self, transfer: Transfer, now_s: float) -> Sequence | None:
        """A transfer is over; its sequence, if that was the last it waited for."""
        if transfer in self._stuck:
            self._supply.release(self._stuck.pop(transfer))
            return None
        restore = self._by_transfer.pop(transfer)
        restore.num_running -= 1
        if transfer.num_done:
            self._costs.observe_restore(transfer.tier, transfer.num_done, transfer.seconds)
        return None if restore.num_running else self._finish(restore, now_s)

    def expire(self, now_s: float) -> list[Sequence]:
        """Wait no longer for what takes longer than computing would; the sequences that go on."""
        late = [r for r in self._by_sequence.values() if r.deadline_s < now_s]
        return [self._give_up(restore, now_s) for restore in late]

    @property
    def next_deadline_s(self) -> float | None:
        """When `expire` is due."""
        return min((r.deadline_s for r in self._by_sequence.values()), default=None)

    def _give_up(self, restore: Restore, now_s: float) -> Sequence:
        for tier, transfer in restore.runs:
            if self._by_transfer.pop(transfer, None) is not None:
                _, busy = tier.abandon(transfer)
                self._supply.hold(busy)
                self._stuck[transfer] = busy
        return self._finish(restore, now_s)

    def _finish(self, restore: Restore, now_s: float) -> Sequence:
        """Park what has come without a gap; whatever is missing is computed."""
        sequence = restore.sequence
        del self._by_sequence[sequence.id]
        sequence.restore_s += now_s - restore.started_s
        records, runs = self._arrived(restore)
        if len(restore.block_ids) > restore.num_shared + len(records):
            sequence.restore_miss = MissReason.LOAD_FAILED
        if not restore.is_wanted:
            self._supply.drop(restore.block_ids, is_erased=True)
            return sequence
        keep = restore.num_shared + len(records) if records else 0
        self._supply.release(reversed(restore.block_ids[keep:]))
        if keep:
            sequence.restored = tuple(runs)
            self._park(restore, records, now_s)
        return sequence

    def _arrived(self, restore: Restore) -> tuple[list[Record], list[RestoredRun]]:
        records: list[Record] = []
        runs: list[RestoredRun] = []
        start = restore.num_shared * self._hasher.block_size
        for tier, transfer in restore.runs:
            come = [item.record for item in transfer.items[: transfer.num_done]]
            end = start + sum(record.num_tokens for record in come)
            records += come
            runs.append(RestoredRun(start, end, tier.name))
            start = end
            if len(come) < len(transfer.items):
                break
        return records, runs

    def _park(self, restore: Restore, records: list[Record], now_s: float) -> None:
        request, sequence = restore.sequence.request, restore.sequence
        block_ids = restore.block_ids[: restore.num_shared + len(records)]
        for record, block_id in zip(records, block_ids[restore.num_shared :], strict=True):
            if record.num_tokens == self._hasher.block_size:
                self._supply.name(record.key, block_id)
        start = restore.num_shared * self._hasher.block_size
        num_tokens = start + sum(record.num_tokens for record in records)
        num_full = num_tokens // self._hasher.block_size
        self._supply.park(
            ParkedTable(
                turn_id=sequence.id,
                conversation_id=request.conversation_id or sequence.id,
                owner=request.owner,
                token_ids=sequence.token_ids[: num_tokens + 1],
                block_hashes=sequence.block_hashes[:num_full],
                num_public_tokens=request.num_public_tokens,
                table=BlockTable(self._hasher.block_size, block_ids),
                num_computed_tokens=num_tokens,
                parked_s=now_s,
                tail_key=records[-1].key,
                is_single_use=request.conversation_id is None,
            )
        )

    def release(self, conversation_id: str) -> None:
        """What comes back for a conversation that is gone is not kept."""
        for restore in self._by_sequence.values():
            if restore.sequence.request.conversation_id == conversation_id:
                restore.is_wanted = False

    def holders(self) -> Counter[int]:
        """How often each block is held here."""
        held = Counter(b for restore in self._by_sequence.values() for b in restore.block_ids)
        held.update(b for stuck in self._stuck.values() for b in stuck)
        return held


def _look_up(tiers: Items[Tier], key: BlockHash) -> tuple[Tier, Record] | None:
    for tier in tiers:
        if (record := tier.tree.get(key)) is not None:
            return tier, record
    return None
