"""The table that shares the most."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from model.claim import ClaimSource, best_table, common_prefix_length

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
    assert best_table([1, 2, 3], []) is None


def test_the_last_token_is_always_left_to_compute():
    prompt = list(range(8))

    assert best_table(prompt, [table(prompt)]).num_tokens == 7


def test_a_table_counts_only_as_far_as_it_is_computed():
    assert best_table(list(range(9)), [table(list(range(9)), 5)]).num_tokens == 5


def test_the_longest_run_wins_and_among_equals_the_first():
    prompt = list(range(10))
    one, other = table(prompt[:4], turn_id="one"), table(prompt[:6], turn_id="other")
    twin = table(prompt[:6], turn_id="twin")

    assert best_table(prompt, [one, other]).turn_id == "other"
    assert best_table(prompt, [other, twin]).turn_id == "other"


def test_a_table_without_a_common_token_is_no_source():
    assert best_table([1, 2, 3], [table([2, 2, 3], turn_id="one")]) is None


@pytest.mark.parametrize(
    ("is_own", "token_ids", "is_whole"),
    [(True, [1, 2, 3], True), (False, [1, 2, 3], False), (True, [1, 2, 9], False)],
)
def test_a_table_is_whole_when_it_is_ones_own_and_nothing_of_it_is_lost(
    is_own, token_ids, is_whole
):
    source = best_table([1, 2, 3, 4, 5], [table(token_ids, is_own=is_own)])

    assert source.is_whole is is_whole
