"""Block tables kept between turns, in the order in which they were parked.

A parked table is a claim, never a lock: whoever needs blocks takes them from here, and the
conversation computes again what it lost.

Invariant: a parked table's blocks cover exactly its computed tokens (kept by `cache_manager`).
"""

from collections import Counter, OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from model.block_table import BlockTable
from model.prefix_index import BlockHash


@dataclass(frozen=True, slots=True, eq=False)
class ParkedTable:
    """A table as its turn left it, or as it was restored for one; `token_ids` are those it was
    computed from, and one more. `tail_key` names its last block if that is partial; it was come
    back to `num_uses` times, and `ttl_s` and `priority` are hints to `eviction`. One that
    `is_single_use` was restored for a generation without a conversation: nobody comes back to it.
    """

    turn_id: str
    conversation_id: str
    owner: str
    token_ids: Sequence[int]
    block_hashes: list[BlockHash]
    num_public_tokens: int
    table: BlockTable
    num_computed_tokens: int
    parked_s: float
    parent_turn_id: str | None = None
    tail_key: BlockHash | None = None
    num_uses: int = 0
    ttl_s: float = 0.0
    priority: int = 0
    is_single_use: bool = False

    @property
    def last_key(self) -> BlockHash:
        """What its last block is called in the tiers: the chain that ends there is all of it."""
        num_full = self.num_computed_tokens // self.table.block_size
        if len(self.table) > num_full:
            assert self.tail_key is not None, f"{self.turn_id} has a tail without a key"
            return self.tail_key
        return self.block_hashes[num_full - 1]


class ParkedTables:
    """Tables by the turn whose end they hold."""

    def __init__(self) -> None:
        self._by_turn: OrderedDict[str, ParkedTable] = OrderedDict()
        # The turns as keys of a dict, which keeps their order.
        self._turns_by_conversation: dict[str, dict[str, None]] = {}
        # By conversation and parent's turn.
        self._num_children: Counter[tuple[str, str]] = Counter()

    def __len__(self) -> int:
        return len(self._by_turn)

    def __iter__(self) -> Iterator[ParkedTable]:
        return iter(self._by_turn.values())

    def get(self, turn_id: str | None) -> ParkedTable | None:
        """The table parked under a turn."""
        return None if turn_id is None else self._by_turn.get(turn_id)

    def of(self, *conversation_ids: str | None) -> list[ParkedTable]:
        """The conversations' tables."""
        turns = (self._turns_by_conversation.get(c or "", {}) for c in conversation_ids)
        return [self._by_turn[turn_id] for found in turns for turn_id in found]

    def is_superseded(self, parked: ParkedTable) -> bool:
        """Whether a table is kept of a turn of its conversation that went on from this one. A
        fork's doesn't count: the conversation goes on from here all the same."""
        return (parked.conversation_id, parked.turn_id) in self._num_children

    def add(self, parked: ParkedTable) -> None:
        """Keep a table, as the last to be taken from."""
        assert parked.turn_id not in self._by_turn, f"{parked.turn_id} is parked already"
        self._by_turn[parked.turn_id] = parked
        self._turns_by_conversation.setdefault(parked.conversation_id, {})[parked.turn_id] = None
        if parked.parent_turn_id is not None:
            self._num_children[parked.conversation_id, parked.parent_turn_id] += 1

    def take(self, turn_id: str) -> ParkedTable:
        """Take a table out, blocks and all."""
        parked = self._by_turn.pop(turn_id)
        turns = self._turns_by_conversation[parked.conversation_id]
        del turns[turn_id]
        if not turns:
            del self._turns_by_conversation[parked.conversation_id]
        if parked.parent_turn_id is not None:
            parent = parked.conversation_id, parked.parent_turn_id
            self._num_children[parent] -= 1
            if not self._num_children[parent]:
                del self._num_children[parent]
        return parked

    def shrink(self, turn_id: str) -> int:
        """Cut a table's last block off and take the table out if that was all; the block's id.

        The tail goes before the head, since a head is of use to more others.
        """
        parked = self._by_turn[turn_id]
        block_id = parked.table.block_ids.pop()
        if parked.table.block_ids:
            # Written over in place, so the order stays.
            self._by_turn[turn_id] = replace(
                parked, num_computed_tokens=min(parked.num_computed_tokens, parked.table.num_slots)
            )
        else:
            self.take(turn_id)
        return block_id

    def holders(self) -> Counter[int]:
        """How many parked tables hold each block."""
        return Counter(block_id for parked in self for block_id in parked.table.block_ids)
