"""Parked tables on their way to the tiers: those that idle, and those about to be given up.

A spill copies; the device keeps its blocks until it needs them, and takes first what is stored
elsewhere, since that is the cheapest to have again. So what the pool gives up under pressure is
lost only when it fills faster than the medium writes.

Invariants:
    a spill holds the blocks it reads until it is over
    a table's chain is written head first, in bounded pieces
"""

import math
from collections import Counter
from collections.abc import Callable, Iterator
from collections.abc import Sequence as Items
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import TypeVar

from model.block_pool import BlockPool
from model.block_supply import BlockSupply
from model.eviction import Score
from model.messages import TierName
from model.parked_tables import ParkedTable, ParkedTables
from model.tiers.base import Hold, Record, RecordLostError
from model.tiers.jobs import Item, Transfer
from model.tiers.tier import Tier

_MAX_SPILLS = 2
"""For each tier, so that a restore waits for one piece at the most and pieces follow closely."""
_MAX_ITEMS = 32
_NO_BLOCK = -1
"""In place of the device's block, in what is copied from another tier."""
_PATIENCE_S = 30.0
_LOW_RESERVE, _HIGH_RESERVE = 0.1, 0.3
"""Shares of the pool that can be had without a loss: fewer than the first start spilling what idles
too shortly, until there is the second. The gap keeps it from flapping."""

_Due = TypeVar("_Due", ParkedTable, Hold)


@dataclass(frozen=True, slots=True, kw_only=True)
class SpillConfig:
    """How long a table idles before it is stored, by tier."""

    cpu_after_s: float = 5.0
    disk_after_s: float = 30.0

    def after_s(self, tier: TierName) -> float:
        """The tier's."""
        return self.cpu_after_s if tier is TierName.CPU else self.disk_after_s


@dataclass(slots=True)
class _Spill:
    conversation_id: str
    turn_id: str
    started_s: float
    is_wanted: bool = True


