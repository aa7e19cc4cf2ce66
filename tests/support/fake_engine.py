"""An engine without a model: it says what it was told to, at the pace it was told to.

It keeps the real one's promises: ids and text as they would come, claims that add up, cancellation
at the next step, errors of `model.errors` only. What it was asked is in `requests`.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field, replace

from model.config import SamplingParams
from model.engine import Engine, EngineState
from model.errors import EngineDiedError, EngineUnavailableError, ModelError
from model.grammar import Grammar
from model.messages import (
    ClaimReport,
    EngineInfo,
    EngineStats,
    FinishReason,
    GenerationDelta,
    GenerationEvent,
    GenerationFinished,
    GenerationRequest,
    GenerationStarted,
    Histogram,
    MissReason,
    Residency,
    TableView,
    TierName,
    TierStats,
)

EOS = 2
INFO = EngineInfo(
    model_id="fake-model",
    tokenizer_path="",
    fingerprint="fake-1",
    device="cpu",
    dtype="float32",
    kv_dtype="float32",
    mode="exact",
    attention="reference",
    weights_bytes=1,
    cache_bytes=1,
    num_blocks=64,
    block_size=16,
    block_bytes=1,
    max_context_tokens=4096,
    vocab_size=100_000,
    eos_token_ids=(EOS,),
    sampling=SamplingParams(temperature=0.7),
)


def encode(text: str) -> tuple[int, ...]:
    """The fake's own tokens: one a character."""
    return tuple(1000 + ord(character) for character in text)


@dataclass(frozen=True, slots=True, kw_only=True)
class FakeReply:
    """One reply. `holds_after` deltas it waits to be let go; `error` is raised behind them all.

    `final_text` differs from the pieces when the engine held some of it back, or cut it.
    """

    pieces: tuple[str, ...] = ("Hel", "lo")
    reason: FinishReason = FinishReason.STOP
    final_text: str | None = None
    holds_after: int | None = None
    error: ModelError | None = None


_SILENCE = FakeReply(pieces=(), reason=FinishReason.LENGTH)


@dataclass(slots=True)
class _Flight:
    cancelled: asyncio.Event = field(default_factory=asyncio.Event)
    died: bool = False


