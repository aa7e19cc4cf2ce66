"""Who runs in the next step, over a cache that only counts blocks."""

import pytest

from model.sequence import SequenceStatus
from tests.support.scheduler_bench import Bench


def test_without_work_there_is_no_step():
    bench = Bench()

    assert not bench.scheduler.has_work
    assert bench.step() == {}


def test_a_prompt_within_the_budget_is_computed_at_once_and_then_token_by_token():
    bench = Bench()
    sequence = bench.add("a", 7)

    assert bench.step() == {"a": 7}
    assert bench.step() == bench.step() == {"a": 1}
    assert sequence.num_tokens == 10


def test_a_long_prompt_is_computed_in_chunks_of_the_budget():
    bench = Bench()
    bench.add("a", 25)

    assert [bench.step() for _ in range(4)] == [{"a": 10}, {"a": 10}, {"a": 5}, {"a": 1}]


def test_logits_are_wanted_only_behind_the_last_token():
    bench = Bench()
    bench.add("a", 15)

    assert [s.has_logits for s in bench.scheduler.schedule()] == [False]
    bench.sequences["a"].num_computed_tokens = 10
    assert [s.has_logits for s in bench.scheduler.schedule()] == [True]


def test_decoding_goes_first_and_prefill_gets_the_rest_of_the_budget():
    bench = Bench()
    bench.add("a", 3)
    bench.step()
    bench.add("b", 12)
    bench.add("c", 12)

    assert bench.step() == {"a": 1, "b": 9}
    assert bench.step() == {"a": 1, "b": 3, "c": 6}
    assert bench.step() == {"a": 1, "b": 1, "c": 6}


def test_decoding_goes_before_an_older_prefill():
    bench = Bench()
    bench.place("older", 30, num_computed=10)
    bench.place("decoding", 5, num_computed=4)

    assert list(bench.step().items()) == [("decoding", 1), ("older", 9)]


def test_a_short_prompt_goes_before_a_long_one_that_keeps_its_share():
    bench = Bench(token_budget=20)
    bench.add("long", 100)
    bench.step()
    bench.add("short", 12)

    assert bench.step() == {"long": 8, "short": 12}
    assert bench.step() == {"long": 19, "short": 1}


def test_the_oldest_prompt_gets_its_share_whoever_comes():
    bench = Bench(token_budget=20, max_running=100)
    bench.add("long", 100)
    bench.step()
    for i in range(10):
        bench.add(f"s{i}", 30)

    assert bench.step() == {"long": 5, "s0": 15}
    assert bench.step() == {"long": 5, "s0": 15}


def test_every_owner_s_shortest_prompt_goes_before_anybody_s_second():
    bench = Bench(token_budget=40)
    for name, num_tokens in (("ann0", 12), ("ann1", 11), ("bob0", 20), ("ann2", 10)):
        bench.add(name, num_tokens, name[:3])

    # Ten rows for the oldest; then `ann2`, whose owner has two others, and bob's only one.
    assert bench.step() == {"ann0": 10, "bob0": 20, "ann2": 10}


def test_an_owner_s_prompts_are_let_in_only_as_far_as_somebody_computes_them_soon():
    bench = Bench(token_budget=10, max_running=100)
    for i in range(12):
        bench.add(f"ann{i}", 5, "ann")
    bench.add("bob", 5, "bob")

    bench.step()

    assert bench.running == [*(f"ann{i}" for i in range(8)), "bob"]


def test_many_short_prompts_are_let_in_at_once():
    bench = Bench(token_budget=64, max_running=100)
    for i in range(40):
        bench.add(f"s{i}", 2)

    assert len(bench.step()) == 32


def test_steps_that_leave_prompts_waiting_for_the_time_s_sake_are_counted():
    bench = Bench(
        num_blocks=9999, token_budget=500, max_itl_s=0.1, machine=lambda work: 0.01 * work.num_rows
    )
    bench.add("reply", 1)
    bench.step()
    assert bench.scheduler.num_held_steps == 0

    bench.add("long", 900)
    while bench.sequences["long"].num_tokens == 900:
        bench.step()

    assert bench.scheduler.num_held_steps >= 30


