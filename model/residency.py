"""Where conversations are: each one's newest table, and the quickest tier that has all of it."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from model.block_table import num_blocks_for
from model.messages import Residency, TierName
from model.parked_tables import ParkedTable, ParkedTables
from model.prefix_index import BlockHash
from model.sequence import Sequence
from model.tiering import Tiering
from model.tiers.base import Hold


@dataclass(frozen=True, slots=True)
class Measure:
    """The engine's monotonic clock now, and what blocks measure."""

    now_s: float
    block_size: int
    block_bytes: int

    def num_bytes(self, num_tokens: int) -> int:
        """What so many tokens take up."""
        return num_blocks_for(num_tokens, self.block_size) * self.block_bytes


def residencies(
    running: Mapping[str, Sequence], parked: ParkedTables, tiering: Tiering, measure: Measure
) -> tuple[Residency, ...]:
    """One for each conversation that anything is kept of; `running` by conversation."""
    found = {hold.conversation_id: _stored(hold, tiering, measure) for hold in _newest(tiering)}
    newest: dict[str, ParkedTable] = {}
    for table in parked:
        known = newest.get(table.conversation_id)
        if known is None or table.parked_s >= known.parked_s:
            newest[table.conversation_id] = table
    found |= {name: _parked(table, tiering, measure) for name, table in newest.items()}
    found |= {name: _running(name, seq, tiering, measure) for name, seq in running.items()}
    return tuple(found.values())


def _newest(tiering: Tiering) -> Iterator[Hold]:
    newest: dict[str, Hold] = {}
    for tier in tiering.tiers():
        for hold in tier.tree.holds():
            known = newest.get(hold.conversation_id)
            if known is None or hold.used_at > known.used_at:
                newest[hold.conversation_id] = hold
    yield from newest.values()


def _stored_in(tail: BlockHash, tiering: Tiering) -> tuple[TierName, ...]:
    return tuple(tier.name for tier in tiering.tiers() if tail in tier.tree)


def _stored(hold: Hold, tiering: Tiering, measure: Measure) -> Residency:
    places = _stored_in(hold.tail, tiering)
    return Residency(
        conversation_id=hold.conversation_id,
        turn_id=hold.turn_id,
        tier=places[0],
        tail=hold.tail.hex(),
        num_tokens=hold.num_tokens,
        num_bytes=measure.num_bytes(hold.num_tokens),
        used_at=hold.used_at,
        stored_in=places,
    )


def _parked(table: ParkedTable, tiering: Tiering, measure: Measure) -> Residency:
    return Residency(
        conversation_id=table.conversation_id,
        turn_id=table.turn_id,
        tier=TierName.DEVICE,
        tail=table.last_key.hex(),
        num_tokens=table.num_computed_tokens,
        num_bytes=measure.num_bytes(table.num_computed_tokens),
        used_at=tiering.wall_s() - (measure.now_s - table.parked_s),
        stored_in=_stored_in(table.last_key, tiering),
    )


def _running(name: str, sequence: Sequence, tiering: Tiering, measure: Measure) -> Residency:
    num_full = sequence.num_computed_tokens // measure.block_size
    return Residency(
        conversation_id=name,
        turn_id=sequence.id,
        tier=TierName.DEVICE,
        tail=sequence.block_hashes[num_full - 1].hex() if num_full else "",
        num_tokens=sequence.num_computed_tokens,
        num_bytes=measure.num_bytes(sequence.num_computed_tokens),
        used_at=tiering.wall_s(),
    )
