"""Which sequences run in the next step, and how many tokens of each are computed.

Decoding sequences go first, one token each; what is left of the token budget goes to prefill, in
chunks, of the sequences that run already and then of those that wait. Of the waiting, the owner
with the fewest running sequences is served first, and for one owner the one that came first.
When blocks run out the youngest running sequence is preempted: its blocks are taken away and it
waits, ahead of everything younger, to compute again what can't be found in the prefix index.

Invariants:
    a sequence is in exactly one of `waiting` and `running`
    the oldest running sequence is never preempted for another, so somebody always gets on
"""

from collections import Counter, defaultdict, deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from heapq import heapify, heappop, heapreplace

from model.cache_manager import CacheManager, PrefixPendingError
from model.errors import OutOfBlocksError
from model.sequence import Sequence, SequenceStatus


@dataclass(frozen=True, slots=True)
class Scheduled:
    """The next `num_tokens` uncomputed tokens of a sequence are computed in this step."""

    sequence: Sequence
    num_tokens: int

    @property
    def has_logits(self) -> bool:
        """Whether the step reaches the sequence's last token, so that a new one is sampled."""
        return self.num_tokens == self.sequence.num_uncomputed_tokens


@dataclass(slots=True)
class _Plan:
    """A step as far as it is decided; `num_left` is what is left of the token budget."""

    num_left: int
    by_id: dict[str, Scheduled] = field(default_factory=dict)

    def add(self, sequence: Sequence, num_tokens: int) -> None:
        self.by_id[sequence.id] = Scheduled(sequence, num_tokens)
        self.num_left -= num_tokens

    def drop(self, sequence: Sequence) -> None:
        if (dropped := self.by_id.pop(sequence.id, None)) is not None:
            self.num_left += dropped.num_tokens


class Scheduler:
    """Two queues in order of arrival. `token_budget` bounds a step's rows, `max_running` its
    sequences. The queues are bounded by the engine's admission bound."""

    def __init__(self, cache: CacheManager, *, token_budget: int, max_running: int) -> None:
        self._cache = cache
        self._token_budget = token_budget
        self._max_running = max_running
        self.waiting: list[Sequence] = []
        self.running: list[Sequence] = []
        self.num_preemptions = 0

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
        plan = _Plan(self._token_budget)
        for sequence in list(self.running):
            if sequence.num_uncomputed_tokens == 1:
                self._extend(plan, sequence)
        for sequence in list(self.running):
            if sequence.num_uncomputed_tokens > 1:
                self._extend(plan, sequence)
        self._admit(plan)
        waits = self._cache.num_transfers > 0
        assert plan.by_id or waits or not self.has_work, "nobody gets on"
        return list(plan.by_id.values())

    def _extend(self, plan: _Plan, sequence: Sequence) -> None:
        """Plan the sequence's next tokens, preempting from the youngest on while blocks lack."""
        num_tokens = min(sequence.num_uncomputed_tokens, plan.num_left)
        while num_tokens > 0 and sequence.status is SequenceStatus.RUNNING:
            try:
                self._cache.grow(sequence, num_tokens)
            except OutOfBlocksError:
                self._preempt(plan, max(self.running, key=_age))
            else:
                plan.add(sequence, num_tokens)
                return

    def _preempt(self, plan: _Plan, victim: Sequence) -> None:
        plan.drop(victim)
        self._cache.release(victim)
        self.running.remove(victim)
        victim.status = SequenceStatus.WAITING
        victim.num_preemptions += 1
        self.num_preemptions += 1
        self.waiting.append(victim)
        self.waiting.sort(key=_age)

    def _admit(self, plan: _Plan) -> None:
        candidates = self._candidates()
        while plan.num_left > 0 and len(self.running) < self._max_running:
            sequence = next(candidates, None)
            if sequence is None:
                return
            try:
                self._start(sequence)
            except PrefixPendingError:
                continue  # it waits for its tokens, not for blocks: others may overtake
            except OutOfBlocksError:
                return  # nobody overtakes a sequence that waits for blocks
            num_tokens = min(sequence.num_uncomputed_tokens, plan.num_left)
            self._cache.grow(sequence, num_tokens)
            plan.add(sequence, num_tokens)

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
        sequence.claim = sequence.claim or report  # one after preemption says nothing new
        sequence.status = SequenceStatus.RUNNING
        self.waiting.remove(sequence)
        self.running.append(sequence)
        self.running.sort(key=_age)


def _age(sequence: Sequence) -> float:
    return sequence.arrived_s
