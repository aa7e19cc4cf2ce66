"""What is given up first."""

import pytest

from model.eviction import EvictionPolicy, Usage, return_probability, score


def usage(**fields):
    base = {
        "idle_s": 10.0,
        "num_uses": 1,
        "num_tokens": 100,
        "num_bytes": 1000,
        "return_cost_s": 1.0,
    }
    return Usage(**(base | fields))


def order(policy, **usages):
    """The names, the first to go first."""
    return sorted(usages, key=lambda name: score(policy, usages[name]))


def test_the_default_gives_up_what_a_byte_of_saves_the_least_expected_time():
    assert order(
        EvictionPolicy.VALUE,
        dear=usage(return_cost_s=4.0),
        cheap=usage(return_cost_s=1.0),
        long_idle=usage(return_cost_s=4.0, idle_s=10_000.0),
        large=usage(return_cost_s=4.0, num_bytes=2000),
        often=usage(return_cost_s=4.0, num_uses=20),
    ) == ["long_idle", "cheap", "large", "dear", "often"]


def test_what_a_lower_tier_has_is_cheap_to_have_again_and_goes_first():
    stored, lost = usage(return_cost_s=0.01, idle_s=1.0), usage(return_cost_s=1.0, idle_s=300.0)

    assert order(EvictionPolicy.VALUE, stored=stored, lost=lost) == ["stored", "lost"]


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        (EvictionPolicy.LRU, ["old", "short", "rare"]),
        (EvictionPolicy.LFU, ["rare", "short", "old"]),
        (EvictionPolicy.FREQUENCY_LENGTH_AGE, ["short", "rare", "old"]),
    ],
)
def test_the_simpler_policies_do_what_their_names_say(policy, expected):
    usages = {
        "old": usage(idle_s=50.0, num_uses=60),
        "rare": usage(idle_s=9.0, num_uses=1),
        "short": usage(idle_s=10.0, num_uses=2, num_tokens=10),
    }

    assert order(policy, **usages) == expected


@pytest.mark.parametrize("policy", EvictionPolicy)
def test_what_is_superseded_goes_first_and_hints_move_under_every_policy(policy):
    assert order(
        policy,
        hinted=usage(priority=1, idle_s=1e6, num_uses=0),
        current=usage(),
        superseded=usage(is_superseded=True, num_uses=99, idle_s=0.0, return_cost_s=99.0),
    ) == ["superseded", "current", "hinted"]


def test_a_chain_in_its_time_to_live_counts_as_just_used():
    kept = usage(idle_s=500.0, ttl_s=600.0)

    assert score(EvictionPolicy.VALUE, kept) == score(EvictionPolicy.VALUE, usage(idle_s=0.0))


def test_a_clock_that_jumps_back_makes_nobody_younger_than_now():
    assert score(EvictionPolicy.VALUE, usage(idle_s=-5e9)) == score(
        EvictionPolicy.VALUE, usage(idle_s=0.0)
    )


def test_coming_back_gets_likelier_with_every_time_and_unlikelier_with_the_wait():
    waits = [return_probability(idle_s, 3) for idle_s in (0.0, 60.0, 3600.0, 86_400.0)]
    uses = [return_probability(3600.0, num) for num in (0, 1, 10, 100)]

    assert waits == sorted(waits, reverse=True)
    assert uses == sorted(uses)
    assert all(0.0 < p < 1.0 for p in (*waits, *uses))
