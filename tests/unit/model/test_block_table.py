"""Positions to slots, and cutting back."""

import pytest

from model.block_table import BlockTable, num_blocks_for


@pytest.mark.parametrize(
    ("num_tokens", "num_blocks"), [(0, 0), (1, 1), (4, 1), (5, 2), (8, 2), (9, 3)]
)
def test_a_block_is_needed_for_each_begun_run_of_its_size(num_tokens, num_blocks):
    assert num_blocks_for(num_tokens, 4) == num_blocks


def test_a_position_is_found_in_its_block_at_its_offset():
    table = BlockTable(4, [7, 2])

    assert [table.slot(p) for p in range(8)] == [28, 29, 30, 31, 8, 9, 10, 11]
    assert table.num_slots == 8


def test_a_position_without_a_block_has_no_slot():
    with pytest.raises(IndexError):
        BlockTable(4, [7, 2]).slot(8)


@pytest.mark.parametrize(
    ("num_tokens", "kept", "removed"),
    [(12, [5, 6, 7], []), (9, [5, 6, 7], []), (8, [5, 6], [7]), (0, [], [7, 6, 5])],
)
def test_cutting_back_keeps_a_partial_block_and_gives_the_rest_tail_first(
    num_tokens, kept, removed
):
    table = BlockTable(4, [5, 6, 7])

    assert table.truncate(num_tokens) == removed
    assert table.block_ids == kept


def test_a_table_has_a_list_of_its_own():
    block_ids = [1, 2]
    table = BlockTable(4, block_ids)

    table.truncate(0)

    assert block_ids == [1, 2]