class FakeEngine(Engine):
    """Replies come from `replies`, first in first out; then from `default`."""

    def __init__(self, *, default: FakeReply | None = None, info: EngineInfo = INFO) -> None:
        self._info = info
        self.default = default or FakeReply()
        self.replies: deque[FakeReply] = deque()
        self.warms_in_silence = False  # who asks for no reply takes none that was scripted
        self.requests: list[GenerationRequest] = []
        self.released: list[str] = []
        self.residents: dict[str, Residency] = {}
        self.stored: set[str] = set()  # conversations that tiers have something of
        self.parked: list[tuple[str, TierName]] = []
        self.tiers: tuple[TierStats, ...] = ()
        self.is_up = True
        self._when_ready: list[Callable[[], None]] = []
        self.ignores_cancel = False
        self.on_start: Callable[[GenerationRequest], None] = lambda _request: None
        self.on_grammar: Callable[[Grammar], None] = lambda _grammar: None
        self.compiles = asyncio.Event()  # grammars are judged only while it is set
        self.compiles.set()
        self._flights: dict[str, _Flight] = {}
        self._logs: dict[str, tuple[int, ...]] = {}
        self._holding: dict[str, asyncio.Event] = {}
        self._let_go = asyncio.Event()

    @property
    def state(self) -> EngineState:
        return EngineState.READY if self.is_up else EngineState.RESTARTING

    @property
    def info(self) -> EngineInfo:
        return self._info

    async def start(self) -> EngineInfo:
        self.comes_back()
        return self._info

    def comes_back(self) -> None:
        """It can be asked, as after its start or a crash."""
        self.is_up = True
        for tell in self._when_ready:
            tell()

    async def close(self, store_s: float = 0.0) -> None:
        self.is_up = False

    def becomes(self, **changes: object) -> None:
        """Serve another model from now on."""
        self._info = replace(self._info, **changes)  # type: ignore[arg-type] - a test's own

    async def held(self, request_id: str) -> None:
        """Wait until the generation waits."""
        await self._holding.setdefault(request_id, asyncio.Event()).wait()

    def let_go(self) -> None:
        """Let every generation that waits, now or later, go on."""
        self._let_go.set()

    def hold(self) -> None:
        """Let none go on from now on, until `let_go` is called again."""
        self._let_go = asyncio.Event()

    def die(self) -> None:
        """End everything in flight as a crash does."""
        for flight in self._flights.values():
            flight.died = True
            flight.cancelled.set()

    async def generate(self, request: GenerationRequest) -> AsyncIterator[GenerationEvent]:  # type: ignore[override] - a generator is what the real one gives too
        if not self.is_up:
            raise EngineUnavailableError("the engine is restarting")
        self.requests.append(request)
        self.on_start(request)
        reply = self._reply_to(request)
        flight = self._flights[request.request_id] = _Flight()
        try:
            claim = self._claim(request)
            yield GenerationStarted(claim=claim)
            shown: list[str] = []
            for number, piece in enumerate((*reply.pieces, None)):
                if reply.holds_after == number:
                    await self._hold(request.request_id, flight)
                if flight.died:
                    raise EngineDiedError("the engine's process ended")
                if piece is None or (flight.cancelled.is_set() and not self.ignores_cancel):
                    break
                shown.append(piece)
                yield GenerationDelta(token_ids=encode(piece), text=piece)
            if reply.error is not None:
                raise reply.error
            yield self._finish(request, reply, claim, shown, is_cancelled=flight.cancelled.is_set())
        finally:
            del self._flights[request.request_id]

    def _reply_to(self, request: GenerationRequest) -> FakeReply:
        if self.warms_in_silence and request.params.max_output_tokens == 0:
            return _SILENCE
        return self.replies.popleft() if self.replies else self.default

    async def _hold(self, request_id: str, flight: _Flight) -> None:
        self._holding.setdefault(request_id, asyncio.Event()).set()
        waits = [asyncio.ensure_future(self._let_go.wait())]
        if not self.ignores_cancel:
            waits.append(asyncio.ensure_future(flight.cancelled.wait()))
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()

    def _claim(self, request: GenerationRequest) -> ClaimReport:
        parked = self._logs.get(request.parent_turn_id or "", ())
        limit = min(len(parked) - 1, len(request.token_ids) - 1)
        reused = 0
        while reused < limit and parked[reused] == request.token_ids[reused]:
            reused += 1
        return ClaimReport(
            num_prompt_tokens=len(request.token_ids),
            from_device=reused,
            computed=len(request.token_ids) - reused,
            reason=None if request.num_known_tokens else MissReason.NEW,
            diverged_at=request.diverged_at,
        )

    def _finish(
        self,
        request: GenerationRequest,
        reply: FakeReply,
        claim: ClaimReport,
        shown: list[str],
        *,
        is_cancelled: bool,
    ) -> GenerationFinished:
        text = "".join(shown)
        if not is_cancelled and reply.final_text is not None:
            text = reply.final_text
        reason = FinishReason.CANCELLED if is_cancelled else reply.reason
        resumed = request.resumed_ids or ()
        ids = resumed + encode(text) + ((EOS,) if reason is FinishReason.STOP else ())
        text = "".join(chr(token_id - 1000) for token_id in resumed) + text
        if request.conversation_id is not None:
            self._logs[request.request_id] = request.token_ids + ids
        return GenerationFinished(
            reason=reason,
            token_ids=ids,
            text=text,
            num_rows_computed=claim.computed + max(len(ids) - 1, 0),
            queue_s=0.25,
            first_token_s=0.5 if ids else None,
            total_s=1.5,
        )

    async def check_grammar(self, grammar: Grammar) -> None:
        if not self.is_up:
            raise EngineUnavailableError("the engine is restarting")
        await self.compiles.wait()
        self.on_grammar(grammar)

    async def cancel(self, request_id: str) -> None:
        if request_id in self._flights:
            self._flights[request_id].cancelled.set()

    async def release(self, conversation_id: str) -> None:
        if not self.is_up:
            raise EngineUnavailableError("the engine is restarting")
        self.released.append(conversation_id)

    async def residency(self) -> tuple[Residency, ...]:
        if not self.is_up:
            raise EngineUnavailableError("the engine is restarting")
        return tuple(self.residents.values())

    async def stored_conversations(self) -> frozenset[str]:
        if not self.is_up:
            raise EngineUnavailableError("the engine is restarting")
        return frozenset(self.stored) - set(self.released)

    async def store(self, timeout_s: float) -> bool:
        return True

    async def park(self, conversation_id: str, tier: TierName) -> bool:
        self.parked.append((conversation_id, tier))
        return any(r.conversation_id == conversation_id for r in self.requests)

    async def verify(self) -> int:
        return 2

    async def collect(self) -> int:
        return 1

    async def evict(self, conversation_id: str | None = None) -> int:
        num_dropped = len(self._logs)
        self._logs.clear()
        return num_dropped

    async def tables(self, conversation_id: str) -> tuple[TableView, ...]:
        mine = {r.request_id for r in self.requests if r.conversation_id == conversation_id}
        return tuple(
            TableView(
                turn_id=turn_id,
                is_running=turn_id in self._flights,
                num_tokens=len(log),
                num_computed_tokens=len(log) - 1,
                idle_s=0.0,
                num_bytes=len(log),
                blocks=(),
            )
            for turn_id, log in self._logs.items()
            if turn_id in mine
        )

    async def stats(self) -> EngineStats:
        nothing = Histogram(bounds=(float("inf"),), counts=(0,), total=0.0)
        return EngineStats(
            num_blocks=self._info.num_blocks,
            blocks_running=0,
            blocks_parked=len(self._logs),
            blocks_cached=0,
            blocks_empty=self._info.num_blocks - len(self._logs),
            num_running=len(self._flights),
            num_waiting=0,
            num_parked_tables=len(self._logs),
            rows_computed_total=0,
            tokens_generated_total=0,
            tokens_by_source=(),
            misses_by_reason=(),
            finished_by_reason=(),
            preemptions_total=0,
            evicted_blocks_total=0,
            books_failures_total=0,
            steps_total=0,
            first_token_s=nothing,
            inter_token_s=nothing,
            queue_s=nothing,
            restore_s=nothing,
            tiers=self.tiers,
        )
