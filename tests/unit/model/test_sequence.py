"""A sequence's counters as it grows and as a stop string cuts it back."""

import pytest

from model.block_table import BlockTable
from model.config import SamplingParams
from model.messages import GenerationRequest
from model.prefix_index import BlockHasher
from model.sequence import Sequence, SequenceStatus


def make_sequence(prompt, reply=()) -> Sequence:
    request = GenerationRequest(request_id="r", token_ids=tuple(prompt), params=SamplingParams())
    sequence = Sequence(request=request, table=BlockTable(4), arrived_s=0.0, seed=1, max_tokens=100)
    sequence.token_ids.extend(reply)
    return sequence


def test_a_new_sequence_waits_with_its_whole_prompt_committed_and_nothing_computed():
    sequence = make_sequence([1, 2, 3])

    assert sequence.status is SequenceStatus.WAITING
    assert (sequence.num_tokens, sequence.num_uncomputed_tokens) == (3, 3)
    assert sequence.num_prompt_tokens == sequence.num_committed_tokens == 3
    assert sequence.reply_ids == ()


def test_the_request_is_not_changed_by_the_reply():
    sequence = make_sequence([1, 2, 3], reply=[4])

    assert sequence.reply_ids == (4,)
    assert sequence.request.token_ids == (1, 2, 3)


def test_two_sequences_are_never_the_same():
    assert make_sequence([1]) != make_sequence([1])


@pytest.mark.parametrize(
    ("num_kept", "tail", "token_ids", "num_computed"),
    [
        (3, [], [1, 2, 3, 4, 5, 6], 5),  # the last token's keys and values count as not computed
        (2, [9], [1, 2, 3, 4, 5, 9], 5),
        (2, [8, 9], [1, 2, 3, 4, 5, 8, 9], 5),
        (0, [9], [1, 2, 3, 9], 3),
        (0, [], [1, 2, 3], 2),
    ],
)
def test_what_a_stop_string_cuts_off_counts_as_not_computed(
    num_kept, tail, token_ids, num_computed
):
    sequence = make_sequence([1, 2, 3], reply=[4, 5, 6, 7])
    sequence.num_computed_tokens = 6

    sequence.replace_reply(num_kept, tail)

    assert list(sequence.token_ids) == token_ids
    assert sequence.num_computed_tokens == num_computed
    assert sequence.num_committed_tokens == sequence.num_tokens


def test_tokens_that_were_never_computed_stay_so():
    sequence = make_sequence([1, 2, 3], reply=[4, 5])
    sequence.num_computed_tokens = 1

    sequence.replace_reply(1, [9])

    assert sequence.num_computed_tokens == 1


def test_a_hash_over_a_replaced_token_is_dropped():
    sequence = make_sequence(range(6), reply=range(6, 13))
    hasher = BlockHasher("f", "float32", 4)
    hasher.extend(sequence.block_hashes, sequence.token_ids, "")
    before = list(sequence.block_hashes)
    sequence.num_named_blocks = 2

    sequence.replace_reply(1, [99])  # seven tokens are kept: one block

    assert sequence.block_hashes == before[:1]
    assert sequence.num_named_blocks == 1
