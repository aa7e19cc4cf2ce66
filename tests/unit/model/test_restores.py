"""What comes back from the tiers, and what doesn't."""

import pytest

from model.cache_manager import PrefixPendingError
from model.messages import MissReason, TierName
from tests.support.memory_storage import MemoryStorage
from tests.support.tiered_books import TieredBooks

PROMPT = list(range(1, 11))
"""Two full blocks and half of one."""
LOG = [*PROMPT, 99]


def later(books, name="two", token_ids=(*LOG, 50, 51), **fields):
    """The next turn's sequence."""
    fields = {"parent_turn_id": "one", "num_known_tokens": 11} | fields
    return books.sequence(name, token_ids, **fields)


def claimed(books, sequence):
    sequence.claim = books.cache.claim(sequence)
    books.cache.check()
    return sequence


def waits(books, sequence):
    with pytest.raises(PrefixPendingError):
        books.cache.claim(sequence)
    books.cache.check()
    return sequence


def after_lunch(**fields):
    books = TieredBooks(**fields)
    books.turn("one", PROMPT)
    books.lunch()
    return books


def come_back(books, sequence):
    """Wait for what is stored."""
    waits(books, sequence)
    books.tick()
    books.move()
    return claimed(books, sequence)


def test_a_conversation_comes_back_with_its_partial_tail_and_computes_only_its_turn():
    books = after_lunch()

    two = come_back(books, later(books))

    assert two.num_computed_tokens == 10
    assert books.read(two) == [1, 5, 9]
    assert (two.claim.from_disk, two.claim.from_device, two.claim.computed) == (10, 0, 3)
    assert two.claim.reason is None


def test_how_long_it_took_counts_from_the_first_claim_on():
    books = after_lunch()
    two = waits(books, later(books))
    began_s = books.cache.tiering.now_s
    books.tick()
    books.tick(0.25)

    books.move()

    assert claimed(books, two).claimed_s == began_s
    assert two.restore_s == 0.25


def test_it_comes_back_after_a_restart():
    books = after_lunch().restarted()

    two = come_back(books, later(books))

    assert (two.num_computed_tokens, books.read(two)) == (10, [1, 5, 9])


def test_the_tail_that_comes_back_can_be_written_at_once():
    books = after_lunch()
    two = come_back(books, later(books))

    block_ids = list(two.table.block_ids)
    books.compute(two)

    assert two.table.block_ids[:3] == block_ids


def test_what_the_device_still_has_is_not_moved():
    books = TieredBooks(6)
    books.turn("one", PROMPT)
    books.idle()
    other = books.claim("other", range(30, 46), conversation=None)
    books.compute(other)
    books.cache.release(other)
    assert len(books.parked()["one"]) == 2

    two = come_back(books, later(books))

    assert (two.claim.from_device, two.claim.from_disk) == (8, 2)
    assert books.read(two) == [1, 5, 9]


def test_others_overtake_who_waits_for_a_restore():
    books = after_lunch()
    two = waits(books, later(books))
    books.tick()

    other = books.claim("other", range(30, 40), conversation="other")
    books.compute(other)
    books.park(other)

    books.move()
    assert claimed(books, two).num_computed_tokens == 10


def test_followers_wait_for_the_same_blocks_and_move_them_once():
    books = after_lunch()
    two = waits(books, later(books))
    sibling = waits(books, later(books, "sibling", (*LOG, 60)))
    books.tick()
    assert books.runners[0].num_queued == 1
    books.move()

    assert claimed(books, two).num_computed_tokens == 10
    assert claimed(books, sibling).num_computed_tokens >= 8


def test_full_blocks_come_back_for_whoever_may_have_them_without_a_conversation():
    books = after_lunch()

    plain = come_back(
        books,
        later(books, conversation=None, parent_turn_id=None, num_known_tokens=0),
    )

    assert plain.num_computed_tokens == 10
    books.compute(plain)
    books.cache.release(plain)
    assert books.cache.num_parked_tables == 0


def test_another_owner_finds_nothing():
    books = after_lunch()

    stranger = claimed(books, later(books, owner="another"))

    assert stranger.num_computed_tokens == 0


