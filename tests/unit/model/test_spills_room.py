"""Room in the tiers, media that fail, and what an earlier process left."""

from model.cache_manager import PrefixPendingError
from model.messages import TierName
from tests.support.memory_storage import MemoryStorage
from tests.support.tiered_books import TieredBooks

PROMPT = list(range(1, 11))


def two_tiers(**fields):
    return TieredBooks(media=[MemoryStorage(TierName.CPU), MemoryStorage(TierName.DISK)], **fields)


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


def test_a_turn_that_is_called_like_its_conversation_is_stored_like_any_other():
    books = TieredBooks()
    books.turn("conv", PROMPT)
    books.idle()

    assert books.stored() == {1, 5, 9}


def test_a_verify_whose_medium_fails_says_what_it_had_found():
    books = TieredBooks()
    books.turn("one", PROMPT)
    books.idle()
    books.medium.is_broken = True
    told = []

    books.tier.verify(told.append)
    books.tick()
    books.move()
    books.tick()

    assert told == [0]
    assert not books.tier.is_on


def test_what_could_not_be_removed_for_room_is_erased_later():
    books = TieredBooks(40, max_records=4)
    for rows in (64, 128):
        books.costs.observe_compute(rows, 0, float(rows))
    books.turn("one", range(1, 13), conversation="old")
    books.idle()
    books.medium.is_stuck = True
    books.turn("two", range(20, 32), conversation="new")
    books.idle()
    assert books.tier.owes_erasure

    books.medium.is_stuck = False
    books.tick(700.0)
    books.move()
    books.tick()

    assert not books.tier.owes_erasure
    assert len(books.medium.records) == len(books.tier.tree)


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


def test_what_was_damaged_in_the_upper_tier_holds_up_no_other_on_the_way_to_the_lower():
    books = two_tiers()
    books.turn("one", PROMPT)
    books.turn("two", range(20, 30), conversation="other")
    books.idle(2.5)
    books.cache.evict_all()
    cpu = books.media[0]
    cpu.damaged.add(next(k for k, p in cpu.payloads.items() if p == b"\x05"))

    books.idle(20.0)

    assert books.stored(TierName.DISK) == {1, 20, 24, 28}
    assert books.stored(TierName.CPU) == {1, 20, 24, 28}
    assert not books.cache.tiering.is_due()
    assert all(tier.is_on for tier in books.tiers)


def test_before_the_end_what_was_used_in_a_clock_s_future_is_stored_too():
    books = two_tiers()
    books.turn("one", PROMPT)
    books.idle(3.0)
    books.cache.evict_all()
    books.jump_s = -1000.0

    books.cache.tiering.hurry()
    books.idle(0.0)

    assert books.stored(TierName.DISK) == {1, 5, 9}


def test_what_is_worth_too_little_for_a_full_tier_keeps_nothing_out_that_is_worth_more():
    books = two_tiers(num_blocks=40)
    books.tiers[1].max_records = 3
    books.turn("kept", range(40, 52), conversation="its")
    books.idle(20.0)
    books.turn("old", PROMPT, conversation="conv-old", priority=-1)
    books.turn("new", range(60, 70), conversation="conv-new", priority=1)
    books.idle(2.5)
    books.cache.evict_all()

    books.idle(20.0)

    assert books.stored(TierName.DISK) == {60, 64, 68}


def test_a_full_tier_is_searched_for_room_but_twice_whatever_waits(monkeypatch):
    books = TieredBooks(40, max_records=3)
    books.turn("kept", range(40, 52), conversation="its")
    books.idle()
    for name in "abcd":
        books.turn(name, [*PROMPT, ord(name)], conversation=f"conv-{name}", priority=-1)
    searches = []
    evict = books.tier.tree.evict
    monkeypatch.setattr(
        books.tier.tree, "evict", lambda *args, **kw: searches.append(args) or evict(*args, **kw)
    )

    books.tick(10.0)

    assert books.tier.num_in_flight == 0
    assert 1 <= len(searches) <= 2


def test_the_list_of_claims_forgets_those_whose_chains_were_given_up():
    books = TieredBooks(40, max_records=3)
    books.turn("one", PROMPT)
    books.idle()
    books.turn("two", range(20, 30), conversation="other", priority=1)
    books.idle()

    assert {h.turn_id for h in books.medium.holds.values()} == {"two"}
