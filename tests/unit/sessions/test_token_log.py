"""The token log: spans, whole logs, and what of them stays in memory."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessions.token_log import (
    RecentLogs,
    TokenSpan,
    TurnLog,
    common_prefix,
    common_spelling,
    pack_ids,
    unpack_ids,
    unroll,
)
from sessions.types import TurnId

ids = st.lists(st.integers(0, 2**31 - 1), max_size=30).map(tuple)


def make_span(name: str, own: tuple[int, ...], *, base=None, keep=0, num_prompt=None) -> TokenSpan:
    return TokenSpan(
        turn_id=TurnId(name),
        base_id=base,
        keep_tokens=keep,
        num_prompt_tokens=keep + len(own) if num_prompt is None else num_prompt,
        ids=own,
        fingerprint="f",
    )


@given(ids)
def test_ids_survive_being_stored(token_ids):
    assert unpack_ids(pack_ids(token_ids)) == token_ids
    assert len(pack_ids(token_ids)) == 4 * len(token_ids)


def test_ids_are_stored_as_little_endian_int32():
    assert pack_ids((1, 258)) == b"\x01\0\0\0\x02\x01\0\0"


@given(ids, ids)
def test_the_common_prefix_is_as_long_as_can_be(first, second):
    size = common_prefix(first, second)

    assert first[:size] == second[:size]
    assert first[size : size + 1] != second[size : size + 1] or size == len(first) == len(second)


def test_a_log_is_its_bases_log_up_to_where_it_leaves_it():
    spans = [make_span("a", (1, 2, 3)), make_span("b", (9,), base=TurnId("a"), keep=2)]

    assert unroll(spans) == (1, 2, 9)


def test_a_span_that_keeps_more_than_there_is_is_our_bug():
    with pytest.raises(AssertionError, match="keeps more"):
        unroll([make_span("a", (1,)), make_span("b", (2,), base=TurnId("a"), keep=2)])


def test_a_span_tells_what_was_fed_from_what_was_sampled():
    span = make_span("b", (7, 8, 9), base=TurnId("a"), keep=2, num_prompt=4)

    assert (span.prompt_ids, span.reply_ids) == ((7, 8), (9,))


def test_the_logs_used_last_are_kept_within_their_bound():
    recent = RecentLogs(max_tokens=5)
    a, b, c = (TurnLog(span=make_span(n, (1, 2)), token_ids=(1, 2)) for n in "abc")

    recent.put(a)
    recent.put(b)
    assert recent.get(TurnId("a")) is a
    recent.put(c)

    assert recent.get(TurnId("b")) is None
    assert recent.get(TurnId("a")) is a
    assert recent.get(TurnId("c")) is c


def test_a_log_beyond_the_bound_is_not_kept_at_all():
    recent = RecentLogs(max_tokens=1)

    recent.put(TurnLog(span=make_span("a", (1, 2)), token_ids=(1, 2)))

    assert recent.get(TurnId("a")) is None


pieces = st.lists(st.text("ab", min_size=1, max_size=4), max_size=8)


@given(pieces, pieces)
def test_what_two_splits_spell_alike_is_as_long_as_can_be(first, second):
    ends = {len("".join(second[:j])): j for j in range(len(second) + 1)}
    met = [
        (i, ends[len(text)])
        for i in range(len(first) + 1)
        if len(text := "".join(first[:i])) in ends and text == "".join(second[: ends[len(text)]])
    ]

    assert common_spelling(first, second) == max(met)


@given(st.text("ab", max_size=20), st.lists(st.integers(0, 20)), st.lists(st.integers(0, 20)))
def test_two_splits_of_one_text_spell_all_of_it(text, cuts, others):
    def split(places: list[int]) -> list[str]:
        edges = sorted({0, len(text), *(p for p in places if p < len(text))})
        return [text[a:b] for a, b in pairwise(edges)]

    first, second = split(cuts), split(others)

    assert common_spelling(first, second) == (len(first), len(second))


def test_sequences_of_different_kinds_share_what_is_equal_in_them():
    assert common_prefix((1, 2, 3), [1, 2, 4]) == 2
    assert common_prefix((1, 2), [1, 2, 4]) == 2
    assert common_prefix((), [1]) == 0
