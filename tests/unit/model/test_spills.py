"""What is stored, where and when, and what the device gives up first."""

from model.messages import TierName
from tests.support.memory_storage import MemoryStorage
from tests.support.tiered_books import TieredBooks

PROMPT = list(range(1, 11))


def two_tiers(**fields):
    return TieredBooks(media=[MemoryStorage(TierName.CPU), MemoryStorage(TierName.DISK)], **fields)


def test_what_idles_is_stored_tail_and_all_and_the_device_keeps_it():
    books = TieredBooks()
    books.turn("one", PROMPT)
    books.tick(9.0)
    books.move()
    assert books.stored() == set()

    books.idle(1.5)

    assert books.stored() == {1, 5, 9}
    assert len(books.parked()["one"]) == 3
    (hold,) = books.medium.holds.values()
    assert (hold.conversation_id, hold.turn_id, hold.num_tokens) == ("conv", "one", 10)


def test_each_tier_has_its_own_patience():
    books = two_tiers()
    books.turn("one", PROMPT)

    books.idle(3.0)
    assert (books.stored(TierName.CPU), books.stored(TierName.DISK)) == ({1, 5, 9}, set())

    books.idle(10.0)
    assert books.stored(TierName.DISK) == {1, 5, 9}


def test_a_chain_that_is_shared_is_stored_once():
    books = TieredBooks()
    books.turn("one", PROMPT)
    books.idle()
    books.turn("two", [*PROMPT, 99, 50], parent_turn_id="one", conversation="fork")
    books.idle()

    assert sorted(p[0] for p in books.medium.payloads.values()) == [1, 5, 9, 9]
    assert {h.conversation_id for h in books.medium.holds.values()} == {"conv", "fork"}


def test_whoever_has_what_another_stored_has_a_claim_of_its_own_and_keeps_it():
    books = two_tiers()
    books.turn("one", PROMPT)
    books.turn("two", PROMPT, conversation="fork")
    books.idle(20.0)
    for medium in books.media:
        assert {h.conversation_id for h in medium.holds.values()} == {"conv", "fork"}

    books.cache.release_conversation("conv")
    books.idle()

    for medium in books.media:
        assert {p[0] for p in medium.payloads.values()} == {1, 5, 9}


def test_a_table_that_lost_its_tail_on_the_device_keeps_its_claim_on_all_of_it():
    books = TieredBooks(5)
    books.turn("one", PROMPT)
    books.idle()
    more = books.claim("more", range(40, 52), conversation=None)
    books.compute(more)
    books.cache.release(more)
    assert len(books.cache.view("conv", books.now_s, 1)[0].blocks) == 2
    books.idle()

    (hold,) = books.tier.tree.holds()
    assert hold.num_tokens == 10


def test_the_last_turn_s_claim_is_superseded_by_the_next_and_stays_for_its_siblings():
    books = TieredBooks()
    books.turn("one", PROMPT)
    books.idle()
    books.turn("two", [*PROMPT, 99, 50, 51], parent_turn_id="one")
    books.idle()

    assert {h.turn_id: h.is_superseded for h in books.medium.holds.values()} == {
        "one": True,
        "two": False,
    }
    assert sorted(r.num_tokens for r in books.medium.records.values()) == [1, 2, 4, 4, 4]


def test_a_superseded_turn_whose_claim_was_cut_is_superseded_when_it_is_stored_again():
    books = TieredBooks()
    books.turn("one", PROMPT)
    books.turn("two", [*PROMPT[:9], 50, 51], parent_turn_id="one")
    books.idle()
    books.tier.tree.drop_hold("conv", "one")
    books.idle()

    assert {h.turn_id: h.is_superseded for h in books.tier.tree.holds()} == {
        "one": True,
        "two": False,
    }


def test_a_fork_does_not_supersede_what_its_origin_goes_on_from():
    books = TieredBooks(8)
    books.turn("one", PROMPT, priority=1)
    books.turn("two", range(20, 28), conversation="other")
    books.turn("three", [*PROMPT, 99], parent_turn_id="one", conversation="fork")

    books.compute(books.claim("more", range(60, 72), conversation=None))

    assert len(books.parked()["one"]) == 3


def test_under_pressure_what_idles_shortly_is_stored_too_before_it_is_given_up():
    books = TieredBooks(8)
    books.turn("one", PROMPT)
    books.turn("two", range(20, 40), conversation="other")
    for _ in range(8):
        books.tick(0.3)
        books.move()

    assert books.stored() >= {1, 5, 9}


def test_what_is_stored_is_given_up_before_what_is_nowhere_else():
    books = TieredBooks(8)
    for rows in (64, 128):
        books.costs.observe_compute(rows, 0, float(rows))
    books.costs.observe_restore(TierName.DISK, 1, 1e-3)
    books.turn("one", PROMPT)
    books.idle()
    books.turn("two", range(20, 30), conversation="other")

    books.claim("three", range(40, 56), conversation=None)
    books.cache.grow(books.sequence("x", [1]), 0)
    sequence = books.claim("four", range(60, 62), conversation=None)
    books.compute(sequence)

    assert len(books.parked("other")["two"]) == 3


def test_a_table_in_use_is_not_stored_over_and_a_spilling_tail_is_copied_before_it_is_written():
    books = TieredBooks()
    books.turn("one", PROMPT)
    books.tick(10.0)
    two = books.claim("two", [*PROMPT, 99, 50], parent_turn_id="one")
    old_tail = two.table.block_ids[2]
    books.compute(two)

    assert two.table.block_ids[2] != old_tail
    books.move()
    assert books.stored() == {1, 5, 9}
    books.cache.check()


# Asked for


def test_a_conversation_that_is_parked_in_a_tier_leaves_the_device():
    books = TieredBooks()
    books.turn("one", PROMPT)

    assert books.cache.tiering.park("conv", TierName.DISK)
    books.tick()
    books.move()
    books.tick(0.3)

    assert books.stored() == {1, 5, 9}
    assert books.parked() == {"one": [None, None, None]}
    assert books.cache.pool.num_free == 16


def test_there_is_nothing_to_park_of_nobody_or_in_no_tier():
    books = TieredBooks()
    books.turn("one", PROMPT)

    assert not books.cache.tiering.park("nobody", TierName.DISK)
    assert not books.cache.tiering.park("conv", TierName.CPU)


def test_before_the_end_everything_is_stored_at_once():
    books = TieredBooks()
    books.turn("one", PROMPT)
    assert books.cache.tiering.is_due()
    books.cache.tiering.hurry()
    books.tick()
    books.move()

    assert books.stored() == {1, 5, 9}
    assert not books.cache.tiering.is_due()