def test_the_quicker_tier_is_asked_first():
    media = [MemoryStorage(TierName.CPU), MemoryStorage(TierName.DISK)]
    books = after_lunch(media=media)
    assert books.stored(TierName.CPU) == books.stored(TierName.DISK) == {1, 5, 9}
    first_key = next(k for k, p in media[0].payloads.items() if p == b"\x09")
    books.tiers[0].tree.discard(first_key)

    two = come_back(books, later(books))

    assert (two.claim.from_cpu, two.claim.from_disk) == (8, 2)
    assert books.read(two) == [1, 5, 9]


# What goes wrong


def damage(books, first_token):
    key = next(k for k, p in books.medium.payloads.items() if p[0] == first_token)
    books.medium.damaged.add(key)


@pytest.mark.parametrize(("token", "num_reused"), [(1, 0), (5, 4), (9, 8)])
def test_a_damaged_record_and_what_lies_behind_it_is_computed_and_said(token, num_reused):
    books = after_lunch()
    damage(books, token)

    two = come_back(books, later(books))

    assert two.num_computed_tokens == num_reused
    assert two.claim.reason is MissReason.LOAD_FAILED
    assert books.read(two) == [1, 5, 9][: num_reused // 4]
    books.tick()
    books.move()
    assert len(books.medium.records) == num_reused // 4


def test_a_broken_medium_is_a_miss_and_is_left_alone_for_a_while():
    books = after_lunch()
    books.medium.is_broken = True
    two = come_back(books, later(books))
    assert (two.num_computed_tokens, two.claim.reason) == (0, MissReason.LOAD_FAILED)
    books.cache.release(two)

    again = claimed(books, later(books, "again"))
    assert (again.num_computed_tokens, again.claim.reason) == (0, MissReason.EVICTED)
    books.cache.release(again)

    books.medium.is_broken = False
    books.tick(60.0)
    assert come_back(books, later(books, "third")).num_computed_tokens == 10


def test_a_medium_that_hangs_is_waited_for_until_computing_would_be_done():
    books = after_lunch()
    two = waits(books, later(books))
    books.tick()
    books.tick(0.6)

    assert (claimed(books, two).num_computed_tokens, two.claim.reason) == (
        0,
        MissReason.LOAD_FAILED,
    )
    assert not books.tier.is_on
    books.cache.release(two)

    books.move()  # it answers after all, and touches nothing any more
    assert books.tier.is_on
    assert books.cache.pool.num_free == 16


def test_a_restore_that_needs_more_blocks_than_there_are_waits_like_any_other():
    books = TieredBooks(8)
    books.turn("one", PROMPT)
    books.lunch()
    large = books.claim("large", range(30, 54), conversation="large")
    books.compute(large)
    two = later(books)
    with pytest.raises(Exception, match="blocks wanted"):
        books.cache.claim(two)
    books.park(large)

    assert come_back(books, two).num_computed_tokens == 10


def test_what_was_restored_is_kept_when_its_generation_is_cancelled():
    books = after_lunch()
    waits(books, later(books))
    books.tick()
    books.move()

    again = claimed(books, later(books, "again"))

    assert (again.claim.from_device, again.num_computed_tokens) == (10, 10)


def test_what_comes_back_for_a_conversation_that_is_gone_is_not_kept():
    books = after_lunch()
    waits(books, later(books))
    books.tick()
    books.cache.release_conversation("conv")

    assert books.erased_by_moving() == {0, 1, 2}
    assert books.cache.pool.num_free == 16
    assert books.cache.num_parked_tables == 0


def test_a_few_tokens_that_are_quicker_to_compute_are_computed_and_that_is_said():
    books = after_lunch()
    for rows in (64, 128):
        books.costs.observe_compute(rows, 0, rows * 1e-6)
    books.costs.observe_restore(TierName.DISK, 1, 5.0)
    books.costs.observe_restore(TierName.DISK, 10, 5.0)

    two = claimed(books, later(books))

    assert (two.num_computed_tokens, two.claim.reason) == (0, MissReason.RECOMPUTE_CHEAPER)
