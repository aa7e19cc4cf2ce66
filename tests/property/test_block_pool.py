"""Any order of allocating, holding and releasing: counts and queue equal a plain model of them."""

from collections import Counter

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from model.block_pool import BlockPool
from model.errors import OutOfBlocksError

NUM_BLOCKS = 6
block_ids = st.integers(0, NUM_BLOCKS - 1)


class BlockPoolMachine(RuleBasedStateMachine):
    def __init__(self):
        super().__init__()
        self.pool = BlockPool(NUM_BLOCKS)
        self.holders: Counter[int] = Counter()
        self.queue = list(range(NUM_BLOCKS))

    @rule(num=st.integers(0, NUM_BLOCKS))
    def allocate(self, num):
        if num > len(self.queue):
            with pytest.raises(OutOfBlocksError):
                self.pool.allocate(num)
            return
        expected, self.queue = self.queue[:num], self.queue[num:]
        assert self.pool.allocate(num) == expected
        self.holders.update(expected)

    @rule(block_id=block_ids)
    def hold(self, block_id):
        self.pool.hold([block_id])
        self.holders[block_id] += 1
        if block_id in self.queue:
            self.queue.remove(block_id)

    @precondition(lambda self: self.holders.total())
    @rule(data=st.data(), reuse_first=st.booleans())
    def release(self, data, reuse_first):
        block_id = data.draw(st.sampled_from(sorted(self.holders.elements())))
        self.pool.release(block_id, reuse_first=reuse_first)
        self.holders[block_id] -= 1
        if not self.holders[block_id]:
            self.queue.insert(0 if reuse_first else len(self.queue), block_id)

    @invariant()
    def equals_the_model(self):
        self.pool.check(self.holders)
        assert list(self.pool.free_block_ids()) == self.queue
        assert self.pool.num_free + len(+self.holders) == NUM_BLOCKS


TestBlockPool = BlockPoolMachine.TestCase
TestBlockPool.settings = settings(max_examples=60, derandomize=True, deadline=None)