def seconds(work):
    """Of a machine where a step costs what 40 rows cost."""
    return 0.04 + 0.001 * work.num_rows


def test_prompts_that_come_together_are_computed_one_by_one_where_rows_are_dear():
    bench = Bench(num_blocks=9999, token_budget=500, max_itl_s=0.5, machine=seconds)
    for i in range(8):
        bench.add(f"before{i}", 20 + 10 * i)
    while any(s.num_computed_tokens < s.num_prompt_tokens for s in bench.sequences.values()):
        bench.step()
    for name in list(bench.sequences):
        bench.scheduler.remove(bench.sequences[name])

    for i in range(3):
        bench.add(f"long{i}", 90)
    for i in range(3):
        bench.add(f"short{i}", 16)

    begun: dict[str, int] = {}
    for number in range(5):
        bench.step()
        for name, sequence in bench.sequences.items():
            if sequence.num_tokens > sequence.num_prompt_tokens:
                begun.setdefault(name, number)

    assert begun["short0"] == begun["short1"] == begun["short2"] == 0
    assert begun["long0"] < begun["long1"] < begun["long2"]


def test_nobody_s_first_prompt_waits_for_all_of_somebody_else_s():
    bench = Bench(num_blocks=9999, token_budget=500, max_running=32, max_itl_s=0.5, machine=seconds)
    for i in range(8):
        bench.add(f"before{i}", 20 + 10 * i)
    for _ in range(9):
        bench.step()
    for i in range(8):
        bench.end(f"before{i}")

    for i in range(6):
        bench.add(f"ann{i}", 90, "ann")
    bench.add("bob", 95, "bob")

    assert set(bench.step()) == {"ann0", "bob"}


def test_no_step_has_more_rows_than_the_budget():
    bench = Bench(token_budget=4)
    for i in range(8):
        bench.add(f"s{i}", 3)

    steps = [bench.step() for _ in range(20)]

    assert max(sum(step.values()) for step in steps) == 4
    # Sequences that would find no place in the budget are not admitted, so none is starved.
    assert len(bench.running) == 4
    assert steps[-1] == dict.fromkeys(bench.running, 1)


def test_no_more_sequences_run_than_may():
    bench = Bench(max_running=2)
    for name in "abc":
        bench.add(name, 2)

    bench.step()

    assert (bench.running, bench.waiting) == (["a", "b"], ["c"])
    bench.end("a")
    assert bench.step() == {"b": 1, "c": 2}


def test_a_sequence_that_is_removed_is_gone_wherever_it_was():
    bench = Bench(max_running=1)
    running, waiting = bench.add("a", 2), bench.add("b", 2)
    bench.step()

    bench.end("b")
    bench.end("a")

    assert not bench.scheduler.has_work
    assert running.status is waiting.status is SequenceStatus.FINISHED


def test_the_owner_with_the_fewest_running_is_served_first():
    bench = Bench(max_running=3)
    for i in range(4):
        bench.add(f"ann{i}", 1, "ann")
    bench.add("bob0", 1, "bob")
    bench.add("bob1", 1, "bob")
    bench.add("cid0", 1, "cid")

    bench.step()
    assert bench.running == ["ann0", "bob0", "cid0"]

    bench.end("bob0")
    bench.step()
    assert bench.running == ["ann0", "bob1", "cid0"]


def test_what_an_owner_runs_already_counts():
    bench = Bench(max_running=3)
    bench.add("ann0", 1, "ann")
    bench.add("ann1", 1, "ann")
    bench.step()
    bench.add("ann2", 1, "ann")
    bench.add("bob0", 1, "bob")

    bench.step()

    assert bench.running == ["ann0", "ann1", "bob0"]


def test_one_owner_s_sequences_are_served_in_order_of_arrival():
    bench = Bench(max_running=2)
    for name in "abcd":
        bench.add(name, 1)
    order = []
    while bench.scheduler.has_work:
        bench.step()
        order.append(bench.running[0])
        bench.end(bench.running[0])

    assert order == list("abcd")


