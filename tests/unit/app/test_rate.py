"""An owner's requests a minute."""

import pytest

from app.errors import RequestError
from app.rate import RateLimit
from tests.support.clock import FakeClock


def still_clock():
    return FakeClock(tick_s=0)


def test_a_minutes_worth_may_come_at_once_and_then_evenly():
    clock = still_clock()
    limit = RateLimit(6, clock)
    for _ in range(6):
        limit.count("ann")

    with pytest.raises(RequestError) as caught:
        limit.count("ann")
    assert (caught.value.status, caught.value.code) == (429, "rate_limit_exceeded")
    assert caught.value.retry_after_s == pytest.approx(10)

    clock.advance(caught.value.retry_after_s)
    limit.count("ann")
    with pytest.raises(RequestError):
        limit.count("ann")


def test_what_is_refused_is_not_counted():
    clock = still_clock()
    limit = RateLimit(1, clock)
    limit.count("ann")
    for _ in range(100):
        with pytest.raises(RequestError):
            limit.count("ann")

    clock.advance(60)
    limit.count("ann")


def test_owners_do_not_share_a_bucket():
    limit = RateLimit(1, still_clock())
    limit.count("ann")
    limit.count("bob")

    with pytest.raises(RequestError):
        limit.count("ann")


def test_without_a_limit_nothing_is_remembered():
    limit = RateLimit(None, still_clock())
    for n in range(1000):
        limit.count(f"owner-{n}")

    assert len(limit) == 0


def test_full_buckets_are_forgotten():
    clock = still_clock()
    limit = RateLimit(60, clock)
    for n in range(1000):
        limit.count(f"owner-{n}")

    clock.advance(61)
    limit.count("ann")

    assert len(limit) == 1


def test_a_clock_set_back_locks_nobody_out_for_longer_than_a_minute():
    clock = still_clock()
    limit = RateLimit(2, clock)
    limit.count("ann")
    clock.advance(-86400)

    with pytest.raises(RequestError) as caught:
        limit.count("ann")
    assert caught.value.retry_after_s <= 60
