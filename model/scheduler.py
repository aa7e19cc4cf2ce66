"""Which sequences run in the next step, and how many tokens of each are computed.

Decoding sequences go first, one token each; what the step budget has left goes to prefill, in
chunks, of whoever runs. A sequence that waits is let in as soon as its prompt's blocks can be had:
of the waiting, the owner with the fewest running sequences is served first, and for one owner the
one that came first. Whose chunks come first is another question: of each owner the shortest, so
that a new turn doesn't wait behind somebody's long text, but the oldest always gets its share.
Where an owner's second one's rows take longer than a step costs, they wait for the next step:
computed together, both would come as late as the later one does now.
When blocks run out the youngest running sequence is preempted: its blocks are taken away and it
waits, ahead of everything younger, to compute again what can't be found in the prefix index.

Invariants:
    a sequence is in exactly one of `waiting` and `running`
    a running sequence has blocks for all the tokens that it was let in with
    the oldest running sequence is never preempted for another, so somebody always gets on
    the oldest of the prompts gets on in every step
"""

from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from heapq import heapify, heappop, heapreplace

from model.cache_manager import CacheManager, PrefixPendingError
from model.costs import num_pairs
from model.errors import OutOfBlocksError
from model.sequence import Sequence, SequenceStatus
from model.step_budget import StepBudget, StepWork

_OLDEST_SHARE = 0.25
"""Of what a step has for prompts."""
_MAX_PROMPTS = 8
"""An owner who has so many prompts in the making, and more than a step's rows of them, gets no
other one let in: they would hold blocks that somebody else could use sooner."""


@dataclass(frozen=True, slots=True)
class Scheduled:
    """The next `num_tokens` uncomputed tokens of a sequence are computed in this step."""

    sequence: Sequence
    num_tokens: int

    @property
    def has_logits(self) -> bool:
        """Whether the step reaches the sequence's last token, so that a new one is sampled."""
        return self.num_tokens == self.sequence.num_uncomputed_tokens


def work_of(plan: Iterable[Scheduled]) -> StepWork:
    """What a step that is about to be computed is made of."""
    num_replies = num_read = num_rows = 0
    num_kpairs = 0.0
    for scheduled in plan:
        start, num = scheduled.sequence.num_computed_tokens, scheduled.num_tokens
        if scheduled.sequence.num_uncomputed_tokens == 1:
            num_replies, num_read = num_replies + 1, num_read + start + 1
        else:
            num_rows, num_kpairs = num_rows + num, num_kpairs + num_pairs(start, start + num)
    return StepWork(num_replies, num_read, num_rows, num_kpairs)


_Plan = dict[str, Scheduled]
"""A step as far as it is decided, by the sequences' ids."""


