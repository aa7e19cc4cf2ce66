"""Conversations made ready before anybody asks: for a session that somebody types in, by
`warm_up` for the system prompts that most turns begin with.

Warming is a generation of no tokens: what the next turn will begin with is restored, or computed,
and lies on the device then. It is an offer, whose use is counted, so that it can be told whether it
pays. A turn that comes meanwhile waits for what is restored or computed for it already, and takes
that up.

Invariant: a session is warmed once at a time
"""

import asyncio
from collections import Counter, OrderedDict
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import cast

from model.config import SamplingParams
from model.engine import Engine
from model.messages import (
    ClaimReport,
    FinishReason,
    GenerationEvent,
    GenerationFinished,
    GenerationRequest,
    GenerationStarted,
)
from sessions.ids import new_turn_id
from sessions.prompt import PromptComposer
from sessions.store import Store
from sessions.types import Session, SessionId, TurnId

PAYS_WITHIN = timedelta(minutes=10)
_MAX_REMEMBERED = 10_000
"""Of what was warmed and not used yet; the oldest counts as warmed in vain beyond."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Warmed:
    """What came of it. `turn_id` None: there is nothing to warm yet, or in this model's tokens.
    `claim` None: it ended before it had begun. `is_whole`: the next turn computes only its own."""

    turn_id: TurnId | None = None
    claim: ClaimReport | None = None
    is_whole: bool = False
    total_s: float = 0.0


@dataclass(frozen=True, slots=True)
class WarmingStats:
    """Counts by (cause, what came of it), and tokens by (cause, where they came from)."""

    outcomes: tuple[tuple[tuple[str, str], int], ...]
    tokens: tuple[tuple[tuple[str, str], int], ...]


class WarmingLedger:
    """What was warmed, and whether it was used within `PAYS_WITHIN`."""

    def __init__(self, clock: Callable[[], datetime]) -> None:
        self._clock = clock
        self._open: OrderedDict[tuple[str, str], datetime] = OrderedDict()
        self._outcomes: Counter[tuple[str, str]] = Counter()
        self._tokens: Counter[tuple[str, str]] = Counter()

    def warmed(self, cause: str, name: str, claim: ClaimReport) -> None:
        """Something was made ready. What was on the device already is no merit of ours."""
        sources = {"cpu": claim.from_cpu, "disk": claim.from_disk, "computed": claim.computed}
        for source, num_tokens in sources.items():
            self._tokens[cause, source] += num_tokens
        if sum(sources.values()) <= 1:  # one is always computed
            self._outcomes[cause, "needless"] += 1
            return
        self._open.pop((cause, name), None)
        self._open[cause, name] = self._clock()
        while len(self._open) > _MAX_REMEMBERED:
            (oldest_cause, _), _ = self._open.popitem(last=False)
            self._outcomes[oldest_cause, "in_vain"] += 1

    def used(self, cause: str, name: str) -> None:
        """A turn came that what was warmed is for."""
        self._expire()
        if self._open.pop((cause, name), None) is not None:
            self._outcomes[cause, "used"] += 1

    def stats(self) -> WarmingStats:
        """The counts so far."""
        self._expire()
        return WarmingStats(tuple(self._outcomes.items()), tuple(self._tokens.items()))

    def _expire(self) -> None:
        before = self._clock() - PAYS_WITHIN
        while self._open:
            (cause, name), warmed_at = next(iter(self._open.items()))
            if warmed_at > before:
                return
            del self._open[cause, name]
            self._outcomes[cause, "in_vain"] += 1


class Warming:
    """Warms sessions."""

    def __init__(
        self,
        *,
        store: Store,
        engine: Engine,
        composer: PromptComposer,
        ledger: WarmingLedger,
        clock: Callable[[], datetime],
    ) -> None:
        self._store = store
        self._engine = engine
        self._composer = composer
        self._clock = clock
        self._ledger = ledger
        self._locks: dict[SessionId, asyncio.Lock] = {}  # each goes with its last user
        self._num_users: Counter[SessionId] = Counter()

    async def warm(self, session: Session, deadline_s: float) -> Warmed:
        """Bring what the head's next turn begins with onto the device, as far as that is done
        within the deadline. A session whose head runs is as warm as can be. Raises ModelError."""
        lock = self._locks.setdefault(session.id, asyncio.Lock())
        self._num_users[session.id] += 1
        try:
            async with lock:
                return await self._warm(session, deadline_s)
        finally:
            self._num_users[session.id] -= 1
            if not self._num_users[session.id]:
                del self._num_users[session.id], self._locks[session.id]

    async def _warm(self, session: Session, deadline_s: float) -> Warmed:
        if session.head_turn_id is None:
            return Warmed()
        head = await self._store.any_turn(session.head_turn_id)
        if head.status.is_active:
            return Warmed(turn_id=head.id, is_whole=True)
        params = SamplingParams(max_output_tokens=0, temperature=0.0, deadline_s=deadline_s)
        prompt = await self._composer.compose_log(session, head)
        if prompt is None:
            return Warmed()
        # A name of its own: tables are parked under the generation that made them.
        request_id = f"warm_{new_turn_id(self._clock())}"
        claim, finished = await generate(
            self._engine, prompt.generation(request_id, session, params)
        )
        if claim is not None:
            self._ledger.warmed("request", session.id, claim)
        return Warmed(
            turn_id=head.id,
            claim=claim,
            is_whole=finished.reason is FinishReason.LENGTH,
            total_s=finished.total_s,
        )


async def generate(
    engine: Engine, request: GenerationRequest
) -> tuple[ClaimReport | None, GenerationFinished]:
    """Run a generation for what it leaves behind: its claim and its end. Raises ModelError."""
    claim: ClaimReport | None = None
    finished: GenerationFinished | None = None
    generated = cast("AsyncGenerator[GenerationEvent, None]", engine.generate(request))
    async with aclosing(generated):
        async for event in generated:
            match event:
                case GenerationStarted():
                    claim = event.claim
                case GenerationFinished():
                    finished = event
    assert finished is not None, "a stream ends with its end, or raises"
    return claim, finished
