"""Prefixes that are being computed right now, so that followers wait instead of computing them too.

A running sequence announces the blocks of its prompt that nobody has computed yet. Who comes with
the same prompt, or the same beginning of one, finds them here and starts when they are there.

Invariant: whoever announced a hash is running, so the wait ends: with the block, or with the
sequence's end, after which a follower computes it.
"""

from collections.abc import Sequence

from model.prefix_index import BlockHash


class PendingPrefixes:
    """Block hashes by the id of the sequence that computes them."""

    def __init__(self) -> None:
        self._leader_by_hash: dict[BlockHash, str] = {}
        self._hashes_by_leader: dict[str, list[BlockHash]] = {}

    def announce(self, leader: str, hashes: Sequence[BlockHash]) -> None:
        """A sequence begins to compute blocks; one that another computes stays the other's."""
        mine = [h for h in hashes if self._leader_by_hash.setdefault(h, leader) == leader]
        if mine:
            self._hashes_by_leader[leader] = mine

    def settle(self, leader: str, block_hash: BlockHash) -> None:
        """A block is computed, and in the prefix index from now on."""
        if self._leader_by_hash.get(block_hash) == leader:
            del self._leader_by_hash[block_hash]

    def withdraw(self, leader: str) -> None:
        """The sequence stops; what it has not computed is nobody's."""
        for block_hash in self._hashes_by_leader.pop(leader, ()):
            self.settle(leader, block_hash)

    def count(self, hashes: Sequence[BlockHash]) -> int:
        """How many of the hashes, from the first on without a gap, are being computed."""
        for i, block_hash in enumerate(hashes):
            if block_hash not in self._leader_by_hash:
                return i
        return len(hashes)
