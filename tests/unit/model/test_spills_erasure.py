"""Deleted conversations leave nothing behind, on the device nor in a tier."""

from model.messages import TierName
from tests.support.memory_storage import MemoryStorage
from tests.support.tiered_books import TieredBooks

PROMPT = list(range(1, 11))


def two_tiers(**fields):
    return TieredBooks(media=[MemoryStorage(TierName.CPU), MemoryStorage(TierName.DISK)], **fields)


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

    assert books.erased_by_moving() == {0, 1, 2}
    assert len(books.cache.index) == 0
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


def test_what_a_broken_medium_does_not_erase_is_erased_when_it_works_again():
    books = TieredBooks()
    books.turn("one", PROMPT)
    books.turn("two", [*PROMPT[:8], 60], conversation="other")
    books.idle()
    books.medium.is_broken = True
    books.cache.release_conversation("conv")
    books.cache.release_conversation("other")
    books.tick()
    books.move()
    assert books.stored() == {1, 5, 9, 60}
    assert books.cache.tiering.is_due()

    books.medium.is_broken = False
    books.tick(10.0)
    books.move()

    assert books.stored() == set()
    assert not books.cache.tiering.is_due()


def test_what_somebody_stores_again_meanwhile_is_not_erased():
    books = TieredBooks()
    books.turn("one", PROMPT)
    books.idle()
    books.cache.release_conversation("conv")
    books.turn("two", PROMPT[:8], conversation="other")
    books.cache.tiering.hurry()
    books.tick()
    books.medium.is_broken = True
    books.runners[0].run(1)
    books.medium.is_broken = False
    books.idle(20.0)

    assert books.stored() == {1, 5}
    assert len(books.tier.tree) == 2


def test_what_is_about_to_be_stored_again_but_never_is_is_erased_in_the_end():
    books = TieredBooks()
    books.turn("one", PROMPT)
    books.idle()
    books.cache.release_conversation("conv")
    books.turn("two", PROMPT[:8], conversation="other")
    books.cache.tiering.hurry()
    books.tick()
    books.medium.is_broken = True
    books.runners[0].run(1)
    books.medium.is_broken = False
    books.tick()
    books.cache.release_conversation("other")
    books.tick(6.0)
    books.tick(30.0)  # the spill takes too long
    books.idle()

    assert books.stored() == set()
