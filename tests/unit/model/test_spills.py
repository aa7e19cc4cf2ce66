"""What is stored, where and when, and what the device gives up first."""

from model.cache_manager import PrefixPendingError
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


# Gone


def test_a_deleted_conversation_is_erased_from_every_tier_but_for_what_others_share():
    books = two_tiers()
    books.turn("one", PROMPT)
    books.turn("two", [*PROMPT[:8], 60, 61], parent_turn_id="one", conversation="fork")
    books.idle(20.0)

    books.cache.release_conversation("conv")
    books.tick()
    books.move()

    for medium in books.media:
        assert sorted(p[0] for p in medium.payloads.values()) == [1, 5, 60]
        assert {h.conversation_id for h in medium.holds.values()} == {"fork"}


def test_what_is_on_its_way_for_a_deleted_conversation_is_erased_when_it_has_come():
    books = TieredBooks()
    books.turn("one", PROMPT)
    books.tick(10.0)
    books.cache.release_conversation("conv")

    for _ in range(3):
        books.move()
        books.tick(0.3)

    assert books.stored() == set()
    assert not books.medium.holds


def test_a_deleted_conversation_s_bytes_are_overwritten_on_the_device():
    books = TieredBooks()
    books.turn("one", PROMPT)
    books.cache.supply.take_edits()

    books.cache.release_conversation("conv")

    edits = books.cache.supply.take_edits()
    assert sorted(edit.target for edit in edits if edit.source is None) == [0, 1, 2]


# Room


def test_a_full_tier_gives_up_the_oldest_tail_first_and_never_what_it_is_writing_behind():
    books = TieredBooks(40, max_records=4)
    for rows in (64, 128):
        books.costs.observe_compute(rows, 0, float(rows))
    books.turn("one", range(1, 13), conversation="old")
    books.idle()
    books.turn("two", range(20, 32), conversation="new")
    books.idle()

    assert len(books.medium.records) == 4
    assert {20, 24, 28} <= books.stored()


def test_a_medium_without_room_is_off_for_a_while_and_loses_nothing():
    books = TieredBooks()
    books.medium.is_full = True
    books.turn("one", PROMPT)
    books.idle()
    assert (books.stored(), books.tier.is_on) == (set(), False)

    books.medium.is_full = False
    books.tick(700.0)
    books.idle()

    assert books.stored() == {1, 5, 9}


def test_a_spill_that_hangs_gives_its_blocks_back():
    books = TieredBooks()
    books.turn("one", PROMPT)
    books.tick(10.0)
    books.tick(31.0)
    books.cache.evict_all()

    assert books.cache.pool.num_free == 16
    assert not books.tier.is_on
    books.move()
    books.tick()
    assert books.tier.is_on


def test_after_a_restart_what_nobody_holds_is_swept_out():
    books = TieredBooks()
    books.turn("one", PROMPT)
    books.idle()
    books.medium.holds.clear()

    again = books.restarted()
    again.move()

    assert again.stored() == set()


def test_verifying_drops_what_is_damaged_and_what_lies_behind_it():
    books = TieredBooks()
    books.turn("one", PROMPT)
    books.idle()
    key = next(k for k, p in books.medium.payloads.items() if p == b"\x05")
    books.medium.damaged.add(key)
    told = []

    books.tier.verify(told.append)
    books.tick()
    books.move()
    books.move()

    assert told == [1]
    assert books.stored() == {1}


def test_a_conversation_s_tables_are_shown_wherever_they_are():
    books = two_tiers()
    books.turn("one", PROMPT)
    books.idle(20.0)
    (view,) = books.cache.view("conv", books.now_s, 1)
    assert [b.stored_in for b in view.blocks] == [(TierName.CPU, TierName.DISK)] * 3
    assert {b.tier for b in view.blocks} == {TierName.DEVICE}

    books.cache.evict_all()
    (view,) = books.cache.view("conv", books.now_s, 1)

    assert (view.turn_id, view.num_computed_tokens, view.num_bytes) == ("one", 10, 3)
    assert [(b.block_id, b.tier, b.num_tokens) for b in view.blocks] == [
        (None, TierName.CPU, 4),
        (None, TierName.CPU, 4),
        (None, TierName.CPU, 2),
    ]
    assert view.idle_s >= 20.0


def test_a_restored_table_that_is_claimed_is_nobody_s_any_more():
    books = TieredBooks()
    books.turn("one", PROMPT)
    books.lunch()
    sequence = books.sequence("plain", [*PROMPT, 99, 5], conversation=None)
    try:
        books.cache.claim(sequence)
    except PrefixPendingError:
        books.tick()
        books.move()
    books.cache.claim(sequence)
    books.compute(sequence)
    books.park(sequence)
    books.idle()

    assert {h.conversation_id for h in books.medium.holds.values()} == {"conv"}


def test_a_tier_that_became_smaller_gives_up_what_is_too_much_at_the_start():
    books = TieredBooks(40)
    books.turn("one", range(1, 13), conversation="old")
    books.idle()
    books.turn("two", range(20, 32), conversation="new")
    books.idle()

    again = TieredBooks(40, media=books.media, max_records=4)
    again.tick()
    again.move()

    assert len(again.medium.records) == 4
    again.cache.check()
