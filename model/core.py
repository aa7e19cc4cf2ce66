"""The engine as one synchronous object: submit, cancel, step.

Joins what must not know each other: the scheduler decides, the runner computes, the reply's text
decides where it ends. No threads, no sockets; the clock is given.

Invariants:
    after a generation num_computed_tokens ≤ num_tokens - 1
    a generation's events are at most one started (none if it ended while it waited), any number of
    deltas, one finished or one failure
    the books balance after every step (asserted with `check_books`; else `audit` looks when idle)
"""

import logging
import secrets
from collections.abc import Callable
from collections.abc import Sequence as Items
from dataclasses import replace

from model.admission import Admission
from model.batch import BatchRow
from model.block_table import BlockTable
from model.cache_manager import CacheManager
from model.config import EngineConfig, Mode
from model.detokenizer import ReplyText
from model.errors import ModelError
from model.grammar import GrammarSource, constraint_of, unfollowable
from model.messages import (
    EngineStats,
    FinishReason,
    GenerationDelta,
    GenerationFinished,
    GenerationRequest,
    GenerationStarted,
    Residency,
    SampledLogprobs,
    TableView,
    TierName,
)
from model.ports import CoreLimits, Runner, Tokenizer
from model.ports import Output as Output  # what a step gives is known by the core's name
from model.sampler import Draw, Sampled
from model.scheduler import Scheduled, Scheduler, work_of
from model.sequence import Sequence, SequenceStatus
from model.statistics import Statistics
from model.step_budget import StepBudget

logger = logging.getLogger(__name__)

_MIN_OBSERVED_ROWS = 16
"""Below, a step's time says more of the weights than of its rows."""


