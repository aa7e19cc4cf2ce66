"""The records of a tier, as trees."""

import hashlib
from dataclasses import replace

import pytest

from model.tiers.base import Hold, Record
from model.tiers.tree import RecordTree


def key(name):
    return hashlib.sha256(name.encode()).digest()


def chain(names, parent=None):
    """Records, each behind the last; `parent` is a record they go on from."""
    records = []
    for name in names:
        position = parent.position + 1 if parent else 0
        parent = Record(key(name), parent.key if parent else None, position, 4)
        records.append(parent)
    return records


def hold(conversation, record, turn="t", used_at=0.0):
    return Hold(conversation, turn, record.key, 4 * (record.position + 1), used_at)


def by_age(record, hold):
    return (hold is not None, 0, hold.used_at if hold else 0.0)


@pytest.fixture
def tree():
    tree = RecordTree()
    yield tree
    tree.check()


def grow(tree, *records):
    for record in records:
        assert tree.add(record)


def test_a_record_without_its_parent_could_never_be_used(tree):
    a, b, c = chain("abc")

    assert tree.add(a)
    assert not tree.add(c)
    assert tree.run([a.key, b.key, c.key]) == [a]


def test_what_an_earlier_process_left_comes_in_any_order(tree):
    a, b, c = chain("abc")
    (stray,) = chain("z", replace(c, key=key("lost")))

    assert tree.rebuild([c, stray, a, b]) == [stray]
    assert tree.run([a.key, b.key, c.key]) == [a, b, c]
    assert tree.chain(c.key) == [a, b, c]


def test_a_conversation_that_goes_takes_what_only_it_has_tail_first(tree):
    a, b, c = chain("abc")
    (d,) = chain("d", b)
    grow(tree, a, b, c, d)
    tree.hold(hold("one", c))
    tree.hold(hold("two", d))

    assert tree.release("one") == [c]
    assert tree.release("two") == [d, b, a]
    assert len(tree) == 0


def test_a_chain_that_another_holds_in_the_middle_stays_up_to_there(tree):
    a, b, c = chain("abc")
    grow(tree, a, b, c)
    tree.hold(hold("short", b))
    tree.hold(hold("long", c))

    assert tree.release("long") == [c]
    assert tree.release("nobody") == []
    assert tree.run([a.key, b.key]) == [a, b]


def test_the_tail_goes_before_the_head_and_what_is_shared_last(tree):
    a, b, c = chain("abc")
    d, e = chain("de", b)
    grow(tree, a, b, c, d, e)
    tree.hold(hold("old", c, used_at=1.0))
    tree.hold(hold("new", e, used_at=2.0))

    gone, moved, ended = tree.evict(2, by_age)
    assert ended == []
    assert gone == [c, e]
    assert {(h.conversation_id, h.tail, h.num_tokens) for h in moved} == {
        ("old", b.key, 8),
        ("new", d.key, 12),
    }

    gone, moved, ended = tree.evict(10, by_age)
    assert gone == [d, b, a]
    assert moved == []
    assert set(ended) == {("old", "t"), ("new", "t")}
    assert not tree.conversations()


def test_what_nobody_holds_goes_first_and_what_is_pinned_not_at_all(tree):
    a, b = chain("ab")
    (c,) = chain("c")
    grow(tree, a, b, c)
    tree.hold(hold("one", b, used_at=-5.0))

    assert tree.evict(3, by_age, {b.key})[0] == [c]
    assert tree.run([a.key, b.key]) == [a, b]


def test_a_lost_record_takes_with_it_what_lies_behind_it(tree):
    a, b, c = chain("abc")
    (d,) = chain("d", b)
    (e,) = chain("e", a)
    grow(tree, a, b, c, d, e)
    tree.hold(hold("one", c))
    tree.hold(hold("two", e))

    gone, moved, ended = tree.discard(b.key)

    assert set(gone) == {b, c, d}
    assert [(h.conversation_id, h.tail, h.num_tokens) for h in moved] == [("one", a.key, 4)]
    assert ended == []
    assert tree.discard(key("unknown")) == ([], [], [])


def test_a_claim_that_a_later_turn_has_gone_on_from_is_marked_and_ends_when_it_is_cut(tree):
    a, b = chain("ab")
    tail = replace(chain("t", b)[0], num_tokens=2)
    (c,) = chain("c", b)
    grow(tree, a, b, tail, c)
    tree.hold(hold("one", tail, turn="first"))
    tree.hold(hold("one", c, turn="second"))

    assert tree.supersede("one", "first").is_superseded
    assert tree.supersede("one", "first") is None
    assert tree.supersede("one", "unknown") is None
    cut = tree.evict(1, lambda record, hold: (not hold.is_superseded, 0, 0.0))

    assert cut == ([tail], [], [("one", "first")])
    assert [h.turn_id for h in tree.holds_of("one")] == ["second"]


def test_a_superseded_claim_that_is_cut_still_names_what_nobody_else_does(tree):
    (a,) = chain("a")
    b, tail = chain("bt", a)
    (c,) = chain("c", a)
    grow(tree, a, b, tail, c)
    tree.hold(hold("one", tail, turn="first"))
    tree.hold(hold("one", c, turn="edited"))
    tree.supersede("one", "first")

    tree.evict(1, lambda record, hold: (not hold.is_superseded, 0, 0.0))

    assert {h.turn_id: h.tail for h in tree.holds_of("one")} == {"first": b.key, "edited": c.key}
    assert set(tree.release("one")) == {a, b, c}


def test_what_nobody_holds_is_swept_out(tree):
    a, b, c = chain("abc")
    (d,) = chain("d", a)
    grow(tree, a, b, c, d)
    tree.hold(hold("one", d))

    assert tree.prune_unheld() == [c, b]
    assert {h.conversation_id for h in tree.holds()} == {"one"}


def test_a_hold_on_nothing_is_none(tree):
    (a,) = chain("a")

    assert tree.hold(hold("one", a)) is None
    assert tree.holds_of("one") == []
