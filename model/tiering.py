"""The tiers as `cache_manager` sees them: one thing to ask, to tick, and to let go.

Joins what is restored and what is spilled. Without tiers nothing here does anything.
"""

from collections import Counter
from collections.abc import Callable
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
from model.tiers.tier import Tier
from model.tiers.transfers import Urgency
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
        self._worth = setup.worth
        self._parked = parked
        self._next_sweep_s = 0.0
        self._restores = Restores(setup.tiers, supply, hasher, setup.costs)
        self._spills = Spills(
            setup.tiers, setup.spill, supply, pool, parked, self.worth, setup.wall_clock
        )

    def worth(self, parked: ParkedTable) -> tuple[bool, int, float]:
        """What a parked table is worth: the lowest is given up first."""
        is_superseded = self._parked.is_superseded(parked.turn_id)
        tier = self._spills.stored_in(parked)
        return self._worth.of_table(parked, tier, is_superseded=is_superseded)

    # Restore

    def is_waited_for(self, sequence: Sequence) -> bool:
        """Whether the sequence's tokens are on their way."""
        return self._restores.is_waited_for(sequence)

    def begin_restore(self, sequence: Sequence, source: ClaimSource) -> list[BlockHash]:
        """Order what the tiers have beyond `source`; the hashes of what will come. Raises
        OutOfBlocksError."""
        if not self._tiers:
            return []
        return self._restores.begin(sequence, source, self._worth.now_s)

    # Time

    def tick(self, now_s: float) -> list[Sequence]:
        """Take note of what is over and order what is due; the sequences that need not wait for
        anything any more."""
        self._worth.now_s = now_s
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
        if now_s >= self._next_sweep_s:
            self._spills.sweep(now_s)
            self._next_sweep_s = now_s + _SWEEP_S
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
        return bool(self._tiers) and (is_busy or self._spills.has_unstored())

    # Between turns

    def park(self, conversation_id: str, tier: TierName) -> bool:
        """Store a conversation's tables and give up their blocks; whether there is anything to."""
        self._next_sweep_s = 0.0
        return self._spills.park(conversation_id, tier)

    def hurry(self) -> None:
        """Store everything at once from now on."""
        self._next_sweep_s = 0.0
        self._spills.hurry()

    def release(self, conversation_id: str) -> None:
        """Erase what only this conversation has."""
        self._restores.release(conversation_id)
        self._spills.release(conversation_id)

    def conversations(self) -> frozenset[str]:
        """Whoever has something in a tier."""
        return frozenset(c for tier in self._tiers for c in tier.tree.conversations())

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
