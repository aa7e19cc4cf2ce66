"""How many prompt tokens a step may take, learnt from what steps took."""

import copy
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from model.costs import num_pairs
from model.step_budget import LEAST_ROWS, StepBudget, StepTimes, StepWork

MAX_ITL_S = 0.1


def work(num_replies, num_read, start, num_rows):
    return StepWork(num_replies, num_read, num_rows, num_pairs(start, start + num_rows))


class Machine:
    """Takes so long for a step, for a reply, for a thousand tokens that replies look back on, for a
    prompt's row, and for a thousand pairs."""

    def __init__(self, step_s=0.01, reply_s=0.001, read_s=0.0015, row_s=0.0008, pair_s=0.0003):
        self.step_s, self.reply_s, self.read_s = step_s, reply_s, read_s
        self.row_s, self.pair_s = row_s, pair_s

    def seconds(self, done):
        return (
            self.step_s
            + self.reply_s * done.num_replies
            + self.read_s * done.num_read / 1000
            + self.row_s * done.num_rows
            + self.pair_s * done.num_kpairs
        )


machines = st.builds(
    Machine,
    step_s=st.floats(0.002, 0.03),
    reply_s=st.floats(0.0, 0.003),
    read_s=st.floats(0.0, 0.002),
    row_s=st.floats(0.0001, 0.003),
    pair_s=st.floats(0.0, 0.001),
)


def prefill(budget, machine, num_replies, num_read, num_tokens):
    """A prompt beside replies, in chunks; how long each step took."""
    start, times = 0, []
    while start < num_tokens:
        room = budget.open(num_replies, num_read)
        num_rows = room.fit(start, num_tokens - start)
        room.take(start, num_rows)
        done = work(num_replies, num_read, start, num_rows)
        times.append(machine.seconds(done))
        budget.observe(done, times[-1])
        start += num_rows
    return times


def test_the_times_of_steps_that_were_seen_are_told():
    machine, times = Machine(), StepTimes()
    seen = [work(n, 500 * n, 700 * i, 40 * i) for n in range(1, 5) for i in range(4)]
    for done in seen * 40:
        times.observe(done, machine.seconds(done))

    for done in seen:
        assert times.seconds(done) == pytest.approx(machine.seconds(done), rel=0.05)


@given(machines, st.lists(st.integers(1, 400), min_size=1, max_size=4))
def test_nothing_takes_less_than_no_time_and_more_rows_take_no_less(machine, sizes):
    times = StepTimes()
    assert times.seconds(work(1, 10, 0, 10)) == 0.0
    for size in sizes:
        done = work(size % 3, 100 * size, size, size)
        times.observe(done, machine.seconds(done))

    costs = [times.rows_s(start=50, num_rows=n) for n in range(0, 300, 50)]
    assert costs == sorted(costs)
    assert costs[0] >= 0.0


@given(machines, st.integers(1, 12), st.integers(0, 20_000))
@settings(max_examples=60, deadline=None, derandomize=True)
def test_beside_replies_steps_stay_under_the_bound(machine, num_replies, num_read):
    budget = StepBudget(512, MAX_ITL_S)
    for _ in range(40):
        alone = work(num_replies, num_read, 0, 0)
        budget.observe(alone, machine.seconds(alone))
    prefill(budget, machine, num_replies, num_read, 3000)  # it gets to know the machine

    times = prefill(budget, machine, num_replies, num_read, 3000)

    least_s = machine.seconds(work(num_replies, num_read, 3000, LEAST_ROWS))
    alone_s = machine.seconds(work(num_replies, num_read, 0, 0))
    assert max(times) <= 1.05 * max(MAX_ITL_S, 1.5 * alone_s, least_s)


@given(machines, st.integers(1, 12))
@settings(max_examples=25, deadline=None, derandomize=True)
def test_the_time_under_the_bound_is_used(machine, num_replies):
    budget = StepBudget(512, MAX_ITL_S)
    prefill(budget, machine, num_replies, 1000, 4000)

    times = prefill(budget, machine, num_replies, 1000, 4000)

    # All but the first ones and the last, unless the whole token budget takes less.
    whole_s = machine.seconds(work(num_replies, 1000, 0, 512 - num_replies))
    assert min(times[3:-1], default=MAX_ITL_S) >= 0.7 * min(MAX_ITL_S, whole_s)


def test_before_anything_is_known_a_step_is_small_and_then_grows_with_what_was_seen():
    budget, machine = StepBudget(512, 10.0), Machine()

    sizes = []
    for start in (0, 64, 192, 448, 960):
        room = budget.open(1, 100)
        sizes.append(room.fit(start, 2000))
        done = work(1, 100, start, sizes[-1])
        budget.observe(done, machine.seconds(done))

    assert sizes == [64, 128, 256, 511, 511]


