"""The cache manager when blocks run out, and when what it keeps is to go."""

import pytest

from model.errors import OutOfBlocksError
from model.messages import MissReason
from tests.support.block_books import Books

PROMPT = list(range(10))


def test_the_table_parked_longest_yields_first_and_its_tail_before_its_head():
    books = Books(6)
    books.turn("old", PROMPT, conversation="old")
    books.turn("new", range(20, 30), conversation="new")
    assert (books.parked("old"), books.parked("new")) == ({"old": [0, 1, 2]}, {"new": [3, 4, 5]})
    sequence = books.claim("a", range(40, 60))

    books.compute(sequence, 5)
    assert sequence.table.block_ids == [2, 1]
    assert books.parked("old") == {"old": [0]}

    books.compute(sequence, 7)
    assert sequence.table.block_ids == [2, 1, 0]
    assert books.parked("old") == {}

    books.compute(sequence, 4)
    assert sequence.table.block_ids == [2, 1, 0, 5]
    assert books.parked("new") == {"new": [3, 4]}


def test_a_table_that_was_cut_short_can_still_be_taken_up():
    books = Books(4)
    books.turn("one", PROMPT)
    other = books.claim("other", range(50, 57), conversation=None)
    books.compute(other)
    assert books.parked() == {"one": [0, 1]}
    books.cache.release(other)

    two = books.claim("two", [*PROMPT, 99, 1], parent_turn_id="one", num_known_tokens=11)

    assert two.table.block_ids == [0, 1]
    assert two.num_computed_tokens == 8
    assert two.claim.reason is MissReason.EVICTED


def test_a_block_that_was_reused_is_not_found_any_more():
    books = Books(3)
    books.turn("one", PROMPT)
    books.turn("other", range(50, 62), conversation=None)

    assert books.cache.supply.num_evicted_blocks == 2
    again = books.claim("again", [*PROMPT, 99], num_known_tokens=11)
    assert (again.num_computed_tokens, again.claim.reason) == (0, MissReason.EVICTED)


def test_blocks_that_nothing_can_find_are_reused_before_cached_ones():
    books = Books(8)
    books.turn("one", PROMPT, conversation=None)

    sequence = books.claim("a", range(50, 53))
    books.compute(sequence)

    assert sequence.table.block_ids == [2]


def test_a_claim_that_can_not_have_its_whole_prompt_changes_nothing():
    books = Books(4)
    books.turn("one", PROMPT)
    running = books.claim("running", range(50, 54), conversation=None)
    books.compute(running)
    free, parked = books.free(), books.parked()

    with pytest.raises(OutOfBlocksError) as caught:
        books.cache.claim(books.sequence("large", range(60, 74)))

    assert (caught.value.wanted, caught.value.available) == (4, 3)
    assert (books.free(), books.parked()) == (free, parked)
    books.cache.check()


def test_what_a_claim_shares_is_not_reclaimed_for_it():
    books = Books(5)
    books.turn("one", PROMPT)

    # Two blocks are free and four wanted, two of which lie in `one`: its last makes room.
    two = books.claim("two", [*PROMPT[:8], *range(50, 58)])
    books.compute(two)

    assert two.table.block_ids == [0, 1, 3, 4]
    assert books.parked() == {"one": [0, 1, 2]}


def test_the_block_that_is_copied_stays_until_it_is_copied():
    books = Books(4)
    books.turn("one", PROMPT)
    books.turn("other", [70, 71], conversation="other")

    fork = books.claim("fork", [*PROMPT[:9], 80], conversation="fork", parent_turn_id="one")

    # No block was free: `one` yielded its last, which is the source itself, so `other` had to.
    assert books.copies() == [(2, 3)]
    assert fork.table.block_ids == [0, 1, 3]
    assert books.parked("other") == {}


def test_a_lone_sequence_can_fill_everything_but_one_block():
    books = Books(4)
    books.turn("one", range(11))
    sequence = books.claim("two", [*range(11), 99], parent_turn_id="one")

    books.compute(sequence)

    assert sequence.table.block_ids == [0, 1, 2]


def test_a_fork_in_a_full_cache_may_use_up_its_origin():
    books = Books(4)
    books.turn("one", range(11))

    fork = books.claim("fork", [*range(10), 99, 98], conversation="b", parent_turn_id="one")

    assert books.copies() == [(2, 3)]
    books.compute(fork)
    assert fork.table.block_ids == [0, 1, 3]


def test_shared_blocks_are_counted_once_when_room_is_looked_for():
    books = Books(6)
    books.turn("one", PROMPT)
    books.turn("two", [*PROMPT[:8], 70], conversation="b", parent_turn_id="one")
    assert books.cache.count_blocks() == (0, 4, 0, 2)

    with pytest.raises(OutOfBlocksError) as caught:
        books.cache.claim(books.sequence("large", range(100, 125)))
    assert (caught.value.wanted, caught.value.available) == (7, 6)

    sequence = books.claim("fits", range(100, 124))
    books.compute(sequence)
    assert sorted(sequence.table.block_ids) == list(range(6))
    assert books.cache.num_parked_tables == 0


