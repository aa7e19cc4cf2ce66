"""Who holds a block, and which one is reused next."""

import pytest

from model.block_pool import BlockPool
from model.errors import OutOfBlocksError


def free(pool: BlockPool) -> list[int]:
    return list(pool.free_block_ids())


def test_blocks_are_handed_out_in_the_order_in_which_they_became_free():
    pool = BlockPool(4)
    assert pool.allocate(4) == [0, 1, 2, 3]

    for block_id in (2, 0, 3):
        pool.release(block_id, reuse_first=False)

    assert pool.allocate(2) == [2, 0]
    assert free(pool) == [3]


def test_a_block_that_nobody_can_find_is_reused_before_all_others():
    pool = BlockPool(4)
    pool.allocate(3)

    pool.release(0, reuse_first=False)
    pool.release(1, reuse_first=True)

    assert free(pool) == [1, 3, 0]


def test_a_block_is_free_when_its_last_holder_has_gone():
    pool = BlockPool(2)
    pool.allocate(1)
    pool.hold([0])
    assert pool.ref_count(0) == 2

    pool.release(0, reuse_first=True)
    assert free(pool) == [1]
    pool.release(0, reuse_first=True)
    assert free(pool) == [0, 1]


def test_a_free_block_is_taken_up_again_out_of_the_middle_of_the_queue():
    pool = BlockPool(4)

    pool.hold([2])

    assert pool.ref_count(2) == 1
    assert free(pool) == [0, 1, 3]
    assert pool.num_free == 3


def test_all_blocks_that_are_wanted_or_none():
    pool = BlockPool(3)
    pool.allocate(1)

    with pytest.raises(OutOfBlocksError) as caught:
        pool.allocate(3)

    assert (caught.value.wanted, caught.value.available) == (3, 2)
    assert free(pool) == [1, 2]
    assert pool.allocate(0) == []


def test_a_block_that_nobody_holds_can_not_be_released():
    with pytest.raises(AssertionError, match="released but not held"):
        BlockPool(1).release(0, reuse_first=True)


def test_the_check_names_the_block_whose_holders_are_miscounted():
    pool = BlockPool(3)
    pool.allocate(2)
    pool.check({0: 1, 1: 1})

    with pytest.raises(AssertionError, match="block 1: ref_count 1, 0 holders"):
        pool.check({0: 1})
