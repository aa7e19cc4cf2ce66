"""A scheduler over a cache that only counts blocks, and steps that only count tokens."""

from model.block_table import BlockTable, num_blocks_for
from model.config import SamplingParams
from model.errors import OutOfBlocksError
from model.messages import ClaimReport, GenerationRequest
from model.scheduler import Scheduler, work_of
from model.sequence import Sequence, SequenceStatus
from model.step_budget import StepBudget, StepWork


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
    """A scheduler, and steps that only count; a `machine` says how long each takes."""

    def __init__(
        self, *, num_blocks=1000, token_budget=10, max_running=8, max_itl_s=None, machine=None
    ) -> None:
        self.cache = CountingCache(num_blocks)
        self.budget = StepBudget(token_budget, max_itl_s)
        self.machine = machine or (lambda work: 0.0)
        self.done: list[tuple[StepWork, float]] = []  # of each step, and how long it took
        self.scheduler = Scheduler(
            self.cache,  # type: ignore[arg-type]
            self.budget,
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
            max_tokens=100_000,
        )
        self.scheduler.add(sequence)
        return sequence

    def place(self, name: str, num_tokens: int, *, num_computed: int) -> None:
        """A sequence in the middle of its work."""
        sequence = self.add(name, num_tokens)
        self.cache.grow(sequence, num_tokens)
        sequence.num_computed_tokens = num_computed
        sequence.status = SequenceStatus.RUNNING
        self.scheduler.waiting.remove(sequence)
        self.scheduler.running.append(sequence)

    def step(self) -> dict[str, int]:
        """Schedule, compute, sample: who ran, and how many tokens of each."""
        plan = self.scheduler.schedule()
        work = work_of(plan)
        seconds = self.machine(work)
        self.budget.observe(work, seconds)
        self.done.append((work, seconds))
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
