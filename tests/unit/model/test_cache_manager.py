"""Where each block is: claims from every source, copies, growing, committing, parking, views."""

import pytest

from model.errors import OutOfBlocksError
from model.messages import MissReason, TierName
from model.prefix_index import BlockHash, BlockHasher
from tests.support.block_books import Books

PROMPT = list(range(10))  # two full blocks of four and half a one


def test_a_new_prompt_claims_nothing_and_gets_its_blocks_as_it_grows():
    books = Books()
    sequence = books.claim("a", PROMPT)
    assert sequence.table.block_ids == []
    assert (sequence.claim.computed, sequence.claim.num_reused) == (10, 0)
    assert sequence.claim.reason is MissReason.NEW

    books.compute(sequence, 3)
    assert sequence.table.block_ids == [0]
    books.compute(sequence, 1)
    assert sequence.table.block_ids == [0]
    books.compute(sequence, 6)
    assert sequence.table.block_ids == [0, 1, 2]
    assert books.copies() == []


def test_the_next_turn_takes_its_parent_s_table_up_as_it_is():
    books = Books()
    books.turn("one", PROMPT)

    two = books.claim("two", [*PROMPT, 99, 1, 2], parent_turn_id="one", num_known_tokens=11)

    assert two.table.block_ids == [0, 1, 2]
    assert (two.num_computed_tokens, two.claim.from_device, two.claim.computed) == (10, 10, 3)
    assert two.claim.reason is None
    assert books.parked() == {}
    books.compute(two)
    assert two.table.block_ids == [0, 1, 2, 3]
    assert books.copies() == []


def test_a_sibling_shares_full_blocks_and_copies_the_partial_one():
    books = Books()
    books.turn("one", PROMPT)
    two = books.claim("two", [*PROMPT, 99, 1], parent_turn_id="one")
    books.compute(two)

    sibling = books.claim("sibling", [*PROMPT, 99, 2], parent_turn_id="one")

    # `two` runs and has eleven of its tokens: the last common block is copied, into block 3.
    assert sibling.table.block_ids == [0, 1, 3]
    assert sibling.num_computed_tokens == 11
    assert books.copies() == [(2, 3)]
    assert books.copies() == []
    assert [books.cache.pool.ref_count(b) for b in (0, 1, 2, 3)] == [2, 2, 1, 1]


def test_a_regenerated_reply_shares_what_lies_before_it():
    books = Books()
    one = books.claim("one", PROMPT)
    books.compute(one)
    books.append(one, 50, 51, 52)
    books.park(one)

    again = books.claim("again", PROMPT, num_known_tokens=10)

    # The prompt's last token is computed again, in a copy: its block holds `one`'s reply too.
    assert (again.num_computed_tokens, again.claim.reason) == (9, None)
    assert again.table.block_ids == [0, 1, 4]
    assert books.copies() == [(2, 4)]
    assert books.parked() == {"one": [0, 1, 2, 3]}


def test_a_turn_cut_back_to_a_block_s_end_copies_nothing():
    books = Books()
    books.turn("one", PROMPT)

    edited = books.claim("edited", [*PROMPT[:8], 70, 71, 72], parent_turn_id="one", diverged_at=8)

    assert edited.table.block_ids == [0, 1]
    assert books.copies() == []
    books.compute(edited)
    assert edited.table.block_ids == [0, 1, 3]


def test_a_prompt_that_ends_in_a_named_block_writes_its_last_token_into_a_copy():
    books = Books()
    books.turn("one", range(8))

    again = books.claim("again", range(8))
    assert again.num_computed_tokens == 7
    books.compute(again)

    assert again.table.block_ids == [0, 2]
    assert books.copies() == [(1, 2)]
    assert books.cache.index.hash_of(1) is not None
    assert books.cache.index.hash_of(2) is None


def test_a_fork_shares_its_origin_s_table_and_leaves_it_there():
    books = Books()
    books.turn("one", PROMPT)

    fork = books.claim(
        "fork", [*PROMPT, 99, 5], conversation="other", parent_turn_id="one", num_known_tokens=11
    )

    assert fork.table.block_ids == [0, 1, 3]
    assert fork.num_computed_tokens == 10
    assert books.parked() == {"one": [0, 1, 2]}
    assert books.copies() == [(2, 3)]