def test_what_a_running_sequence_shares_is_no_room():
    books = Books(6)
    books.turn("one", PROMPT)
    running = books.claim("running", [*PROMPT[:8], 70], conversation="b", parent_turn_id="one")
    books.compute(running)

    with pytest.raises(OutOfBlocksError) as caught:
        books.cache.claim(books.sequence("large", range(100, 116)))

    assert (caught.value.wanted, caught.value.available) == (4, 3)


def test_looking_for_room_reads_no_more_tables_than_it_needs():
    class Watched(list):
        num_read = 0

        def __iter__(self):
            Watched.num_read += 1
            return super().__iter__()

        def __reversed__(self):
            Watched.num_read += 1
            return super().__reversed__()

    books = Books(40)
    for i in range(10):
        books.turn(f"t{i}", range(100 * i, 100 * i + 16), conversation=f"c{i}")
    for parked in books.cache._parked:
        parked.table.block_ids = Watched(parked.table.block_ids)
    sequence = books.sequence("a", [1])

    books.cache.claim(sequence)
    Watched.num_read = 0
    books.cache.grow(sequence, 1)

    assert 0 < Watched.num_read <= 2


# Letting go


def test_a_released_conversation_is_forgotten_and_others_are_kept():
    books = Books()
    books.turn("one", PROMPT)
    books.turn("other", range(50, 60), conversation="other")

    assert books.cache.release_conversation("conv") == 3

    assert books.parked() == {}
    assert books.claim("again", [*PROMPT, 99]).num_computed_tokens == 0
    assert books.claim("next", [*range(50, 60), 99], conversation="other").num_computed_tokens == 10
    assert books.cache.release_conversation("conv") == 0


def test_a_block_that_another_conversation_shares_outlives_the_released_one():
    books = Books()
    books.turn("one", PROMPT)
    books.turn("fork", [*PROMPT[:8], 70], conversation="fork", parent_turn_id="one")

    assert books.cache.release_conversation("conv") == 1

    assert books.parked("fork") == {"fork": [0, 1, 3]}
    assert books.claim("again", [*PROMPT, 99]).table.block_ids == [0, 1]


def test_blocks_that_two_tables_of_the_released_conversation_share_are_freed():
    books = Books()
    books.turn("one", PROMPT)
    books.turn("sibling", [*PROMPT[:8], 70])

    assert books.cache.release_conversation("conv") == 4

    assert books.cache.count_blocks() == (0, 0, 0, 16)


def test_evicting_everything_leaves_what_runs():
    books = Books()
    books.turn("one", PROMPT)
    books.turn("gone", range(50, 58), conversation=None)
    running = books.claim("running", [*PROMPT[:8], 70], conversation="b", parent_turn_id="one")
    books.compute(running)

    # The third block of `one`, and two that were only cached.
    assert books.cache.evict_all() == 3

    assert books.cache.count_blocks() == (3, 0, 0, 13)
    books.cache.check()
    books.park(running)
    assert books.claim("again", [*PROMPT, 99]).table.block_ids == [0, 1]


def test_whoever_comes_to_be_worth_less_meanwhile_is_given_up_next():
    books = Books(12)
    books.turn("kept", PROMPT, conversation="kept")
    books.turn("older", range(40, 50), conversation="older")
    books.cache.supply.reclaim(7)  # takes the last block of `kept`, which was parked first
    assert len(books.parked("kept")["kept"]) == 2

    books.turn("more", range(60, 66), conversation="more", priority=-1)
    books.cache.supply.reclaim(books.cache.pool.num_free + 1)

    assert len(books.parked("kept")["kept"]) == 2
    assert len(books.parked("more")["more"]) == 1


def test_a_preempted_sequence_comes_back_for_itself():
    books = Books(8)
    books.turn("one", PROMPT)
    sequence = books.claim("two", [*PROMPT, 99, 5], parent_turn_id="one")
    for _ in range(3):
        books.compute(sequence)
        books.cache.release(sequence)
        sequence.num_preemptions += 1
        books.cache.claim(sequence)
    books.compute(sequence)
    books.park(sequence)

    # It was come back to once.
    assert books.cache._parked.get("two").num_uses == 1


def test_a_conversation_released_in_the_middle_of_a_turn_was_used_no_less_than_never():
    books = Books(8)
    sequence = books.claim("one", PROMPT)
    books.compute(sequence)
    books.cache.release_conversation("conv")
    books.park(sequence)

    assert books.cache._parked.get("one").num_uses == 0
