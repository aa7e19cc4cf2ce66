"""The records of one tier as trees: each below the record of the block before it.

A block can only be used when all before it are there, so records come head first and go tail first:
a leaf is all that may be given up. What several conversations share is an inner node of the tree
and outlives each of them; no reference is counted, the children are.

Invariants (`check`):
    a record's parent is in the tree, unless it is a first one
    a hold lies on a record that is in the tree
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from heapq import heapify, heappop, heappush
from typing import NamedTuple

from model.eviction import Score
from model.prefix_index import BlockHash
from model.tiers.base import Hold, Record

Worth = Callable[[Record, Hold | None], Score]


class Cut(NamedTuple):
    """Records that were taken out, the holds whose chains are shorter now, and the turns,
    conversation first, that hold nothing any more."""

    records: list[Record]
    moved: list[Hold]
    ended: list[tuple[str, str]]


@dataclass(slots=True)
class _Node:
    record: Record
    num_children: int = 0
    holds: dict[tuple[str, str], Hold] = field(default_factory=dict)


class RecordTree:
    """What a tier has, and for whom. Costs are those of the records touched."""

    def __init__(self) -> None:
        self._nodes: dict[BlockHash, _Node] = {}
        self._tail_by_turn: dict[tuple[str, str], BlockHash] = {}
        self._turns_by_conversation: dict[str, set[str]] = {}

    def __len__(self) -> int:
        return len(self._nodes)

    def __contains__(self, key: BlockHash) -> bool:
        return key in self._nodes

    def get(self, key: BlockHash) -> Record | None:
        """The record of that key."""
        node = self._nodes.get(key)
        return None if node is None else node.record

    def run(self, keys: Iterable[BlockHash]) -> list[Record]:
        """The records of the longest prefix of `keys` that is here."""
        found: list[Record] = []
        for key in keys:
            node = self._nodes.get(key)
            if node is None:
                break
            found.append(node.record)
        return found

    def add(self, record: Record) -> bool:
        """Take a record in; False if its parent isn't here, so that it could never be used."""
        if record.key in self._nodes:
            return True
        if record.parent is not None:
            parent = self._nodes.get(record.parent)
            if parent is None:
                return False
            parent.num_children += 1
        self._nodes[record.key] = _Node(record)
        return True

    def rebuild(self, records: Iterable[Record]) -> list[Record]:
        """Take in what an earlier process left; returned is what lacks a parent."""
        waiting = sorted(records, key=lambda record: record.position)
        return [record for record in waiting if not self.add(record)]

    # Holds

    def hold(self, hold: Hold) -> Hold | None:
        """Note a conversation's claim on the chain that ends in `hold.tail`, or in what there is of
        it; the hold as it stands now, None if nothing of the chain is here."""
        self.drop_hold(hold.conversation_id, hold.turn_id)
        node = self._nodes.get(hold.tail)
        if node is None:
            return None
        turn = hold.conversation_id, hold.turn_id
        node.holds[turn] = hold
        self._tail_by_turn[turn] = hold.tail
        self._turns_by_conversation.setdefault(hold.conversation_id, set()).add(hold.turn_id)
        return hold

    def supersede(self, conversation_id: str, turn_id: str) -> Hold | None:
        """Mark a claim that a later turn has gone on from; the hold as it is now, if there is one
        and it is news."""
        turn = conversation_id, turn_id
        tail = self._tail_by_turn.get(turn)
        if tail is None or (hold := self._nodes[tail].holds[turn]).is_superseded:
            return None
        self._nodes[tail].holds[turn] = replace(hold, is_superseded=True)
        return self._nodes[tail].holds[turn]

    def drop_hold(self, conversation_id: str, turn_id: str) -> None:
        """Take a claim back; the records stay until room is needed."""
        tail = self._tail_by_turn.pop((conversation_id, turn_id), None)
        if tail is None:
            return
        del self._nodes[tail].holds[conversation_id, turn_id]
        turns = self._turns_by_conversation[conversation_id]
        turns.discard(turn_id)
        if not turns:
            del self._turns_by_conversation[conversation_id]

    def reach(self, conversation_id: str, turn_id: str) -> int:
        """How many of a turn's tokens its claim covers; 0 if there is none."""
        turn = conversation_id, turn_id
        tail = self._tail_by_turn.get(turn)
        return 0 if tail is None else self._nodes[tail].holds[turn].num_tokens

    def holds_of(self, conversation_id: str) -> list[Hold]:
        """A conversation's holds."""
        turns = self._turns_by_conversation.get(conversation_id, ())
        keys = [(conversation_id, turn_id) for turn_id in turns]
        return [self._nodes[self._tail_by_turn[key]].holds[key] for key in keys]

    def holds(self) -> Iterator[Hold]:
        """All holds there are."""
        for turn, tail in self._tail_by_turn.items():
            yield self._nodes[tail].holds[turn]

    def conversations(self) -> Collection[str]:
        """Whoever holds something."""
        return self._turns_by_conversation.keys()

    def chain(self, tail: BlockHash) -> list[Record]:
        """The records from a first one to `tail`; none if it isn't here."""
        found: list[Record] = []
        key: BlockHash | None = tail
        while key is not None and (node := self._nodes.get(key)) is not None:
            found.append(node.record)
            key = node.record.parent
        return found[::-1]

    # Removal

    def release(self, conversation_id: str) -> list[Record]:
        """Take a conversation's holds back and its records out, tail first: all that no other chain
        needs."""
        gone: list[Record] = []
        for hold in self.holds_of(conversation_id):
            self.drop_hold(hold.conversation_id, hold.turn_id)
            gone += self._prune(hold.tail)
        return gone

    def prune_unheld(self) -> list[Record]:
        """Take out whatever no hold lies behind."""
        leaves = [key for key, node in self._nodes.items() if not node.num_children]
        return [record for key in leaves for record in self._prune(key)]

    def _prune(self, tail: BlockHash) -> list[Record]:
        gone: list[Record] = []
        key: BlockHash | None = tail
        while key is not None and (node := self._nodes.get(key)) is not None:
            if node.num_children or node.holds:
                break
            gone.append(self._remove(node))
            key = node.record.parent
        return gone

    def evict(
        self,
        num_records: int,
        worth: Worth,
        pinned: Collection[BlockHash] = (),
        below: Score | None = None,
    ) -> Cut:
        """Take out up to `num_records` leaves, those that are worth least first, but none that is
        pinned or worth as much as `below`. `worth(record, hold)` is asked for each hold on a leaf,
        the highest counts; for a leaf nobody holds, `hold` is None."""
        waiting = [(self._worth(node, worth), key) for key, node in self._leaves()]
        heapify(waiting)
        gone: list[Record] = []
        moved: dict[tuple[str, str], Hold | None] = {}
        while waiting and len(gone) < num_records:
            value, key = heappop(waiting)
            if below is not None and value >= below:
                break
            if key in pinned:
                continue
            node = self._nodes[key]
            moved |= self._pass_holds_on(node)
            gone.append(self._remove(node))
            parent = self._nodes.get(node.record.parent) if node.record.parent else None
            if parent is not None and not parent.num_children:
                heappush(waiting, (self._worth(parent, worth), parent.record.key))
        return _cut(gone, moved)

    def _leaves(self) -> Iterator[tuple[BlockHash, _Node]]:
        return ((key, node) for key, node in self._nodes.items() if not node.num_children)

    @staticmethod
    def _worth(node: _Node, worth: Worth) -> Score:
        if not node.holds:
            return worth(node.record, None)
        return max(worth(node.record, hold) for hold in node.holds.values())

    def discard(self, key: BlockHash) -> Cut:
        """A record turned out to be lost: it goes, and all that lies behind it, which can't be used
        any more."""
        if key not in self._nodes:
            return Cut([], [], [])
        doomed = self._below(key)
        moved: dict[tuple[str, str], Hold | None] = {}
        for node in reversed(doomed):
            moved |= self._pass_holds_on(node)
            self._remove(node)
        return _cut([node.record for node in doomed], moved)

    def _below(self, key: BlockHash) -> list[_Node]:
        """The node and all behind it, parents first. Costs what the tree has: it happens when a
        medium is damaged."""
        members, found = {key}, [self._nodes[key]]
        for node in sorted(self._nodes.values(), key=lambda node: node.record.position):
            if node.record.parent in members:
                members.add(node.record.key)
                found.append(node)
        return found

    def _pass_holds_on(self, node: _Node) -> dict[tuple[str, str], Hold | None]:
        """Let what held a node hold its parent, which is what there is left of the chain; None for
        those that end."""
        parent = self._nodes.get(node.record.parent) if node.record.parent else None
        # What nobody would hold otherwise could not be found when its conversation is released.
        is_needed = parent is not None and parent.num_children == 1 and not parent.holds
        passed: dict[tuple[str, str], Hold | None] = {}
        for turn, hold in list(node.holds.items()):
            self.drop_hold(*turn)
            passed[turn] = None
            # What is superseded and cut serves nobody: the later turn has as much.
            if parent is not None and (is_needed or not hold.is_superseded):
                num_tokens = hold.num_tokens - node.record.num_tokens
                shorter = replace(hold, tail=parent.record.key, num_tokens=num_tokens)
                passed[turn] = self.hold(shorter)
        return passed

    def _remove(self, node: _Node) -> Record:
        for hold in list(node.holds.values()):
            self.drop_hold(hold.conversation_id, hold.turn_id)
        del self._nodes[node.record.key]
        if node.record.parent is not None and (parent := self._nodes.get(node.record.parent)):
            parent.num_children -= 1
        return node.record

    def check(self) -> None:
        """The tree's own books; AssertionError if they are off."""
        children: dict[BlockHash, int] = {}
        for node in self._nodes.values():
            if node.record.parent is not None:
                assert node.record.parent in self._nodes, f"{node.record} has no parent"
                children[node.record.parent] = children.get(node.record.parent, 0) + 1
        for key, node in self._nodes.items():
            assert node.num_children == children.get(key, 0), f"{node.record} miscounts children"
        for turn, tail in self._tail_by_turn.items():
            assert turn in self._nodes[tail].holds, f"{turn} holds nothing"


def _cut(records: list[Record], passed: Mapping[tuple[str, str], Hold | None]) -> Cut:
    moved = [hold for hold in passed.values() if hold is not None]
    return Cut(records, moved, [turn for turn, hold in passed.items() if hold is None])
