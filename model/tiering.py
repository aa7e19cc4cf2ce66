"""The tiers as `cache_manager` sees them: one thing to ask, to tick, and to let go.

Joins what is restored and what is spilled. Without tiers nothing here does anything.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from collections.abc import Sequence as Items
from dataclasses import dataclass

from model.block_pool import BlockPool
from model.block_supply import BlockSupply
from model.claim import ClaimSource
from model.costs import CostModel
from model.eviction import EvictionPolicy
from model.messages import TierName, TierStats
from model.parked_tables import ParkedTable, ParkedTables
from model.prefix_index import BlockHash, BlockHasher
from model.restores import Restores
from model.sequence import Sequence
from model.spills import SpillConfig, Spills
from model.tiers.base import Storage
from model.tiers.foreign import ForeignFolders
from model.tiers.jobs import Urgency
from model.tiers.tier import Tier
from model.worth import Worth

_SWEEP_S = 0.25


@dataclass(frozen=True, slots=True, kw_only=True)
class TierSetup:
    """The tiers, quickest first, and what decides about them."""

    costs: CostModel
    worth: Worth
    tiers: tuple[Tier, ...] = ()
    spill: SpillConfig
    wall_clock: Callable[[], float]
    foreign: ForeignFolders | None = None

    @classmethod
    def without_tiers(cls, hasher: BlockHasher) -> "TierSetup":
        """Only the device; what is given up there is computed again."""
        costs = CostModel(hasher.block_size, 1)
        worth = Worth(EvictionPolicy.VALUE, costs, hasher.block_size, 1, lambda: 0.0)
        return cls(costs=costs, worth=worth, spill=SpillConfig(), wall_clock=lambda: 0.0)


class Tiering:
    """Restores and spills of one device."""

    def __init__(
        self,
        setup: TierSetup,
        pool: BlockPool,
        supply: BlockSupply,
        parked: ParkedTables,
        hasher: BlockHasher,
    ) -> None:
        self.costs = setup.costs
        self.wall_s = setup.wall_clock
        self._tiers = setup.tiers
        self._foreign = setup.foreign if setup.tiers else None
        self._foreign_conversations: frozenset[str] = frozenset()
        self._worth = setup.worth
        self._parked = parked
        self._supply = supply
        self._next_sweep_s = 0.0
        self._is_hurried = False
        self._restores = Restores(setup.tiers, supply, hasher, setup.costs)
        self._spills = Spills(
            setup.tiers, setup.spill, supply, pool, parked, self.worth, setup.wall_clock
        )
        self.collect(lambda _: None)

    def worth(self, parked: ParkedTable) -> tuple[bool, int, float]:
        """What a parked table is worth: the lowest is given up first."""
        is_superseded = self._parked.is_superseded(parked)
        tier = self._spills.stored_in(parked)
        return self._worth.of_table(parked, tier, is_superseded=is_superseded)

    @property
    def now_s(self) -> float:
        """The engine's monotonic clock as of the last tick."""
        return self._worth.now_s

    # Restore

    def is_waited_for(self, sequence: Sequence) -> bool:
        """Whether the sequence's tokens are on their way."""
        return self._restores.is_waited_for(sequence)

    def begin_restore(self, sequence: Sequence, source: ClaimSource) -> list[BlockHash]:
        """Order what the tiers have beyond `source`; the hashes of what will come. Raises
        OutOfBlocksError."""
        if not self._tiers:
            return []
        return self._restores.begin(sequence, source, self.now_s)

    # Time

    def tick(self, now_s: float) -> list[Sequence]:
        """Take note of what is over and order what is due; the sequences that need not wait for
        anything any more."""
        self._worth.now_s = now_s
        is_due = now_s >= self._next_sweep_s
        if is_due:
            self._supply.reconsider()
            self._next_sweep_s = now_s + (0.0 if self._is_hurried else _SWEEP_S)
        if not self._tiers:
            return []
        ready: list[Sequence] = []
        for tier in self._tiers:
            for transfer in tier.settle():
                if transfer.urgency is Urgency.SPILL:
                    self._spills.settle(transfer)
                elif (sequence := self._restores.settle(transfer, now_s)) is not None:
                    ready.append(sequence)
        ready += self._restores.expire(now_s)
        if is_due:
            self._spills.sweep(now_s)
        return ready

    @property
    def has_orders(self) -> bool:
        """Whether transfers wait to be launched."""
        return any(tier.has_orders for tier in self._tiers)

    def launch(self) -> None:
        """Begin with what was ordered, once the blocks' pending edits have been made."""
        for tier in self._tiers:
            tier.launch()

    @property
    def num_in_flight(self) -> int:
        """Transfers that are not over."""
        return sum(tier.num_in_flight for tier in self._tiers)

    def is_due(self) -> bool:
        """Whether a tick has anything to do soon, though nobody runs."""
        is_busy = self.has_orders or self.num_in_flight > 0
        is_busy |= any(tier.owes_erasure for tier in self._tiers)
        return bool(self._tiers) and (is_busy or self._spills.has_unstored())

    # Between turns

    def park(self, conversation_id: str, tier: TierName) -> bool:
        """Store a conversation's tables and give up their blocks; whether there is anything to."""
        self._next_sweep_s = 0.0
        return self._spills.park(conversation_id, tier)

    def hurry(self) -> None:
        """Store everything at once from now on: whatever can be stored is on its way after a tick,
        and when nothing is, all is there."""
        self._next_sweep_s = 0.0
        self._is_hurried = True
        self._spills.hurry()

    def release(self, conversation_id: str) -> None:
        """Erase what only this conversation has."""
        self._restores.release(conversation_id)
        self._spills.release(conversation_id)
        if self._foreign is not None and conversation_id in self._foreign_conversations:
            foreign = self._foreign
            self._foreign_conversations -= {conversation_id}
            self._tiers[-1].run(lambda _: foreign.release(conversation_id))

    def conversations(self) -> frozenset[str]:
        """Whoever has something in a tier, or in what another model left behind."""
        mine = frozenset(c for tier in self._tiers for c in tier.tree.conversations())
        return mine | self._foreign_conversations

    def verify(self, on_done: Callable[[int], None]) -> None:
        """Read everything there is, and drop what is damaged; `on_done` is told how many records
        that were."""
        counts: list[int] = []

        def count(num_lost: int) -> None:
            counts.append(num_lost)
            if len(counts) == len(self._tiers):
                on_done(sum(counts))

        for tier in self._tiers:
            tier.verify(count)
        if not self._tiers:
            on_done(0)

    def collect(self, on_done: Callable[[int], None]) -> None:
        """Remove what other models left behind that is old or too much; `on_done` is told how many
        folders that were."""
        if self._foreign is None:
            on_done(0)
            return
        foreign, now = self._foreign, self.wall_s()

        def collect(_: Storage) -> Iterator[object]:
            yield from foreign.collect(now)
            yield from foreign.conversations()

        def note(found: Items[object], *, is_all: bool) -> None:
            named = [names for names in found if isinstance(names, frozenset)]
            if is_all:
                self._foreign_conversations = frozenset[str]().union(*named)
            on_done(len(found) - len(named))

        self._tiers[-1].run(collect, note)

    def close(self, timeout_s: float = 10.0) -> bool:
        """Bring the media into order for the next process; whether all was done in time."""
        closed = [tier.close(timeout_s) for tier in self._tiers]
        return all(closed)

    def holders(self) -> Counter[int]:
        """How often transfers hold each block."""
        return self._restores.holders() + self._spills.holders()

    def stats(self) -> tuple[TierStats, ...]:
        """A snapshot of each tier."""
        return tuple(tier.stats() for tier in self._tiers)

    def tiers(self) -> tuple[Tier, ...]:
        """The tiers, quickest first."""
        return self._tiers

    def check(self) -> None:
        """The books; AssertionError if they are off."""
        for tier in self._tiers:
            tier.check()
