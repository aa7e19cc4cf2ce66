"""One turn from admission to its end, in a task of the manager's, never in a handler's.

Invariants:
    its input is durable before the engine sees it, its reply before `TurnEnded` is in the feed
    it ends once, whatever happens; who lost the lease writes nothing more
    a ModelError is a failed turn here, and nowhere else
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing, suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import cast

from structlog.contextvars import bind_contextvars

from model.engine import Engine
from model.errors import ModelError
from model.messages import (
    ClaimReport,
    FinishReason,
    GenerationDelta,
    GenerationEvent,
    GenerationFinished,
    GenerationStarted,
)
from sessions.admission import Admitted
from sessions.checkpoints import Checkpoints, LeaseLostError
from sessions.errors import SessionsError, StoreUnavailableError
from sessions.feed import TurnFeed
from sessions.measures import to_timing, to_usage
from sessions.replay import opening
from sessions.shown_reply import ShownReply
from sessions.store import Store
from sessions.token_log import TurnLog
from sessions.turn_writes import Checkpoint
from sessions.types import Turn, TurnEnded, TurnError, TurnId, TurnStatus, Usage

logger = logging.getLogger(__name__)

# Waits between tries to write a turn's end; a store away for longer leaves it to recovery.
COMMIT_RETRIES_S = (0.1, 0.5, 2.0)

ENDINGS = {
    FinishReason.STOP: TurnStatus.COMPLETED,
    FinishReason.LENGTH: TurnStatus.INCOMPLETE,
    FinishReason.DEADLINE: TurnStatus.INCOMPLETE,
    FinishReason.CANCELLED: TurnStatus.CANCELLED,
}
CUTS = {FinishReason.LENGTH: "max_output_tokens", FinishReason.DEADLINE: "deadline"}
SERVER_RESTART = "server_restart"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunnerRules:
    """How long a lease lasts, how often a reply is kept, how long a cancel may take."""

    lease_s: float
    checkpoint_s: float
    cancel_grace_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Collaborators:
    """What every runner works with."""

    store: Store
    engine: Engine
    clock: Callable[[], datetime]
    rules: RunnerRules


class TurnRunner:
    """Runs one turn. `accepted` is answered when its input is durable, or why it is not."""

    def __init__(
        self,
        collaborators: Collaborators,
        admit: Callable[[], Awaitable[Admitted | Turn]],
        *,
        on_begin: Callable[["TurnRunner", TurnId], None],
        on_end: Callable[[Admitted, Turn, TurnLog], None],
    ) -> None:
        self._store = collaborators.store
        self._engine = collaborators.engine
        self._clock = collaborators.clock
        self._rules = collaborators.rules
        self._admit = admit
        self._on_begin = on_begin
        self._on_end = on_end
        self._admitted: Admitted | None = None
        self._reply: ShownReply | None = None
        self._cut_as: TurnStatus | None = None  # how it ends when it is told to
        self._deadline: asyncio.Timeout | None = None
        self._started: GenerationStarted | None = None
        self._finished: GenerationFinished | None = None
        self._error: ModelError | None = None
        self._sent_at: datetime | None = None
        self._checkpoints: Checkpoints | None = None
        self._ended: Turn | None = None
        self._over = asyncio.Event()
        self.feed = TurnFeed()
        self.accepted: asyncio.Future[Turn] = asyncio.get_running_loop().create_future()

    @property
    def turn(self) -> Turn:
        """The turn as it is now."""
        if self._ended is not None:
            return self._ended
        assert self._admitted is not None, "not admitted yet"
        turn = self._admitted.turn
        if self._started is not None:
            turn = replace(turn, status=TurnStatus.RUNNING)
        return self._shown.onto(turn)

    @property
    def _shown(self) -> ShownReply:
        assert self._reply is not None, "not admitted yet"
        return self._reply

    @property
    def is_admitted(self) -> bool:
        """Whether there is a turn."""
        return self._admitted is not None

    async def wait(self) -> None:
        """Return when the turn has ended and its end is durable (or was not admitted)."""
        await self._over.wait()

    async def cancel(self) -> None:
        """End the turn soon, keeping its reply so far; the engine gets a grace period for it."""
        await self._cut(TurnStatus.CANCELLED, self._rules.cancel_grace_s)

    async def interrupt(self, *, grace_s: float | None = None) -> None:
        """As `cancel`, but because the server stops: nobody wanted that, so it can be continued.

        Called again it may shorten the engine's grace period.
        """
        grace_s = self._rules.cancel_grace_s if grace_s is None else grace_s
        await self._cut(TurnStatus.INTERRUPTED, grace_s)

    async def _cut(self, ending: TurnStatus, grace_s: float) -> None:
        self._cut_as = self._cut_as or ending  # what was asked for first is how it ends
        if self._deadline is None or self._admitted is None:
            return  # not generating yet, or no more
        when = asyncio.get_running_loop().time() + grace_s
        known = self._deadline.when()
        if not self._deadline.expired() and (known is None or when < known):
            self._deadline.reschedule(when)
        with suppress(ModelError):  # then there is nothing left to cancel
            await self._engine.cancel(self._admitted.turn.id)

    async def run(self) -> None:
        """Everything. Returns when the turn has ended or was not admitted; raises nothing."""
        try:
            admitted = await self._admit()
            if isinstance(admitted, Turn):
                self._answer(admitted)
                return
            self._begin(admitted)
            await self._generate(admitted)
            if self._checkpoints is not None:
                await self._checkpoints.settle()
            await self._end(admitted, self._outcome(admitted))
        except Exception as exc:  # noqa: BLE001 - a turn's outermost frame
            await self._give_up(exc)
        finally:
            # Only a cancelled task gets here without an answer.
            if not self.accepted.done():
                self.accepted.cancel()
            self._over.set()

    def _answer(self, turn: Turn) -> None:
        if not self.accepted.done():  # whoever asked may be gone
            self.accepted.set_result(turn)

    def _begin(self, admitted: Admitted) -> None:
        self._admitted = admitted
        self._checkpoints = Checkpoints(
            self._store, admitted.turn, every_s=self._rules.checkpoint_s
        )
        # For every record of this task, and of those that begin in it.
        bind_contextvars(owner=admitted.session.owner, **admitted.turn.log_ids)
        self._reply = ShownReply(admitted.turn, admitted.reading)
        self.feed.append(*opening(admitted.turn))
        self.feed.append(*self._reply.begin(admitted.partial))
        self._on_begin(self, admitted.turn.id)
        self._answer(admitted.turn)

    async def _generate(self, admitted: Admitted) -> None:
        if self._cut_as is not None:
            return
        self._sent_at = self._clock()
        # The engine's streams are generators; leaving one early cancels its generation.
        stream = cast(
            "AsyncGenerator[GenerationEvent, None]", self._engine.generate(admitted.generation)
        )
        try:
            async with asyncio.timeout(None) as self._deadline, aclosing(stream):
                async for event in stream:
                    await self._take(admitted, event)
            assert self._finished is not None, "the stream ended without its end"
        except TimeoutError:
            logger.warning(
                "%s: the engine let a cancel's grace pass",
                admitted.turn.id,
            )
        except ModelError as exc:
            self._error = exc
        finally:
            self._deadline = None

    async def _take(self, admitted: Admitted, event: GenerationEvent) -> None:
        match event:
            case GenerationStarted():
                self._started = event
                if self._cut_as is not None:
                    # The first call may have come before the engine knew the generation.
                    await self._engine.cancel(admitted.turn.id)
            case GenerationDelta():
                self.feed.append(*self._shown.take(event))
                self._keep(admitted)
            case GenerationFinished():
                self.feed.append(*self._shown.finish(event))
                self._finished = event

    def _keep(self, admitted: Admitted) -> None:
        """Begin a checkpoint: of the first delta at once, then as often as the rules say."""
        assert self._checkpoints is not None, "a delta before the beginning"
        self._checkpoints.check()
        now = self._clock()
        if self._shown.is_empty or not self._checkpoints.is_due(now):
            return
        checkpoint = Checkpoint(
            text=self._shown.text,
            pieces=self._shown.pieces,
            ids=admitted.span.ids + self._shown.ids,
        )
        lease = replace(admitted.lease, until=now + timedelta(seconds=self._rules.lease_s))
        self._checkpoints.take(lease, checkpoint, now)

    def _outcome(self, admitted: Admitted) -> Turn:
        """The turn as it ended."""
        turn = replace(self._shown.onto(admitted.turn), finished_at=self._clock())
        finished = self._finished
        if finished is None:
            if self._cut_as is not None:
                return self._cut_short(turn)
            assert self._error is not None, "nothing says how it ended"
            return self._failed(admitted, self._error)
        assert self._sent_at is not None, "finished before it was sent"
        before_s = (self._sent_at - turn.created_at).total_seconds()
        num_given = len(admitted.partial.ids) if admitted.partial is not None else 0
        claim = self._started.claim if self._started is not None else None
        is_done = not turn.terms.has_reply and finished.reason is FinishReason.LENGTH
        turn = replace(
            turn,
            status=TurnStatus.COMPLETED if is_done else ENDINGS[finished.reason],
            incomplete_reason=None if is_done else CUTS.get(finished.reason),
            usage=None if claim is None else self._usage(claim, finished),
            timing=to_timing(finished, before_s, num_given=num_given),
        )
        return self._cut_short(turn) if finished.reason is FinishReason.CANCELLED else turn

    def _usage(self, claim: ClaimReport, finished: GenerationFinished) -> Usage:
        return to_usage(claim, finished, reasoning_tokens=self._shown.num_reasoning_tokens)

    def _cut_short(self, turn: Turn) -> Turn:
        if self._cut_as is TurnStatus.INTERRUPTED:
            return replace(turn, status=self._cut_as, incomplete_reason=SERVER_RESTART)
        return replace(turn, status=TurnStatus.CANCELLED)

    async def _end(self, admitted: Admitted, ended: Turn) -> None:
        """Make the end durable, then show it."""
        ids = admitted.span.ids + self._shown.ids
        ended, last = self._shown.close(ended)
        if not await self._commit(admitted, ended, ids):
            await self._concede(admitted)
            return
        self._ended = ended
        self.feed.append(*last)
        span = replace(admitted.span, ids=ids)
        log = TurnLog(span=span, token_ids=admitted.prompt.token_ids + self._shown.ids)
        self._on_end(admitted, ended, log)

    async def _commit(self, admitted: Admitted, ended: Turn, ids: tuple[int, ...]) -> bool:
        for wait_s in COMMIT_RETRIES_S:
            try:
                return await self._store.end_turn(admitted.lease, ended, ids)
            except StoreUnavailableError as exc:
                logger.warning("%s: its end is not written yet: %s", ended.id, exc)
                await asyncio.sleep(wait_s)
        return await self._store.end_turn(admitted.lease, ended, ids)

    async def _concede(self, admitted: Admitted) -> None:
        """Somebody else ended the turn, taking it for abandoned: that is how it ended."""
        logger.warning("%s: its lease was lost", admitted.turn.id)
        self._ended = await self._store.any_turn(admitted.turn.id)
        self.feed.append(TurnEnded(self._ended))

    async def _give_up(self, exc: Exception) -> None:
        admitted = self._admitted
        if admitted is None:
            if not isinstance(exc, SessionsError | ModelError):
                logger.exception("a turn was not admitted")
            if not self.accepted.done():
                self.accepted.set_exception(exc)
            return
        if self.feed.is_closed:
            logger.error(
                "%s: something failed behind its end",
                admitted.turn.id,
                exc_info=exc,
            )
            return
        try:
            if self._checkpoints is not None:
                await self._checkpoints.over()
            if isinstance(exc, LeaseLostError):
                await self._concede(admitted)
                return
            logger.error("%s failed", admitted.turn.id, exc_info=exc)
            self._ended = self._failed(admitted, exc)
            if not isinstance(exc, StoreUnavailableError):
                await self._end(admitted, self._ended)
        except Exception:  # the same frame: whatever it is, the other turns' task group lives on
            logger.exception("%s: its end can't be written", admitted.turn.id)
        if not self.feed.is_closed:
            # Readers must not wait for the store: recovery will find the turn there, active.
            self._ended, last = self._shown.close(self._failed(admitted, exc))
            self.feed.append(*last)

    def _failed(self, admitted: Admitted, exc: Exception) -> Turn:
        turn = replace(self._shown.onto(admitted.turn), finished_at=self._clock())
        return replace(turn, status=TurnStatus.FAILED, error=_to_error(exc))


def _to_error(exc: Exception) -> TurnError:
    if isinstance(exc, SessionsError | ModelError):
        return TurnError(code=exc.code, message=str(exc), retryable=exc.retryable)
    return TurnError(
        code="internal", message="an internal error; the server's log has it", retryable=False
    )