class Spills:
    """Plans what is stored next, and where."""

    def __init__(
        self,
        tiers: Items[Tier],
        config: SpillConfig,
        supply: BlockSupply,
        pool: BlockPool,
        parked: ParkedTables,
        worth: Callable[[ParkedTable], Score],
        wall_clock: Callable[[], float],
    ) -> None:
        self._tiers = tiers
        self._config = config
        self._supply = supply
        self._pool = pool
        self._parked = parked
        self._worth = worth
        self._wall_clock = wall_clock
        self._spills: dict[Transfer, _Spill] = {}
        self._stuck: dict[Transfer, frozenset[int]] = {}
        self._held: dict[Transfer, list[int]] = {}
        self._copied: dict[Transfer, tuple[Tier, list[Record]]] = {}
        self._wanted: dict[str, TierName] = {}  # conversations that are to leave the device
        self._is_hurried = False
        self._is_short = False

    # Where a table is

    def stored_in(self, parked: ParkedTable) -> Tier | None:
        """The quickest tier that has all of a table."""
        return next((t for t in self._tiers if parked.last_key in t.tree), None)

    def has_unstored(self) -> bool:
        """Whether anything lacks in a tier that would take it."""
        if any(self._lacks(tier, p) for tier in self._tiers for p in self._parked):
            return True
        pairs = [(a, b) for a, b in pairwise(self._tiers) if a.is_on and b.is_on]
        return any(_lacks_hold(b, h) for a, b in pairs for h in a.tree.holds())

    def _lacks(self, tier: Tier, parked: ParkedTable) -> bool:
        if not tier.is_on or parked.is_single_use:
            return False
        # Its own claim counts: another conversation's would go with that conversation.
        reach = tier.tree.reach(parked.conversation_id, parked.turn_id)
        return reach < parked.num_computed_tokens

    # Plan

    def park(self, conversation_id: str, tier: TierName) -> bool:
        """Store a conversation's tables and give their blocks up then; whether there is such a tier
        and anything to move."""
        if not any(t.name is tier for t in self._tiers):
            return False
        if not self._parked.of(conversation_id):
            return False
        self._wanted[conversation_id] = tier
        return True

    def hurry(self) -> None:
        """From now on everything is stored at once: the server is about to stop."""
        self._is_hurried = True

    def sweep(self, now_s: float) -> None:
        """Order what is due."""
        self._expire(now_s)
        self._leave()
        for tier in self._tiers:
            if tier.is_on:
                self._fill(tier, self._due(tier, now_s), partial(self._spill, tier, now_s=now_s))
        for upper, lower in pairwise(self._tiers):
            if upper.is_on and lower.is_on:
                copy_down = partial(self._copy_down, upper, lower, now_s=now_s)
                self._fill(lower, self._idle(upper, lower), copy_down)

    @staticmethod
    def _fill(tier: Tier, due: list[_Due], spill: Callable[[_Due], bool]) -> None:
        """Store what is due, the first first, until `spill` finds no room for what is worth so
        little. Then the last first: when that doesn't fit, nothing does, and to look for room
        costs what there is in the tier."""
        for candidates in (due, due[::-1]):
            for candidate in candidates:
                if tier.num_spills >= _MAX_SPILLS:
                    return
                if not spill(candidate):
                    break
            else:
                return

    def _due(self, tier: Tier, now_s: float) -> list[ParkedTable]:
        """The tables to store, what is given up next first."""
        busy = {s.turn_id for t, s in self._spills.items() if t.tier is tier.name}
        lacking = [p for p in self._parked if p.turn_id not in busy and self._lacks(tier, p)]
        if not (self._is_hurried or self._runs_short()):
            after_s = self._config.after_s(tier.name)
            lacking = [p for p in lacking if now_s - p.parked_s >= after_s or self._wants(p, tier)]
        return sorted(lacking, key=self._worth)

    def _wants(self, parked: ParkedTable, tier: Tier) -> bool:
        return self._wanted.get(parked.conversation_id) is tier.name

    def _runs_short(self) -> bool:
        """Whether too few blocks could be had without losing what is nowhere else."""
        stored = (p for p in self._parked if self.stored_in(p) is not None)
        reserve = self._pool.num_free + sum(len(p.table) for p in stored)
        wanted = _HIGH_RESERVE if self._is_short else _LOW_RESERVE
        self._is_short = reserve < wanted * self._pool.num_blocks
        return self._is_short

    def _spill(self, tier: Tier, parked: ParkedTable, now_s: float) -> bool:
        """Order a table's next piece; False if there is no room for it."""
        chain = list(_records(parked))
        missing = len(tier.missing(chain))
        start = len(chain) - missing
        items = [
            Item(record, block_id)
            for record, block_id in zip(chain[start:], parked.table.block_ids[start:], strict=True)
        ][:_MAX_ITEMS]
        transfer = tier.spill(items, self._hold(parked, now_s), superseded=parked.parent_turn_id)
        if transfer is None:
            return not items
        self._spills[transfer] = _Spill(parked.conversation_id, parked.turn_id, now_s)
        self._held[transfer] = [item.block_id for item in transfer.items]
        self._supply.hold(self._held[transfer])
        return True

    def _idle(self, upper: Tier, lower: Tier) -> list[Hold]:
        """What idles in the upper tier and lacks in the lower one, that which was used longest ago
        first, and in time before the upper one needs the room."""
        is_short = len(upper.tree) > (1.0 - _LOW_RESERVE) * upper.max_records
        before = self._wall_clock() - self._config.after_s(lower.name)
        if is_short or self._is_hurried:
            before = math.inf  # also what was used in the future of a clock that jumped back
        busy = {spill.turn_id for spill in self._spills.values()}
        idle = [
            hold
            for hold in upper.tree.holds()
            if hold.used_at <= before and _lacks_hold(lower, hold) and hold.turn_id not in busy
        ]
        return sorted(idle, key=lambda hold: hold.used_at)

    def _copy_down(self, upper: Tier, lower: Tier, hold: Hold, now_s: float) -> bool:
        """Order the next piece of what isn't on the device any more; False if there is no room."""
        records = list(lower.missing(upper.tree.chain(hold.tail)))[:_MAX_ITEMS]
        items = [Item(record, _NO_BLOCK) for record in records]
        transfer = lower.spill(items, hold, source=upper.storage)
        if transfer is None:
            return not items
        upper.pin(records)
        self._spills[transfer] = _Spill(hold.conversation_id, hold.turn_id, now_s)
        self._held[transfer] = []
        self._copied[transfer] = (upper, records)
        return True

    def _hold(self, parked: ParkedTable, now_s: float) -> Hold:
        return Hold(
            conversation_id=parked.conversation_id,
            turn_id=parked.turn_id,
            tail=parked.last_key,
            num_tokens=parked.num_computed_tokens,
            used_at=self._wall_clock() - (now_s - parked.parked_s),
            num_uses=parked.num_uses,
            ttl_s=parked.ttl_s,
            priority=parked.priority,
            is_superseded=self._parked.is_superseded(parked),
        )

    def _leave(self) -> None:
        """Give the blocks of those up that were to leave the device, and are stored."""
        for conversation_id, name in list(self._wanted.items()):
            tier = next(t for t in self._tiers if t.name is name)
            tables = self._parked.of(conversation_id)
            for parked in tables:
                if parked.last_key in tier.tree:
                    self._supply.drop_parked(parked.turn_id)
            if not tier.is_on or not self._parked.of(conversation_id):
                del self._wanted[conversation_id]

    # End

    def settle(self, transfer: Transfer) -> None:
        """A spill is over, whatever came of it."""
        if (copied := self._copied.pop(transfer, None)) is not None:
            tier, records = copied
            tier.unpin(records)
            if isinstance(transfer.error, RecordLostError):
                # Otherwise the same copy would be tried for ever, and no other.
                tier.lose(transfer.items[transfer.num_done].record)
        if (busy := self._stuck.pop(transfer, None)) is not None:
            self._supply.release(busy)
            return
        if self._spills.pop(transfer).is_wanted:
            self._supply.release(self._held.pop(transfer))
        else:
            self._supply.drop(self._held.pop(transfer), is_erased=True)

    def _expire(self, now_s: float) -> None:
        """Let go of the blocks of what takes too long."""
        for transfer, spill in list(self._spills.items()):
            if now_s - spill.started_s < _PATIENCE_S:
                continue
            tier = next(t for t in self._tiers if t.name is transfer.tier)
            _, busy = tier.abandon(transfer)
            self._stuck[transfer] = busy - {_NO_BLOCK}
            self._supply.hold(self._stuck[transfer])
            del self._spills[transfer]
            self._supply.release(self._held.pop(transfer))

    def release(self, conversation_id: str) -> None:
        """The conversation is gone from every tier, and what is on its way from the device, too."""
        self._wanted.pop(conversation_id, None)
        for spill in self._spills.values():
            spill.is_wanted &= spill.conversation_id != conversation_id
        for tier in self._tiers:
            tier.release(conversation_id)

    def holders(self) -> Counter[int]:
        """How often each block is held here."""
        held = Counter(b for block_ids in self._held.values() for b in block_ids)
        held.update(b for busy in self._stuck.values() for b in busy)
        return held


def _lacks_hold(tier: Tier, hold: Hold) -> bool:
    return tier.tree.reach(hold.conversation_id, hold.turn_id) < hold.num_tokens


def _records(parked: ParkedTable) -> Iterator[Record]:
    """A table's blocks as the tiers know them, head first."""
    size = parked.table.block_size
    parent = None
    for position in range(len(parked.table)):
        num_tokens = min(size, parked.num_computed_tokens - position * size)
        is_full = num_tokens == size
        key = parked.block_hashes[position] if is_full else parked.last_key
        yield Record(key, parent, position, num_tokens)
        parent = key
