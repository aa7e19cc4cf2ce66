"""Rows laid end to end: where each token is written, and which logits are wanted."""

import torch

from model.batch import Batch, BatchRow

CPU = torch.device("cpu")


def test_sequences_are_laid_end_to_end_without_padding():
    batch = Batch.build(
        [
            BatchRow([11, 12, 13], 6, [9, 4, 7], has_logits=True),
            BatchRow([21], 0, [2], has_logits=False),
            BatchRow([31, 32], 3, [5, 0, 8], has_logits=True),
        ],
        4,
        CPU,
    )

    assert batch.token_ids.tolist() == [11, 12, 13, 21, 31, 32]
    assert batch.positions.tolist() == [6, 7, 8, 0, 3, 4]
    assert [p.tolist() for p in batch.places] == [[4, 4, 7, 2, 5, 0], [2, 3, 0, 0, 3, 0]]
    assert batch.spans == ((0, 3), (3, 4), (4, 6))
    assert batch.ends == (9, 1, 5)
    assert batch.logits_rows.tolist() == [2, 5]


def test_a_table_has_just_the_blocks_that_are_covered_after_the_step():
    batch = Batch.build(
        [BatchRow([1], 3, [9, 4, 7], True), BatchRow([1, 2], 3, [9, 4, 7], True)], 4, CPU
    )

    assert [table.tolist() for table in batch.tables] == [[9], [9, 4]]


def test_a_step_that_samples_nothing_wants_no_logits():
    batch = Batch.build([BatchRow([1, 2], 0, [0], False)], 4, CPU)

    assert batch.logits_rows.tolist() == []
    assert batch.logits_rows.dtype == torch.long