def test_the_youngest_is_preempted_when_blocks_run_out():
    bench = Bench(num_blocks=10)
    for name in "abc":
        bench.add(name, 3)
    bench.step()

    assert bench.step() == {"a": 1, "b": 1}
    assert (bench.running, bench.waiting) == (["a", "b"], ["c"])
    victim = bench.sequences["c"]
    assert bench.cache.released == ["c"]
    assert victim.status is SequenceStatus.WAITING
    assert (victim.num_computed_tokens, victim.num_preemptions) == (0, 1)
    assert bench.scheduler.num_preemptions == 1


def test_the_youngest_waits_itself_when_it_is_the_one_that_lacks_a_block():
    bench = Bench(num_blocks=8)
    bench.add("a", 3)
    bench.add("b", 3)
    bench.step()

    assert bench.step() == {"a": 1, "b": 1}
    assert bench.step() == {"a": 1}
    assert bench.cache.released == ["b"]


def test_a_planned_victim_s_row_goes_to_others():
    bench = Bench(num_blocks=44)
    bench.place("a", 17, num_computed=5)
    bench.place("b", 15, num_computed=14)
    bench.place("c", 12, num_computed=11)
    bench.sequences["c"].token_ids.append(0)
    bench.sequences["c"].num_computed_tokens += 1
    bench.sequences["b"].token_ids.append(0)
    bench.sequences["b"].num_computed_tokens += 1
    assert bench.cache.num_free == 0

    # `b` wants a block and there is none; nor has `c`, which is the youngest, one then.
    assert bench.step() == {"b": 1, "a": 9}
    assert bench.cache.released == ["c"]


def test_the_oldest_always_gets_on():
    bench = Bench(num_blocks=20, token_budget=30)
    for i in range(6):
        bench.add(f"s{i}", 5)
    finished = []
    for _ in range(300):
        oldest = min(bench.sequences.values(), key=lambda s: s.arrived_s, default=None)
        if oldest is None:
            break
        bench.step()
        assert oldest.num_preemptions == 0 or oldest.status is SequenceStatus.RUNNING
        for name in [n for n, s in bench.sequences.items() if s.num_tokens >= 15]:
            bench.end(name)
            del bench.sequences[name]
            finished.append(name)

    assert finished == sorted(finished)
    assert len(finished) == 6


def test_nobody_overtakes_a_sequence_that_waits_for_blocks():
    bench = Bench(num_blocks=10, token_budget=20)
    bench.add("a", 4)
    bench.step()
    bench.add("large", 8)
    bench.add("small", 1)

    assert bench.step() == {"a": 1}
    assert bench.waiting == ["large", "small"]
    bench.end("a")
    assert bench.step() == {"large": 8, "small": 1}


def test_the_preempted_wait_ahead_of_everything_younger():
    bench = Bench(num_blocks=8, max_running=2)
    bench.add("a", 3)
    bench.add("b", 3)
    bench.step()
    bench.add("c", 1)
    bench.step()
    bench.step()
    assert (bench.running, bench.waiting) == (["a"], ["b", "c"])

    bench.end("a")

    assert bench.step() == {"b": 5, "c": 1}
    assert bench.running == ["b", "c"]


def test_what_a_preempted_sequence_reports_is_its_first_claim():
    bench = Bench(num_blocks=8)
    bench.add("a", 3)
    bench.add("b", 3)
    bench.step()
    first = bench.sequences["b"].claim
    bench.step()
    bench.step()
    bench.end("a")
    bench.step()

    assert bench.sequences["b"].num_preemptions == 1
    assert bench.sequences["b"].claim is first


@pytest.mark.parametrize("token_budget", [1, 2, 3])
def test_any_budget_gets_everything_done(token_budget):
    bench = Bench(token_budget=token_budget)
    for name in "abc":
        bench.add(name, 5)
    for _ in range(100):
        bench.step()
        for name in [s.id for s in bench.scheduler.running if s.num_tokens > 8]:
            bench.end(name)

    assert not bench.scheduler.has_work