class Scheduler:
    """Two queues in order of arrival. The budget bounds a step's rows, `max_running` its
    sequences. The queues are bounded by the engine's admission bound."""

    def __init__(self, cache: CacheManager, budget: StepBudget, *, max_running: int) -> None:
        self._cache = cache
        self._budget = budget
        # Each needs a row a step, or some would be starved.
        self._max_running = min(max_running, budget.token_budget)
        self.waiting: list[Sequence] = []
        self.running: list[Sequence] = []
        self.num_preemptions = 0
        self.num_held_steps = 0
        """Steps with rows left, and no time for them."""

    @property
    def has_work(self) -> bool:
        """Whether a step would do anything."""
        return bool(self.waiting or self.running)

    def add(self, sequence: Sequence) -> None:
        """Let a new sequence wait."""
        self.waiting.append(sequence)

    def remove(self, sequence: Sequence) -> None:
        """Take a sequence out, wherever it is; its blocks are the caller's business."""
        queue = self.running if sequence.status is SequenceStatus.RUNNING else self.waiting
        queue.remove(sequence)
        sequence.status = SequenceStatus.FINISHED

    def schedule(self) -> list[Scheduled]:
        """Decide the next step, with blocks for every token in it; empty if there is no work, or
        all of it waits for a transfer."""
        plan: _Plan = {}
        for sequence in list(self.running):
            if sequence.num_uncomputed_tokens == 1:
                self._extend(plan, sequence)
        self._admit()
        self._share_out(plan)
        waits = self._cache.num_transfers > 0
        assert plan or waits or not self.has_work, "nobody gets on"
        return list(plan.values())

    def _extend(self, plan: _Plan, sequence: Sequence) -> None:
        """Plan a reply's next token, preempting from the youngest on while a block lacks."""
        while sequence.status is SequenceStatus.RUNNING:
            try:
                self._cache.grow(sequence, 1)
            except OutOfBlocksError:
                self._preempt(plan, max(self.running, key=_age))
            else:
                plan[sequence.id] = Scheduled(sequence, 1)
                return

    def _share_out(self, plan: _Plan) -> None:
        """Plan the prompts' chunks."""
        prompts = [s for s in self.running if s.id not in plan]
        if not prompts:
            return
        num_read = sum(s.sequence.num_tokens for s in plan.values())
        room = self._budget.open(len(plan), num_read)
        oldest = min(prompts, key=_age)
        num_planned = Counter[str]()
        shares = [(0, oldest, _OLDEST_SHARE), *((*pair, 1.0) for pair in _shortest_first(prompts))]
        for rank, sequence, share in shares:
            start = sequence.num_computed_tokens + num_planned[sequence.id]
            num_tokens = room.fit(start, sequence.num_tokens - start, share)
            # An owner's second waits; whose first waited would wait for all of somebody else's.
            if rank and room.is_better_apart(start, num_tokens):
                continue
            room.take(start, num_tokens)
            num_planned[sequence.id] += num_tokens
        for sequence in prompts:
            if num_tokens := num_planned[sequence.id]:
                plan[sequence.id] = Scheduled(sequence, num_tokens)
        is_short = any(num_planned[s.id] < s.num_uncomputed_tokens for s in prompts)
        self.num_held_steps += is_short and room.num_rows > 0

    def _preempt(self, plan: _Plan, victim: Sequence) -> None:
        plan.pop(victim.id, None)
        self._cache.release(victim)
        self.running.remove(victim)
        victim.status = SequenceStatus.WAITING
        victim.num_preemptions += 1
        self.num_preemptions += 1
        self.waiting.append(victim)
        self.waiting.sort(key=_age)

    def _admit(self) -> None:
        candidates = self._candidates()
        rows_by_owner: defaultdict[str, list[int]] = defaultdict(list)
        for running in self.running:
            if running.num_uncomputed_tokens > 1:
                rows_by_owner[running.request.owner].append(running.num_uncomputed_tokens)
        while len(self.running) < self._max_running:
            sequence = next(candidates, None)
            if sequence is None:
                return
            rows = rows_by_owner[sequence.request.owner]
            if len(rows) >= _MAX_PROMPTS and sum(rows) >= self._budget.token_budget:
                continue
            try:
                self._start(sequence)
            except PrefixPendingError:
                continue  # it waits for its tokens, not for blocks: others may overtake
            except OutOfBlocksError:
                return  # nobody overtakes a sequence that waits for blocks
            rows.append(sequence.num_uncomputed_tokens)

    def _candidates(self) -> Iterator[Sequence]:
        """The waiting, fairest first, counting each one as running once it is handed out."""
        num_running = Counter(s.request.owner for s in self.running)
        waiting = list(self.waiting)  # in order of arrival, so a place says who came first
        places: defaultdict[str, deque[int]] = defaultdict(deque)
        for place, sequence in enumerate(waiting):
            places[sequence.request.owner].append(place)
        owners = [(num_running[owner], queue.popleft(), owner) for owner, queue in places.items()]
        heapify(owners)
        while owners:
            num, place, owner = owners[0]
            if places[owner]:
                heapreplace(owners, (num + 1, places[owner].popleft(), owner))
            else:
                heappop(owners)
            yield waiting[place]

    def _start(self, sequence: Sequence) -> None:
        report = self._cache.claim(sequence)
        self._cache.grow(sequence, sequence.num_uncomputed_tokens)  # the claim saw to it
        sequence.claim = sequence.claim or report  # one after preemption says nothing new
        sequence.status = SequenceStatus.RUNNING
        self.waiting.remove(sequence)
        self.running.append(sequence)
        self.running.sort(key=_age)


def _age(sequence: Sequence) -> float:
    return sequence.arrived_s


def _shortest_first(prompts: Iterable[Sequence]) -> list[tuple[int, Sequence]]:
    """Each owner's shortest prompt, then each one's second, and so on; the shorter of those first,
    and of two of a length the older. Each behind the number of its owner's that come before it."""
    ranks = Counter[str]()
    ranked: list[tuple[int, Sequence]] = []
    for sequence in sorted(prompts, key=lambda s: (s.num_uncomputed_tokens, s.arrived_s)):
        ranked.append((ranks[sequence.request.owner], sequence))
        ranks[sequence.request.owner] += 1
    return sorted(ranked, key=lambda pair: pair[0])