def test_where_replies_take_all_the_time_a_prompt_gets_a_share_all_the_same():
    budget, machine = StepBudget(512, MAX_ITL_S), Machine(step_s=0.2, row_s=0.001, pair_s=0.0)
    prefill(budget, machine, 2, 100, 2000)

    times = prefill(budget, machine, 2, 100, 2000)

    assert 1.4 < sorted(times)[len(times) // 2] / machine.seconds(work(2, 100, 0, 0)) < 1.6


def test_without_replies_a_step_takes_longer_but_not_for_ever():
    budget, machine = StepBudget(4096, MAX_ITL_S), Machine(pair_s=0.0)
    prefill(budget, machine, 0, 0, 8000)

    times = prefill(budget, machine, 0, 0, 8000)

    assert 1.5 * MAX_ITL_S < max(times) <= 2 * MAX_ITL_S


def test_without_a_bound_there_are_only_rows():
    budget = StepBudget(512)
    for _ in range(10):
        assert not budget.observe(work(4, 100, 0, 500), 99.0)

    assert budget.open(4, 100).fit(0, 9999) == 508


def test_a_machine_that_slows_down_is_believed_and_a_single_hiccup_is_not():
    budget, machine = StepBudget(512, MAX_ITL_S), Machine()
    prefill(budget, machine, 1, 100, 3000)
    before = budget.open(1, 100).fit(0, 999)

    budget.observe(work(1, 100, 0, before), 5.0)
    after_hiccup = budget.open(1, 100).fit(0, 999)
    slow = Machine(0.02, 0.002, 0.003, 0.0016, 0.0006)
    prefill(budget, slow, 1, 100, 3000)
    first, *others = prefill(budget, slow, 1, 100, 3000)

    assert after_hiccup > 0.6 * before
    assert first < 1.5 * MAX_ITL_S  # of no history, and all that is known is of long ones
    assert max(others) < 1.05 * MAX_ITL_S


def test_a_long_reply_alone_wears_off_nothing_of_what_prompts_cost():
    budget, machine = StepBudget(512, MAX_ITL_S), Machine()
    prefill(budget, machine, 1, 100, 3000)
    before = budget.open(1, 100).fit(0, 999)

    for _ in range(20_000):
        alone = work(1, 100, 0, 0)
        budget.observe(alone, machine.seconds(alone))

    assert budget.open(1, 100).fit(0, 999) == pytest.approx(before, rel=0.1)


def test_times_that_scatter_are_believed_after_days_as_after_minutes():
    # What such times tell of the pace is a little too quick on the average.
    times, numbers = StepTimes(), random.Random(1)
    alone = work(2, 500, 0, 0)
    for _ in range(20_000):
        times.observe(alone, 0.02 * numbers.lognormvariate(0, 0.3))

    assert 0.2 < times._pace < 5.0  # it would go on to where no float is
    assert 0.01 < times.seconds(alone) < 0.04


def test_a_pace_that_is_counted_in_changes_nothing_that_is_expected():
    machine, times = Machine(), StepTimes()
    seen = [work(n, 500 * n, 700 * i, 40 * i) for n in range(1, 5) for i in range(4)]
    for done in seen * 10:
        times.observe(done, machine.seconds(done))
    for done in seen[:3]:
        times.observe(done, 1.5 * machine.seconds(done))
    settled = copy.deepcopy(times)
    settled._settle_pace()

    assert times._pace > 1.1
    for done in seen[:4]:
        for each in (times, settled):
            each.observe(done, 1.2 * machine.seconds(done))
        for other in seen:
            assert settled.seconds(other) == pytest.approx(times.seconds(other), rel=1e-9)


def test_what_one_takes_is_not_there_for_the_next():
    budget, machine = StepBudget(512, MAX_ITL_S), Machine(pair_s=0.0)
    prefill(budget, machine, 1, 100, 3000)
    room = budget.open(1, 100)
    whole = room.fit(0, 999)
    quarter = room.fit(0, 999, 0.25)
    room.take(0, quarter)

    assert 0.2 * whole < quarter < 0.3 * whole
    assert room.fit(0, 999) == pytest.approx(whole - quarter, abs=2)
    room.take(0, room.fit(0, 999))
    assert room.fit(0, 999) == 0


@given(machines, st.integers(0, 20), st.integers(0, 9000), st.integers(1, 9000))
def test_whoever_asks_first_gets_something(machine, num_replies, start, num_wanted):
    budget = StepBudget(num_replies + 1, 0.001)
    for size in (1, 20, 300):
        done = work(num_replies, 50, start, size)
        budget.observe(done, machine.seconds(done))

    assert budget.open(num_replies, 50).fit(start, num_wanted, 0.25) == 1


def test_only_replies_that_wait_make_a_step_late():
    budget = StepBudget(512, MAX_ITL_S)

    assert budget.observe(work(1, 10, 0, 40), 0.11)
    assert not budget.observe(work(1, 10, 0, 40), 0.09)
    assert not budget.observe(work(0, 0, 0, 40), 0.11)