class EngineCore:
    """Owns every sequence, block and tensor. Used from one thread."""

    def __init__(
        self,
        config: EngineConfig,
        limits: CoreLimits,
        cache: CacheManager,
        runner: Runner,
        tokenizer: Tokenizer,
        clock: Callable[[], float],
        grammars: GrammarSource | None = None,
    ) -> None:
        self.limits = limits
        self.cache = cache
        self.grammars = grammars
        self.statistics = Statistics()
        self.clock = clock
        self._config = config
        self._runner = runner
        self._tokenizer = tokenizer
        self._admission = Admission(config, limits)
        is_timed = config.mode is Mode.FAST
        self._budget = StepBudget(config.token_budget, config.max_itl_s if is_timed else None)
        self._scheduler = Scheduler(cache, self._budget, max_running=config.max_running)
        self._sequences: dict[str, Sequence] = {}
        self._replies: dict[str, ReplyText] = {}
        self.is_stalled = False  # whether all that there is to do waits for a transfer
        self._outputs: list[Output] = []  # of the step under way; a failed one has ended some too

    @property
    def has_work(self) -> bool:
        """Whether a step would do anything."""
        return self._scheduler.has_work

    @property
    def is_due(self) -> bool:
        """Whether time alone gives it something to do: a transfer to order, or to give up."""
        return self.is_stalled or self.cache.tiering.is_due()

    def submit(self, request: GenerationRequest) -> list[Output]:
        """Let a generation wait for its turn. Raises InvalidGenerationError or EngineBusyError.

        Nothing comes of it yet, unless the tokens it resumes with are a whole reply already.
        """
        self._admission.check(request, self._sequences)
        num_prompt = len(request.token_ids)
        max_tokens = self.limits.max_context_tokens
        if request.params.max_output_tokens is not None:
            max_tokens = min(max_tokens, num_prompt + request.params.max_output_tokens)
        seed = request.params.seed
        sequence = Sequence(
            request=request,
            table=BlockTable(self.cache.block_size),
            arrived_s=self.clock(),
            seed=secrets.randbits(63) if seed is None else seed,
            max_tokens=max_tokens,
            constraint=constraint_of(request.params.grammar, self.grammars),
        )
        self._sequences[sequence.id] = sequence
        self._replies[sequence.id] = ReplyText(self._tokenizer.decode, request.params.stop)
        self._scheduler.add(sequence)
        return self._resume(sequence)

    def _resume(self, sequence: Sequence) -> list[Output]:
        """Take the reply's tokens in that were sampled and reported before; only an end that was
        not reported any more is."""
        for token_id in sequence.request.resumed_ids or ():
            outputs = self._append(sequence, token_id)
            if sequence.id not in self._sequences:
                return [o for o in outputs if not isinstance(o.event, GenerationDelta)]
        return []

    def cancel(self, request_id: str) -> list[Output]:
        """End a generation with what it has; nothing if it is unknown or over."""
        sequence = self._sequences.get(request_id)
        if sequence is None:
            return []
        return self._finish(sequence, FinishReason.CANCELLED)

    def fail_all(self, error: ModelError) -> list[Output]:
        """Give every generation up: a step broke, and whose fault it was can't be told. What the
        step had done until then comes first."""
        failed = [self._fail(sequence, error) for sequence in list(self._sequences.values())]
        return [*self._take_outputs(), *failed]

    def step(self) -> list[Output]:
        """Compute one batch; what happened, in order."""
        begun = self.clock()
        self._outputs += self._end_overdue()
        self.cache.tick(self.clock())
        plan = self._scheduler.schedule()
        self._launch()
        self.is_stalled = not plan and self._scheduler.has_work
        if not plan:
            return self._take_outputs()
        work = work_of(plan)
        self._outputs += [self._start(s.sequence) for s in plan if s.sequence.started_s is None]
        self._compute(plan)
        for scheduled in plan:
            if scheduled.sequence.id in self._sequences:
                self.cache.commit(scheduled.sequence)
        seconds = self.clock() - begun
        is_late = self._budget.observe(work, seconds)
        num_chunks = len(plan) - work.num_replies
        self.statistics.record_step(work, num_chunks, seconds, is_late=is_late)
        if self._config.check_books:
            self.cache.check()
        return self._take_outputs()

    def _compute(self, plan: Items[Scheduled]) -> None:
        """Compute what is planned, and take in the tokens that come of it."""
        reached = [s.sequence for s in plan if s.has_logits]
        begun = self.clock()
        logits = self._runner.forward([_to_row(s) for s in plan], self.cache.supply.take_edits())
        drawn = self._runner.sample(logits, [_to_draw(s) for s in reached]) if reached else []
        self._observe(plan, self.clock() - begun)
        for scheduled in plan:
            scheduled.sequence.num_computed_tokens += scheduled.num_tokens
            scheduled.sequence.num_rows_computed += scheduled.num_tokens
        for sequence, sampled in zip(reached, drawn, strict=True):
            self._outputs += self._take(sequence, sampled)

    def _observe(self, plan: Items[Scheduled], seconds: float) -> None:
        """Learn what computing again costs from steps that are one prompt's alone."""
        if len(plan) == 1 and plan[0].num_tokens >= _MIN_OBSERVED_ROWS:
            num_before = plan[0].sequence.num_computed_tokens
            self.cache.tiering.costs.observe_compute(plan[0].num_tokens, num_before, seconds)

    def tick(self) -> None:
        """Let transfers come and go while nothing is computed."""
        self.cache.tick(self.clock())
        self._launch()

    def _launch(self) -> None:
        """Begin with the transfers that were ordered, on blocks that are as the tables say."""
        if self.cache.tiering.has_orders:
            if edits := self.cache.supply.take_edits():
                self._runner.edit(edits)
            self.cache.tiering.launch()

    def _take_outputs(self) -> list[Output]:
        outputs, self._outputs = self._outputs, []
        return outputs

    def _end_overdue(self) -> list[Output]:
        """End what has passed its deadline, with what it has."""
        now = self.clock()
        overdue = [s for s in self._sequences.values() if s.deadline_s < now]
        return [o for s in overdue for o in self._finish(s, FinishReason.DEADLINE)]

    def _start(self, sequence: Sequence) -> Output:
        assert sequence.claim is not None
        sequence.started_s = self.clock()
        self.statistics.record_start(sequence.claim, sequence.started_s - sequence.arrived_s)
        if sequence.restore_s:
            self.statistics.restore_s.observe(sequence.restore_s)
        return Output(sequence.id, GenerationStarted(claim=sequence.claim))

    def _take(self, sequence: Sequence, sampled: Sampled) -> list[Output]:
        """Take a sampled token in, unless the reply may have none."""
        if sequence.num_tokens >= sequence.max_tokens:
            return self._finish(sequence, FinishReason.LENGTH)
        self._record_token(sequence)
        return self._append(sequence, sampled.token_id, sampled.logprobs)

    def _append(
        self, sequence: Sequence, token_id: int, logprobs: SampledLogprobs | None = None
    ) -> list[Output]:
        """Put a token behind the reply; its delta, and the end if this is it."""
        sequence.token_ids.append(token_id)
        reply = self._replies[sequence.id]
        text, is_stopped = reply.push(token_id)
        sequence.num_committed_tokens = sequence.num_prompt_tokens + reply.num_final_tokens
        delta = GenerationDelta(
            token_ids=(token_id,), text=text, logprobs=(logprobs,) if logprobs else ()
        )
        outputs = [Output(sequence.id, delta)]
        constraint = sequence.constraint
        if constraint is not None:
            constraint.take(token_id)
        if constraint is not None and constraint.error is not None:
            outputs.append(
                self._fail(sequence, unfollowable(sequence.request.params.grammar, constraint))
            )
        elif is_stopped or self._is_end(sequence, token_id):
            outputs += self._finish(sequence, FinishReason.STOP, is_stopped=is_stopped)
        elif sequence.num_tokens >= sequence.max_tokens:
            outputs += self._finish(sequence, FinishReason.LENGTH)
        return outputs

    def _is_end(self, sequence: Sequence, token_id: int) -> bool:
        params = sequence.request.params
        is_eos = token_id in self.limits.eos_token_ids and not params.ignore_eos
        is_whole = sequence.constraint is not None and sequence.constraint.is_over
        return is_eos or is_whole or token_id in params.stop_token_ids

    def _finish(
        self, sequence: Sequence, reason: FinishReason, *, is_stopped: bool = False
    ) -> list[Output]:
        """End a generation: settle its text and ids, park its table, tell."""
        reply = self._replies[sequence.id]
        rest = ""
        if is_stopped:
            cut = reply.cut()
            tail = self._tokenizer.encode(cut.rest) if cut.rest else []
            sequence.replace_reply(cut.num_tokens, tail)
        else:
            rest = reply.finish()
        self._leave(sequence, keep=True)
        self.statistics.record_finish(reason)
        outputs = [Output(sequence.id, GenerationDelta(token_ids=(), text=rest))] if rest else []
        return [*outputs, Output(sequence.id, self._finished(sequence, reason, reply.text))]

    def _fail(self, sequence: Sequence, error: ModelError) -> Output:
        self._leave(sequence, keep=False)
        self.statistics.num_failed += 1
        return Output(sequence.id, error)

    def _leave(self, sequence: Sequence, *, keep: bool) -> None:
        """Take a sequence out of everything; its table is parked, or given back."""
        if sequence.status is SequenceStatus.RUNNING:
            if keep:
                sequence.num_committed_tokens = sequence.num_tokens
                sequence.num_computed_tokens = min(
                    sequence.num_computed_tokens, sequence.num_tokens - 1
                )
                self.cache.commit(sequence)
                self.cache.park(sequence, self.clock())
            else:
                self.cache.release(sequence)
        self._scheduler.remove(sequence)
        del self._sequences[sequence.id], self._replies[sequence.id]

    def _finished(self, sequence: Sequence, reason: FinishReason, text: str) -> GenerationFinished:
        arrived, now = sequence.arrived_s, self.clock()
        started, first = sequence.started_s, sequence.first_token_s
        claimed = sequence.claimed_s
        return GenerationFinished(
            reason=reason,
            token_ids=sequence.reply_ids,
            text=text,
            num_rows_computed=sequence.num_rows_computed,
            num_preemptions=sequence.num_preemptions,
            queue_s=(now if started is None else started) - arrived,
            claim_s=0.0 if started is None or claimed is None else started - claimed,
            restore_s=sequence.restore_s,
            first_token_s=None if first is None else first - arrived,
            total_s=now - arrived,
        )

    def _record_token(self, sequence: Sequence) -> None:
        now = self.clock()
        if sequence.last_token_s is None:
            sequence.first_token_s = now
            self.statistics.first_token_s.observe(now - sequence.arrived_s)
        else:
            self.statistics.inter_token_s.observe(now - sequence.last_token_s)
        sequence.last_token_s = now
        self.statistics.num_tokens += 1

    # Between turns

    def audit(self) -> None:
        """Check the books in production, where a miscount is logged and counted: it is our bug, and
        no reason to stop serving. Costs what there is of blocks and parked tables."""
        try:
            self.cache.check()
        except AssertionError:
            logger.exception("the block books don't balance")
            self.statistics.num_books_failures += 1

    def park(self, conversation_id: str, tier: TierName) -> bool:
        """Store a conversation's tables in a tier and give their blocks up then; False if there is
        no such tier, or nothing on the device."""
        return self.cache.tiering.park(conversation_id, tier)

    def release(self, conversation_id: str) -> int:
        """Forget a conversation's parked tables and what only they held; the blocks freed."""
        return self.cache.release_conversation(conversation_id)

    def evict(self, conversation_id: str | None) -> int:
        """Drop one conversation's cached state, or everybody's; the blocks dropped."""
        if conversation_id is None:
            return self.cache.evict_all()
        return self.cache.evict(conversation_id)

    def tables(self, conversation_id: str) -> tuple[TableView, ...]:
        """A conversation's block tables."""
        return self.cache.view(conversation_id, self.clock(), self.limits.block_bytes)

    def residency(self) -> tuple[Residency, ...]:
        """Where each conversation's newest table is."""
        return self.cache.residency(self.clock(), self.limits.block_bytes)

    def stats(self) -> EngineStats:
        """A snapshot of everything that is counted."""
        scheduler, cache = self._scheduler, self.cache
        snapshot = self.statistics.snapshot(
            num_blocks=cache.pool.num_blocks,
            blocks=cache.count_blocks(),
            queues=(len(scheduler.running), len(scheduler.waiting), cache.num_parked_tables),
            rows_computed_total=self._runner.num_rows,
            setbacks=(scheduler.num_preemptions, scheduler.num_held_steps),
            evicted_blocks_total=cache.supply.num_evicted_blocks,
            tiers=cache.tiering.stats(),
        )
        return replace(snapshot, compiled=self._runner.compiled())


def _to_row(scheduled: Scheduled) -> BatchRow:
    sequence, start = scheduled.sequence, scheduled.sequence.num_computed_tokens
    return BatchRow(
        token_ids=sequence.token_ids[start : start + scheduled.num_tokens],
        start=start,
        block_ids=sequence.table.block_ids,
        has_logits=scheduled.has_logits,
    )


def _to_draw(sequence: Sequence) -> Draw:
    return Draw(
        params=sequence.request.params,
        seed=sequence.seed,
        position=sequence.num_tokens,
        token_ids=sequence.token_ids,
        num_prompt_tokens=sequence.num_prompt_tokens,
        mask=None if sequence.constraint is None else sequence.constraint.mask(),
    )