def test_a_fork_whose_parent_table_was_taken_up_finds_it_in_its_origin():
    books = Books()
    books.turn("one", PROMPT)
    books.turn("two", [*PROMPT, 99, 1, 2, 3], parent_turn_id="one")

    fork = books.claim(
        "fork",
        [*PROMPT, 99, 7],
        conversation="other",
        parent_turn_id="one",
        origin_conversation_id="conv",
    )

    assert fork.num_computed_tokens == 11
    assert fork.table.block_ids[:2] == [0, 1]
    assert books.copies() == [(2, 4)]


def test_a_stranger_s_tables_are_not_looked_at():
    books = Books()
    books.turn("one", PROMPT, owner="ann")

    for fields in (
        {"conversation": "other", "owner": "bob"},
        {"conversation": None, "owner": "bob"},
    ):
        stranger = books.claim(f"{fields}", [*PROMPT, 99], **fields)
        assert stranger.num_computed_tokens == 0
        books.cache.release(stranger)  # or the next would wait for what it computes


def test_without_a_conversation_the_chain_of_full_blocks_is_found():
    books = Books()
    books.turn("one", PROMPT)

    other = books.claim("other", [*PROMPT, 99], conversation=None)

    assert other.table.block_ids == [0, 1]
    assert other.num_computed_tokens == 8
    assert books.copies() == []


def test_a_table_that_is_longer_than_the_chain_is_shared_to_the_token():
    books = Books()
    books.turn("one", PROMPT)

    assert books.claim("sibling", [*PROMPT[:9], 70]).num_computed_tokens == 9


def test_a_chain_that_is_longer_than_the_parent_s_table_is_taken():
    books = Books()
    books.turn("one", PROMPT)
    books.turn("elsewhere", [*PROMPT, 99, 1, 2], conversation="other")
    # The other conversation claimed two blocks by their names and computed the third itself.
    assert books.parked("other") == {"elsewhere": [0, 1, 3, 4]}

    two = books.claim("two", [*PROMPT, 99, 1, 2, 3], parent_turn_id="one")

    assert two.table.block_ids == [0, 1, 3]
    assert two.num_computed_tokens == 12
    assert books.parked() == {"one": [0, 1, 2]}


def test_free_blocks_that_are_still_named_are_taken_out_of_the_queue():
    books = Books(4)
    books.turn("one", PROMPT, conversation=None)
    assert books.free() == [2, 3, 1, 0]

    other = books.claim("other", [*PROMPT, 99], conversation=None)

    assert other.table.block_ids == [0, 1]
    assert sorted(books.free()) == [2, 3]


def test_what_was_preempted_finds_its_own_named_blocks_again():
    books = Books()
    sequence = books.claim("a", PROMPT)
    books.compute(sequence)
    books.cache.release(sequence)
    assert (sequence.table.block_ids, sequence.num_computed_tokens) == ([], 0)

    books.cache.claim(sequence)

    assert sequence.table.block_ids == [0, 1]
    assert sequence.num_computed_tokens == 8
    books.compute(sequence)
    assert sequence.num_named_blocks == 2


# What has a name


def test_only_full_computed_and_committed_blocks_are_named():
    books = Books()
    sequence = books.claim("a", [1, 2, 3])
    books.compute(sequence)
    books.append(sequence, 4, committed=False)
    books.append(sequence, 5, committed=False)
    assert len(books.cache.index) == 0

    sequence.num_committed_tokens = 4
    books.cache.commit(sequence)

    assert [books.cache.index.hash_of(b) is not None for b in sequence.table.block_ids] == [
        True,
        False,
    ]


def test_a_shared_block_is_copied_before_its_first_writer_writes_it_again():
    books = Books()
    one = books.claim("one", PROMPT)
    books.compute(one)
    books.append(one, 20, 21, committed=False)
    sibling = books.claim("sibling", [*PROMPT, 20, 21, 22])
    assert sibling.table.block_ids == [0, 1, 2]
    one.replace_reply(1, [])  # a stop string cuts the other off: token 20 is computed once more
    one.token_ids.append(70)
    books.cache.check()

    books.compute(one)

    assert one.table.block_ids == [0, 1, 3]
    assert sibling.table.block_ids == [0, 1, 2]
    assert books.copies() == [(2, 3)]


def test_copies_are_handed_over_once_and_in_order():
    books = Books()
    books.turn("one", PROMPT)
    books.claim("a", [*PROMPT[:9], 70])
    books.claim("b", [*PROMPT[:6], 70])

    assert books.copies() == [(2, 3), (1, 4)]
    assert books.copies() == []


# Parking


