"""Turns without rows: made, shown and forgotten, unless somebody keeps one to go on from.

What follows a kept one is built on its exact tokens, as a stored turn's successor is; what follows
a stored turn shares that turn's blocks. Each has a block table of its own, let go with the turn.

Invariants:
    nothing is written, and nothing is left here of a turn that is not kept
    the events and their numbers are those that a stored turn would have
"""

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager, suppress
from dataclasses import dataclass, replace
from datetime import datetime
from typing import cast

from model.engine import Engine
from model.errors import ContextLengthError, ModelError
from model.messages import (
    FinishReason,
    GenerationDelta,
    GenerationEvent,
    GenerationFinished,
    GenerationStarted,
)
from sessions.comparing import settled
from sessions.errors import DrainingError
from sessions.ids import new_item_id, new_session_id, new_turn_id
from sessions.item_messages import drafts_of, new_item
from sessions.measures import to_timing, to_usage
from sessions.places import Places
from sessions.prompt import Prompt, PromptComposer
from sessions.rendering import Renderer
from sessions.replay import opening
from sessions.reply_terms import held, reading
from sessions.shown_reply import Reading, ShownReply
from sessions.token_log import TokenSpan
from sessions.turn import CUTS, ENDINGS, SERVER_RESTART
from sessions.turn_logs import TurnLogs
from sessions.types import (
    OwnerId,
    Session,
    SessionId,
    Turn,
    TurnEnded,
    TurnError,
    TurnEvent,
    TurnId,
    TurnRequest,
    TurnStatus,
    Usage,
)
from sessions.validation import MAX_INPUT_CHARS, check_request


@dataclass(frozen=True, slots=True, kw_only=True)
class _Kept:
    """A turn to go on from: its whole log in one span, and the turns whose words are in it."""

    session: Session
    span: TokenSpan
    turns: tuple[Turn, ...]


class _Remembered:
    """What the composer asks, of kept turns and of stored ones."""

    def __init__(self, store: TurnLogs) -> None:
        self._store = store
        # Bounded by what callers keep: each websocket its lanes' newest.
        self.kept: dict[TurnId, _Kept] = {}
        self.clocks: dict[SessionId, datetime] = {}

    async def clock_at(self, session_id: SessionId) -> datetime:
        """What the session's chat template is told the time is."""
        known = self.clocks.get(session_id)
        return await self._store.clock_at(session_id) if known is None else known

    async def spans(self, turn_id: TurnId) -> tuple[TokenSpan, ...]:
        """The turn's span and those of its bases, oldest first."""
        kept = self.kept.get(turn_id)
        return await self._store.spans(turn_id) if kept is None else (kept.span,)

    async def base_turns(self, turn_id: TurnId) -> tuple[Turn, ...]:
        """The turns whose words are in a turn's log, itself last."""
        kept = self.kept.get(turn_id)
        return await self._store.base_turns(turn_id) if kept is None else kept.turns


@dataclass(slots=True, kw_only=True)
class _Begun:
    """A turn that runs."""

    session: Session
    turn: Turn
    prompt: Prompt
    reply: ShownReply
    started: GenerationStarted | None = None
    ended: Turn | None = None


