"""The best source of computed tokens, and the reason for a miss."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from model.claim import ClaimSource, best_source, common_prefix_length, explain_miss
from model.config import SamplingParams
from model.messages import GenerationRequest, MissReason

tokens = st.lists(st.integers(0, 1), max_size=40)


@given(tokens, tokens)
@settings(max_examples=200, derandomize=True, deadline=None)
def test_the_common_prefix_is_what_a_plain_loop_finds(left, right):
    expected = 0
    while expected < min(len(left), len(right)) and left[expected] == right[expected]:
        expected += 1

    assert common_prefix_length(left, right) == expected
    assert common_prefix_length([*left, *right], [*left, *right]) == len(left) + len(right)


def table(token_ids, num_tokens=None, **fields):
    num_tokens = len(token_ids) if num_tokens is None else num_tokens
    return ClaimSource(token_ids, num_tokens, range(50, 60), **fields)


def test_nothing_is_found_where_nothing_is():
    source = best_source([1, 2, 3], [], [], 4)

    assert (source.num_tokens, source.turn_id, source.is_whole) == (0, None, False)


def test_the_last_token_is_always_left_to_compute():
    prompt = list(range(8))

    assert best_source(prompt, [table(prompt)], [], 4).num_tokens == 7
    assert best_source(prompt, [], [3, 4], 4).num_tokens == 7


def test_a_table_counts_only_as_far_as_it_is_computed():
    assert best_source(list(range(9)), [table(list(range(9)), 5)], [], 4).num_tokens == 5


def test_the_longest_run_wins_and_a_table_wins_a_tie_against_the_chain():
    prompt = list(range(10))
    one, other = table(prompt[:4], turn_id="one"), table(prompt[:6], turn_id="other")

    assert best_source(prompt, [one, other], [1], 4).turn_id == "other"
    assert best_source(prompt, [one], [1], 4).turn_id == "one"
    assert best_source(prompt, [one], [1, 2], 4).block_ids == [1, 2]


def test_among_equal_tables_the_first_wins():
    prompt = list(range(10))
    one, other = table(prompt[:6], turn_id="one"), table(prompt[:6], turn_id="other")

    assert best_source(prompt, [one, other], [], 4).turn_id == "one"
    # Also where the chain is as long as either.
    one, other = table(prompt[:4], turn_id="one"), table(prompt[:4], turn_id="other")
    assert best_source(prompt, [one, other], [1], 4).turn_id == "one"


def test_a_table_without_a_common_token_is_no_source():
    assert best_source([1, 2, 3], [table([2, 2, 3], turn_id="one")], [], 4).turn_id is None


@pytest.mark.parametrize(
    ("is_own", "token_ids", "is_whole"),
    [(True, [1, 2, 3], True), (False, [1, 2, 3], False), (True, [1, 2, 9], False)],
)
def test_a_table_is_whole_when_it_is_ones_own_and_nothing_of_it_is_lost(
    is_own, token_ids, is_whole
):
    source = best_source([1, 2, 3, 4, 5], [table(token_ids, is_own=is_own)], [], 4)

    assert source.is_whole is is_whole


def explain(num_reused, *, known=10, fingerprint="f", diverged_at=None, num_tokens=20):
    request = GenerationRequest(
        request_id="r",
        token_ids=tuple(range(num_tokens)),
        params=SamplingParams(),
        num_known_tokens=known,
        parent_fingerprint=fingerprint,
        diverged_at=diverged_at,
    )
    return explain_miss(request, num_reused, "f")


def test_what_has_no_past_is_new():
    assert explain(0, known=0) == (MissReason.NEW, None)


def test_one_less_than_known_is_everything_there_could_be():
    assert explain(10) == (None, None)
    assert explain(9) == (None, None)
    assert explain(8) == (MissReason.EVICTED, None)


def test_another_model_explains_everything():
    assert explain(0, fingerprint="g") == (MissReason.FINGERPRINT_CHANGED, None)
    assert explain(9, fingerprint=None) == (None, None)


def test_a_prompt_that_leaves_its_history_says_where():
    assert explain(6, diverged_at=6) == (MissReason.DIVERGED, 6)
    assert explain(5, diverged_at=6) == (MissReason.DIVERGED, 6)
    # Less than up to there was lost for another reason, and where it diverged is told all the same.
    assert explain(4, diverged_at=6) == (MissReason.EVICTED, 6)


def test_a_prompt_that_is_cut_back_into_what_is_known_can_reuse_no_more_than_itself():
    assert explain(5, num_tokens=6) == (None, None)
    assert explain(4, num_tokens=6) == (MissReason.EVICTED, None)