def test_parking_gives_back_what_lies_behind_the_computed_tokens():
    books = Books(4)
    sequence = books.claim("a", PROMPT)
    books.cache.grow(sequence, 10)
    sequence.num_computed_tokens = 3
    books.park(sequence)

    assert books.parked() == {"a": [0]}
    assert books.free() == [1, 2, 3]
    assert sequence.table.block_ids == []


def test_what_has_no_conversation_or_nothing_computed_is_not_kept():
    books = Books()
    books.turn("a", PROMPT, conversation=None)
    books.park(books.claim("b", [50, 51]))

    assert books.cache.num_parked_tables == 0
    assert books.cache.count_blocks() == (0, 0, 2, 14)


def test_a_turn_that_is_generated_again_under_its_own_id_loses_no_block():
    books = Books(8)
    books.turn("one", PROMPT)

    books.turn("one", [*PROMPT[:5], 70, 71])

    assert books.parked() == {"one": [0, 3]}
    assert books.cache.count_blocks() == (0, 2, 1, 5)


# Views


def test_a_view_shows_each_block_of_parked_and_running_tables():
    books = Books()
    books.turn("one", PROMPT)
    running = books.claim("two", [*PROMPT[:9], 70, 71])

    one, two = books.cache.view("conv", now_s=5.0, block_bytes=100)

    assert (one.turn_id, one.is_running, one.idle_s, one.num_bytes) == ("one", False, 5.0, 300)
    assert (one.num_tokens, one.num_computed_tokens) == (11, 10)
    assert [(b.block_id, b.num_tokens, b.num_holders) for b in one.blocks] == [
        (0, 4, 2),
        (1, 4, 2),
        (2, 2, 1),
    ]
    assert [b.block_hash is not None for b in one.blocks] == [True, True, False]
    assert {b.tier for b in one.blocks} == {TierName.DEVICE}
    assert (two.turn_id, two.is_running, two.idle_s) == ("two", True, 0.0)
    assert (two.num_tokens, two.num_computed_tokens) == (11, 9)
    assert [b.block_id for b in two.blocks] == running.table.block_ids
    assert books.cache.view("nobody", 0.0, 1) == ()


def test_every_block_is_counted_once():
    books = Books(12)
    books.turn("one", PROMPT)
    books.claim("two", [*PROMPT[:9], 70, 71])
    books.turn("three", range(50, 55), conversation=None)

    running, parked, cached, empty = books.cache.count_blocks()

    assert (running, parked, cached, empty) == (3, 1, 1, 7)


@pytest.mark.parametrize(
    ("known", "fields", "reason"),
    [
        (0, {}, MissReason.NEW),
        (11, {}, MissReason.EVICTED),
        (11, {"diverged_at": 1}, MissReason.DIVERGED),
        (11, {"parent_fingerprint": "g"}, MissReason.FINGERPRINT_CHANGED),
    ],
)
def test_a_claim_that_finds_nothing_says_why(known, fields, reason):
    claim = Books().claim("a", [*PROMPT, 99], num_known_tokens=known, **fields).claim

    assert (claim.num_reused, claim.computed, claim.reason) == (0, 11, reason)
    assert claim.diverged_at == fields.get("diverged_at")


def test_the_books_notice_a_lost_block():
    books = Books()
    sequence = books.claim("a", PROMPT)
    books.compute(sequence)
    sequence.table.block_ids.pop()

    with pytest.raises(AssertionError, match="block 2: ref_count 1, 0 holders"):
        books.cache.check()


def test_a_sequence_that_can_not_grow_stays_as_it_is():
    books = Books(2)
    sequence = books.claim("a", range(5))
    books.compute(sequence, 4)
    other = books.claim("b", [70], conversation=None)
    books.compute(other)

    with pytest.raises(OutOfBlocksError):
        books.cache.grow(sequence, 1)

    assert sequence.table.block_ids == [0]
    books.cache.check()


def test_hashes_are_borrowed_only_from_where_the_salt_enters_at_the_same_place():
    """Else what lies behind a public beginning would have names that other owners can find."""
    books = Books()
    books.turn("one", range(16), owner="ann", num_public_tokens=8)
    private = [*range(6), *range(50, 62)]

    two = books.claim("two", private, owner="ann", parent_turn_id="one")
    books.compute(two)

    expected: list[BlockHash] = []
    BlockHasher("f", "float32", 4).extend(expected, private, "ann")
    assert two.num_named_blocks == 4
    assert two.block_hashes == expected
