"""Sessions and their turns, as the front end sees them.

Turns run in a task group that the manager owns, never in a handler: whoever asked may go, the turn
goes on and its end is written. What runs here is in `running`, everything else is in the store.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from datetime import datetime
from functools import partial
from types import TracebackType
from typing import Self, Unpack

from model.config import SamplingParams
from model.engine import Engine
from model.errors import ModelError
from model.messages import TableView
from sessions.admission import Admission, AdmissionRules, Admitted
from sessions.catalog import Catalog
from sessions.config import ManagerConfig as ManagerConfig  # as its callers know it
from sessions.ephemeral import EphemeralTurns
from sessions.errors import ConflictError, SessionNotFoundError
from sessions.history import left
from sessions.items import Items
from sessions.keyed_openings import KeyedOpenings
from sessions.opening import Opener
from sessions.pages import Page, SessionFilter, Wanted
from sessions.places import Places
from sessions.preparation import Preparations
from sessions.presence import Presence
from sessions.prompt import PromptComposer
from sessions.reading import Reader
from sessions.rendering import Renderer
from sessions.repetition import Repetitions
from sessions.running import RunningTurns
from sessions.store import Store
from sessions.titles import Titler
from sessions.token_log import TurnLog
from sessions.transfer import Importer
from sessions.turn import Collaborators
from sessions.types import (
    ForkOptions,
    OwnerId,
    Session,
    SessionId,
    SessionOptions,
    Turn,
    TurnEvent,
    TurnId,
    TurnRequest,
)


class SessionManager:
    """An async context manager: turns run while it is open, and leaving it ends them."""

    def __init__(
        self,
        *,
        store: Store,
        engine: Engine,
        clock: Callable[[], datetime],
        config: ManagerConfig,
        places: Places | None = None,
    ) -> None:
        self._store, self._engine = store, engine
        self._clock, self._config = clock, config
        self.catalog = Catalog(
            store,
            clock=clock,
            max_input_chars=config.max_input_chars,
            delete_grace_s=config.delete_grace_s,
        )
        self.keyed = KeyedOpenings(store)
        self.importer = Importer(
            store=store, engine=engine, clock=clock, max_input_chars=config.max_input_chars
        )
        self._composer = PromptComposer(store, engine, config.public_instructions)
        self._preparations = Preparations(engine, self._composer)
        self._admission = self._make_admission()
        self._repetitions = Repetitions(store)
        places = places or Places()
        self._titler = Titler(
            store=store,
            engine=engine,
            composer=self._composer,
            preparations=self._preparations,
            places=places,
            is_on=config.auto_titles,
        )
        self.items = Items(store, self._admission, clock)
        self.ephemeral = self._make_ephemeral(places)
        self.presence = Presence(
            store=store,
            engine=engine,
            composer=self._composer,
            runner_id=config.runner_id,
            clock=clock,
        )
        self._opener = Opener(
            store=store,
            engine=engine,
            composer=self._composer,
            admission=self._admission,
            clock=clock,
            max_input_chars=config.max_input_chars,
        )
        self._running = RunningTurns(
            Collaborators(store=store, engine=engine, clock=clock, rules=self._config.runner_rules),
            runner_id=config.runner_id,
            max_turns=config.max_turns,
            places=places,
            on_start=self.presence.warm_up.give_way,
            on_end=self._follow_up,
        )
        self._reader = Reader(store, self._running, poll_s=config.checkpoint_s)

    def _make_ephemeral(self, places: Places) -> EphemeralTurns:
        return EphemeralTurns(
            store=self._store,
            engine=self._engine,
            clock=self._clock,
            places=places,
            public_instructions=self._config.public_instructions,
            max_input_chars=self._config.max_input_chars,
        )

    def _make_admission(self) -> Admission:
        config = self._config
        return Admission(
            store=self._store,
            engine=self._engine,
            composer=self._composer,
            preparations=self._preparations,
            clock=self._clock,
            rules=AdmissionRules(
                runner_id=config.runner_id,
                lease_s=config.lease_s,
                max_input_chars=config.max_input_chars,
            ),
        )

    async def __aenter__(self) -> Self:
        await self._preparations.__aenter__()
        await self._titler.__aenter__()
        await self._running.__aenter__()
        await self.presence.__aenter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._preparations.stop()
        await self.presence.__aexit__(kind, exc, traceback)
        self._titler.stop()
        await self._running.__aexit__(kind, exc, traceback)
        await self._titler.__aexit__(kind, exc, traceback)
        await self._preparations.__aexit__(kind, exc, traceback)

    @property
    def num_active(self) -> int:
        """Turns that run here or are about to."""
        return len(self._running)

    def use_renderer(self, renderer: Renderer) -> None:
        """Make prompts with this; until then create and submit raise EngineUnavailableError."""
        self._composer.use_renderer(renderer)
        self.ephemeral.use_renderer(renderer)
        self._titler.begin()

    async def recover(self) -> int:
        """End, as interrupted, the active turns of dead runners; how many there were.

        Dead is this runner's former life, and every runner that let a lease run out.
        """
        return await self._running.recover()

    # Sessions.

    async def create(self, owner: OwnerId, **options: Unpack[SessionOptions]) -> Session:
        """A new session with the model that is served.

        `instructions` None leaves the system message to the template; an empty text means that
        there is to be none.
        """
        return await self._opener.create(owner, **options)

    async def get(self, owner: OwnerId, session_id: SessionId) -> Session:
        """Raises SessionNotFoundError."""
        return await self._store.session(owner, session_id)

    async def list(self, owner: OwnerId, *, limit: int = 20, **wanted: Unpack[Wanted]) -> Page:
        """The owner's sessions by time of last use; `after` is the last id of the page before."""
        return await self.catalog.list(owner, SessionFilter(limit=limit, **wanted))

    async def delete(self, owner: OwnerId, session_id: SessionId) -> None:
        """Mark the session deleted, cancel its turns, and let the engine forget it.

        `catalog.restore` takes it back for a while. What forks of it were made from stays readable
        through them.
        """
        active = await self._store.delete_session(owner, session_id, self._clock())
        runners = [r for r in map(self._running.get, active) if r is not None]
        for runner in runners:
            await runner.cancel()
        for runner in runners:
            await runner.wait()
        await self._preparations.forget(session_id)
        if await self._store.is_continued_elsewhere(session_id):
            return  # by a fork that has no table of its own yet; the sweeper looks again
        with suppress(ModelError):  # an engine that is away has forgotten everything
            await self._engine.release(session_id)

    async def fork(
        self, owner: OwnerId, session_id: SessionId, **options: Unpack[ForkOptions]
    ) -> Session:
        """A new session that goes on behind a turn of this one (its head by default)."""
        return await self._opener.fork(owner, session_id, **options)

    async def move_head(
        self,
        owner: OwnerId,
        session_id: SessionId,
        head: TurnId | None,
        *,
        expected_revision: int | None = None,
    ) -> Session:
        """Pick the branch that a plain new turn continues; None: a new beginning.

        Raises TurnNotFoundError for a turn that is not the session's, RevisionConflictError when
        the session is not at the revision that was expected.
        """
        session = await self._store.session(owner, session_id)
        if head is not None:
            await self._admission.turn_of(session, head)
        return await self._store.set_head(
            owner, session_id, head, expected_revision=expected_revision
        )

    async def tables(self, owner: OwnerId, session_id: SessionId) -> tuple[TableView, ...]:
        """The block tables that the engine has for the session."""
        await self._store.session(owner, session_id)
        return await self._engine.tables(session_id)

    # Turns.

    async def turns(
        self, owner: OwnerId, session_id: SessionId, *, whole_tree: bool = False
    ) -> tuple[Turn, ...]:
        """The head's branch, oldest first, with what lies before a fork; or all branches. Without
        what was taken out of the conversation."""
        session = await self._store.session(owner, session_id)
        if not whole_tree:
            head = session.head_turn_id
            path = await self._store.path(head) if head is not None else ()
            return tuple(left(self._running.live(turn)) for turn in path)
        before = session.forked_from
        origin = await self._store.path(before) if before is not None else ()
        own = await self._store.tree(session_id)
        return tuple(left(self._running.live(turn)) for turn in (*origin, *own))

    async def turn(self, owner: OwnerId, turn_id: TurnId) -> Turn:
        """A turn, with its reply so far while it runs."""
        runner = self._running.get(turn_id)
        stored = await self._store.turn(owner, turn_id)
        return stored if runner is None else runner.turn

    async def submit(self, owner: OwnerId, session_id: SessionId, request: TurnRequest) -> Turn:
        """Begin a turn; returns when its input is durable.

        The same `client_turn_id` with the same request gives the same turn again. Raises
        SessionBusyError while the head runs, TurnNotEndedError for a parent that does,
        ContextLengthError for a prompt that is too long, and what `admission` finds wrong.
        """
        return await self._running.start(
            owner,
            partial(self._admission.submit, owner, session_id, request),
            partial(self._repetitions.submitted, owner, session_id, request),
            goes_on=request.goes_on,
        )

    async def repeated(self, session: Session, client_turn_id: str, digest: str) -> Turn | None:
        """The session's turn of that id; raises IdempotencyConflictError when something else was
        asked for under it."""
        known = await self._repetitions.known(session, client_turn_id, digest)
        return None if known is None else self._running.live(known)

    async def regenerate(
        self,
        owner: OwnerId,
        turn_id: TurnId,
        *,
        params: SamplingParams,
        client_turn_id: str | None = None,
    ) -> Turn:
        """Begin a sibling of an ended turn: the same input, a new reply, a branch of its own."""
        admit = partial(
            self._admission.regenerate,
            owner,
            turn_id,
            params=params,
            client_turn_id=client_turn_id,
        )
        known = partial(self._repetitions.regenerated, owner, turn_id, params, client_turn_id)
        return await self._running.start(owner, admit, known)

    async def go_on(
        self,
        owner: OwnerId,
        turn_id: TurnId,
        *,
        max_more_tokens: int | None,
        client_turn_id: str | None = None,
    ) -> Turn:
        """Begin a sibling of a cut turn whose reply begins with the cut one's and goes on.

        Raises ConflictError when there is nothing to continue.
        """
        admit = partial(
            self._admission.go_on,
            owner,
            turn_id,
            max_more_tokens=max_more_tokens,
            client_turn_id=client_turn_id,
        )
        known = partial(self._repetitions.gone_on, owner, turn_id, max_more_tokens, client_turn_id)
        return await self._running.start(owner, admit, known)

    async def cancel(self, owner: OwnerId, turn_id: TurnId) -> Turn:
        """Stop a turn and return it as it ended, with its reply so far; an ended one as it is.

        Raises ConflictError when it runs on another server.
        """
        runner = self._running.get(turn_id)
        stored = await self._store.turn(owner, turn_id)
        if runner is not None:
            await runner.cancel()
            await runner.wait()
            return runner.turn
        if stored.status.is_active:
            raise ConflictError(f"{turn_id} runs on another server")
        return stored

    async def delete_turn(self, owner: OwnerId, turn_id: TurnId) -> None:
        """Have a turn found no more, cancelled if it runs; what follows it keeps its words.

        With its last turn a session that no list shows goes, too. Raises TurnNotFoundError.
        """
        turn = await self.cancel(owner, turn_id)
        if await self._store.delete_turn(owner, turn_id, self._clock()):
            with suppress(SessionNotFoundError):  # it was deleted already
                await self.delete(owner, turn.session_id)

    def read(
        self, owner: OwnerId, turn_id: TurnId, *, after: int = -1
    ) -> AsyncIterator[tuple[int, TurnEvent]]:
        """(sequence number, event) behind `after`, live or from the store.

        Always ends with `TurnEnded`, also when `after` lies behind it.
        """
        return self._reader.read(owner, turn_id, after)

    async def drain(self, timeout_s: float) -> None:
        """Take no new turns, give those that run time, then interrupt them, keeping replies."""
        self._preparations.stop()
        self._titler.stop()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.ephemeral.drain(timeout_s))
            tasks.create_task(self._running.drain(timeout_s))

    def hurry(self) -> None:
        """Let a drain wait no longer; replies are kept even so."""
        self._running.hurry()

    def _follow_up(self, admitted: Admitted, ended: Turn, log: TurnLog) -> None:
        """What is done behind a turn: its log is at hand for the next, which may be prepared, and
        the session gets its title."""
        self._composer.remember(log)
        self._config.on_turn_ended(ended)
        self.presence.followed(admitted.session, ended)
        self._preparations.begin(admitted.session, ended)
        self._titler.follow(admitted.session, ended)