class EphemeralTurns:
    """Makes turns that nobody will find; `kept` ones are found by their id until `forget`."""

    def __init__(
        self,
        *,
        store: TurnLogs,
        engine: Engine,
        clock: Callable[[], datetime],
        places: Places,
        public_instructions: frozenset[str] = frozenset(),
        max_input_chars: int = MAX_INPUT_CHARS,
    ) -> None:
        self._engine = engine
        self._clock = clock
        self._places = places
        self._max_input_chars = max_input_chars
        self._remembered = _Remembered(store)
        self._composer = PromptComposer(self._remembered, engine, public_instructions)
        self._running: dict[TurnId, OwnerId] = {}
        # Of kept turns only, so as few as those.
        self._num_holders: Counter[TurnId] = Counter()
        self._forgotten: set[TurnId] = set()
        self._idle = asyncio.Event()
        self._idle.set()
        self._is_draining = False
        self._is_cut = False

    def use_renderer(self, renderer: Renderer) -> None:
        """Make prompts with this renderer from now on."""
        self._composer.use_renderer(renderer)

    def kept(self, owner: OwnerId, turn_id: TurnId) -> Turn | None:
        """A kept turn of the owner's."""
        kept = self._remembered.kept.get(turn_id)
        return kept.turns[-1] if kept is not None and kept.session.owner == owner else None

    def told(self, turn_id: TurnId) -> tuple[Turn, ...]:
        """A kept turn and those before it whose words it has, oldest first."""
        return self._remembered.kept[turn_id].turns

    async def forget(self, turn_id: TurnId) -> None:
        """Keep a turn no longer, once nobody holds it; one that isn't kept is left so."""
        if self._num_holders[turn_id]:
            self._forgotten.add(turn_id)
            return
        kept = self._remembered.kept.pop(turn_id, None)
        if kept is not None:
            await self._release(kept.session)

    @asynccontextmanager
    async def held(self, parent: Turn | None) -> AsyncIterator[None]:
        """What is kept of a turn stays while something is made behind it, also if it is forgotten
        meanwhile: two may follow one, and the quicker of them has it forgotten."""
        if parent is None or parent.id not in self._remembered.kept:
            yield
            return
        self._num_holders[parent.id] += 1
        try:
            yield
        finally:
            self._num_holders[parent.id] -= 1
            if not self._num_holders[parent.id]:
                del self._num_holders[parent.id]
                if parent.id in self._forgotten:
                    self._forgotten.discard(parent.id)
                    await self.forget(parent.id)

    async def count(self, owner: OwnerId, request: TurnRequest, parent: Turn | None) -> int:
        """How many tokens the prompt of such a turn would have; nothing is generated."""
        check_request(request, max_chars=self._max_input_chars)
        session = self._session(owner)
        try:
            prompt = await self._composer.compose(session, parent, request.input, request.terms)
        finally:
            del self._remembered.clocks[session.id]
        return len(prompt.token_ids)

    async def run(
        self, owner: OwnerId, request: TurnRequest, parent: Turn | None, *, keeps: bool = False
    ) -> AsyncIterator[tuple[int, TurnEvent]]:
        """Make a turn behind a stored or kept one; leaving the iterator early ends it.

        With `keeps`, one that completes is kept. Raises what submitting a turn raises, before the
        first event; later it is a failed turn.
        """
        if self._is_draining:
            raise DrainingError("the server is stopping")
        check_request(request, max_chars=self._max_input_chars)
        self._places.take(owner)
        session, is_kept = None, False
        try:
            session = self._session(owner)
            prompt = await self._composer.compose(session, parent, request.input, request.terms)
            self._check_fits(prompt)
            fingerprint = self._engine.info.fingerprint
            terms = await settled(request, prompt, parent, self._composer, fingerprint)
            turn = self._new_turn(session, replace(request, terms=terms), parent)
            reply = ShownReply(turn, self._reading(turn))
            begun = _Begun(session=session, turn=turn, prompt=prompt, reply=reply)
            number = 0
            async with aclosing(self._events(begun)) as events:
                async for event in events:
                    if isinstance(event, TurnEnded) and keeps:
                        is_kept = await self._keep(begun, event.turn)
                    yield number, event
                    number += 1
        finally:
            self._places.leave(owner)
            if session is not None and not is_kept:
                await self._release(session)

    async def cancel(self, owner: OwnerId, turn_id: TurnId) -> bool:
        """End a turn that runs soon, as cancelled; whether there is one."""
        if self._running.get(turn_id) != owner:
            return False
        with suppress(ModelError):  # then there is nothing left to cancel
            await self._engine.cancel(turn_id)
        return True

    async def drain(self, timeout_s: float) -> None:
        """Begin nothing more, give what runs some time to end, then end it."""
        self._is_draining = True
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._idle.wait()
        await self.cut()

    async def cut(self) -> None:
        """End what runs now, as interrupted."""
        self._is_draining = self._is_cut = True
        for turn_id in tuple(self._running):
            with suppress(ModelError):
                await self._engine.cancel(turn_id)

    async def _events(self, begun: _Begun) -> AsyncGenerator[TurnEvent, None]:
        turn = begun.turn
        params = await held(turn, self._composer.renderer.calling, self._engine)
        generation = begun.prompt.generation(turn.id, begun.session, params)
        stream = cast("AsyncGenerator[GenerationEvent, None]", self._engine.generate(generation))
        self._running[turn.id] = begun.session.owner
        self._idle.clear()
        try:
            async with aclosing(stream):
                for event in (*opening(turn), *begun.reply.begin(None)):
                    yield event
                async for generated in stream:
                    for event in self._take(begun, generated):
                        yield event
        except ModelError as exc:
            error = TurnError(code=exc.code, message=str(exc), retryable=exc.retryable)
            failed = replace(begun.reply.onto(turn), finished_at=self._clock())
            begun.ended = replace(failed, status=TurnStatus.FAILED, error=error)
        finally:
            del self._running[turn.id]
            if not self._running:
                self._idle.set()
        assert begun.ended is not None, "the stream ended without its end"
        _, last = begun.reply.close(begun.ended)
        for event in last:
            yield event

    def _take(self, begun: _Begun, generated: GenerationEvent) -> tuple[TurnEvent, ...]:
        match generated:
            case GenerationStarted():
                begun.started = generated
            case GenerationDelta():
                return begun.reply.take(generated)
            case GenerationFinished():
                events = begun.reply.finish(generated)
                begun.ended = self._ended(begun, generated)
                return events
        return ()

    def _ended(self, begun: _Begun, finished: GenerationFinished) -> Turn:
        turn, started = begun.turn, begun.started
        is_cut = self._is_cut and finished.reason is FinishReason.CANCELLED
        is_done = not turn.terms.has_reply and finished.reason is FinishReason.LENGTH
        status = TurnStatus.COMPLETED if is_done else ENDINGS[finished.reason]
        reason = None if is_done else CUTS.get(finished.reason)
        return replace(
            begun.reply.onto(turn),
            status=TurnStatus.INTERRUPTED if is_cut else status,
            incomplete_reason=SERVER_RESTART if is_cut else reason,
            usage=None if started is None else self._usage(begun, started, finished),
            timing=to_timing(finished, 0.0),
            finished_at=self._clock(),
        )

    def _usage(
        self, begun: _Begun, started: GenerationStarted, finished: GenerationFinished
    ) -> Usage:
        reasoning = begun.reply.num_reasoning_tokens
        return to_usage(started.claim, finished, reasoning_tokens=reasoning)

    def _reading(self, turn: Turn) -> Reading | None:
        return reading(turn, self._composer.renderer, self._engine.info.eos_token_ids)

    async def _keep(self, begun: _Begun, ended: Turn) -> bool:
        if ended.status is not TurnStatus.COMPLETED:
            return False
        span = TokenSpan(
            turn_id=ended.id,
            base_id=None,
            keep_tokens=0,
            num_prompt_tokens=len(begun.prompt.token_ids),
            ids=begun.prompt.token_ids + begun.reply.ids,
            fingerprint=self._engine.info.fingerprint,
        )
        base = begun.prompt.base_id
        before = await self._remembered.base_turns(base) if base is not None else ()
        self._remembered.kept[ended.id] = _Kept(
            session=begun.session, span=span, turns=(*before, ended)
        )
        return True

    def _session(self, owner: OwnerId) -> Session:
        now, info = self._clock(), self._engine.info
        self._composer.renderer  # noqa: B018 - raises while there is none
        session = Session(
            id=new_session_id(now),
            owner=owner,
            title=None,
            instructions=None,
            model=info.model_id,
            fingerprint=info.fingerprint,
            created_at=now,
            updated_at=now,
        )
        self._remembered.clocks[session.id] = now
        return session

    async def _release(self, session: Session) -> None:
        self._remembered.clocks.pop(session.id, None)
        with suppress(ModelError):  # an engine that is away has forgotten everything
            await self._engine.release(session.id)

    def _check_fits(self, prompt: Prompt) -> None:
        num_tokens, most = len(prompt.token_ids), self._engine.info.max_context_tokens
        if num_tokens + 1 > most:
            raise ContextLengthError(num_tokens, most)

    def _new_turn(self, session: Session, request: TurnRequest, parent: Turn | None) -> Turn:
        now = self._clock()
        turn_id = new_turn_id(now)
        drafts = [draft for message in request.input for draft in drafts_of(message)]
        items = tuple(new_item(draft, session.id, turn_id, now) for draft in drafts)
        return Turn(
            id=turn_id,
            session_id=session.id,
            parent_id=parent.id if parent is not None else None,
            client_turn_id=None,
            status=TurnStatus.PENDING,
            params=request.params,
            model=self._engine.info.model_id,
            input_items=items,
            reply_item_id=new_item_id(now),
            reply_text="",
            delta_lengths=(),
            metadata=dict(request.metadata),
            terms=request.terms,
            created_at=now,
        )
