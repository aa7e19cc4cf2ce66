"""Who runs in the next step, over a cache that only counts blocks."""

import pytest

from model.block_table import BlockTable, num_blocks_for
from model.config import SamplingParams
from model.errors import OutOfBlocksError
from model.messages import ClaimReport, GenerationRequest
from model.scheduler import Scheduler
from model.sequence import Sequence, SequenceStatus


class CountingCache:
    """Blocks of one token each, as a number; nothing is ever found again."""

    num_transfers = 0

    def __init__(self, num_blocks: int = 1000) -> None:
        self.num_free = num_blocks
        self.released: list[str] = []

    def claim(self, sequence: Sequence) -> ClaimReport:
        self._require(sequence.num_tokens)
        return ClaimReport(
            num_prompt_tokens=sequence.num_prompt_tokens, computed=len(self.released)
        )

    def grow(self, sequence: Sequence, num_new_tokens: int) -> None:
        table = sequence.table
        end = sequence.num_computed_tokens + num_new_tokens
        wanted = max(0, num_blocks_for(end, table.block_size) - len(table))
        self._require(wanted)
        self.num_free -= wanted
        table.block_ids += [0] * wanted

    def release(self, sequence: Sequence) -> None:
        self.released.append(sequence.id)
        self.num_free += len(sequence.table.truncate(0))
        sequence.num_computed_tokens = 0

    def _require(self, wanted: int) -> None:
        if wanted > self.num_free:
            raise OutOfBlocksError(wanted, self.num_free)


class Bench:
    """A scheduler, and steps that only count."""

    def __init__(self, *, num_blocks=1000, token_budget=10, max_running=8) -> None:
        self.cache = CountingCache(num_blocks)
        self.scheduler = Scheduler(
            self.cache,  # type: ignore[arg-type]
            token_budget=token_budget,
            max_running=max_running,
        )
        self.sequences: dict[str, Sequence] = {}

    def add(self, name: str, num_tokens: int, owner: str = "") -> Sequence:
        request = GenerationRequest(
            request_id=name,
            token_ids=(0,) * num_tokens,
            params=SamplingParams(),
            owner=owner,
        )
        sequence = self.sequences[name] = Sequence(
            request=request,
            table=BlockTable(1),
            arrived_s=float(len(self.sequences)),
            seed=0,
            max_tokens=1000,
        )
        self.scheduler.add(sequence)
        return sequence

    def place(self, name: str, num_tokens: int, *, num_computed: int) -> None:
        """A sequence in the middle of its work."""
        sequence = self.add(name, num_tokens)
        self.cache.grow(sequence, num_computed)
        sequence.num_computed_tokens = num_computed
        sequence.status = SequenceStatus.RUNNING
        self.scheduler.waiting.remove(sequence)
        self.scheduler.running.append(sequence)

    def step(self) -> dict[str, int]:
        """Schedule, compute, sample: who ran, and how many tokens of each."""
        plan = self.scheduler.schedule()
        for scheduled in plan:
            has_logits = scheduled.has_logits
            scheduled.sequence.num_computed_tokens += scheduled.num_tokens
            if has_logits:
                scheduled.sequence.token_ids.append(0)
        return {s.sequence.id: s.num_tokens for s in plan}

    def end(self, name: str) -> None:
        sequence = self.sequences[name]
        self.cache.release(sequence)
        self.scheduler.remove(sequence)

    @property
    def running(self) -> list[str]:
        return [s.id for s in self.scheduler.running]

    @property
    def waiting(self) -> list[str]:
        return [s.id for s in self.scheduler.waiting]


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


def test_a_planned_victim_s_budget_goes_to_others():
    bench = Bench(num_blocks=40)
    bench.place("a", 15, num_computed=10)
    bench.place("b", 25, num_computed=15)
    bench.place("c", 12, num_computed=11)
    assert bench.cache.num_free == 4

    # `c` is planned first with one of ten tokens; then `a` wants five blocks and three are left.
    assert bench.step() == {"a": 5, "b": 5}
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
