"""What a chain of blocks is worth keeping, on the device and in a tier: usage and costs, put
together for `eviction`.
"""

from collections.abc import Callable, Sequence

from model.costs import CostModel
from model.eviction import EvictionPolicy, Score, Usage, score
from model.messages import TierName
from model.parked_tables import ParkedTable
from model.tiers.base import Hold, Record
from model.tiers.tier import Tier


class Worth:
    """The judge of one engine. `now_s` is its monotonic clock as of the last tick; what outlives a
    process counts in wall-clock seconds. `tiers` are those there are, the quickest first."""

    def __init__(
        self,
        policy: EvictionPolicy,
        costs: CostModel,
        block_size: int,
        block_bytes: int,
        wall_clock: Callable[[], float],
    ) -> None:
        self.now_s = 0.0
        self.tiers: Sequence[Tier] = ()
        self._policy = policy
        self._costs = costs
        self._block_size = block_size
        self._block_bytes = block_bytes
        self._wall_clock = wall_clock

    def of_table(self, parked: ParkedTable, tier: Tier | None, *, is_superseded: bool) -> Score:
        """A parked table, which `tier` has too."""
        num_tokens, num_blocks = parked.num_computed_tokens, len(parked.table)
        compute_s = self._costs.compute_s(0, num_tokens)
        restore_s = compute_s if tier is None else self._costs.restore_s(tier.name, num_blocks)
        usage = Usage(
            idle_s=self.now_s - parked.parked_s,
            num_uses=parked.num_uses,
            num_tokens=num_tokens,
            num_bytes=num_blocks * self._block_bytes,
            return_cost_s=min(compute_s, restore_s),
            is_superseded=is_superseded,
            ttl_s=parked.ttl_s,
            priority=parked.priority,
        )
        return score(self._policy, usage)

    def of_record(self, tier: TierName, record: Record, hold: Hold | None) -> Score:
        """A leaf in a tier, as far as a hold on it makes it worth."""
        idle_s = self._wall_clock() - hold.used_at if hold else 0.0
        usage = Usage(
            idle_s=idle_s,
            num_uses=hold.num_uses if hold else 0,
            num_tokens=hold.num_tokens if hold else record.num_tokens,
            num_bytes=self._block_bytes,
            return_cost_s=self._return_cost_s(tier, record),
            is_superseded=hold is None or hold.is_superseded,
            ttl_s=hold.ttl_s if hold else 0.0,
            priority=hold.priority if hold else 0,
        )
        return score(self._policy, usage)

    def _return_cost_s(self, tier: TierName, record: Record) -> float:
        """Computing it, or restoring it with the rest of its chain from a slower tier."""
        start = record.position * self._block_size
        compute_s = self._costs.compute_s(start, start + record.num_tokens)
        names = [t.name for t in self.tiers]
        slower = self.tiers[names.index(tier) + 1 :] if tier in names else ()
        places = [t.name for t in slower if record.key in t.tree]
        return min([compute_s, *(self._costs.restore_more_s(name, 1) for name in places)])
