"""The turns that run here: their tasks, their leases, and how they come to an end.

Invariants:
    a turn is known here from before its submitter hears of it until its end is durable
    the lease of a turn that runs here is renewed well before it is over
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import timedelta
from types import TracebackType
from typing import Self

from model.errors import EngineBusyError
from sessions.admission import Admitted
from sessions.errors import DrainingError, StoreUnavailableError, TooManyTurnsError
from sessions.places import Places
from sessions.token_log import TurnLog
from sessions.turn import Collaborators, TurnRunner
from sessions.types import OwnerId, Turn, TurnId

logger = logging.getLogger(__name__)

# Two renewals may fail before a lease is over.
RENEWALS_PER_LEASE = 3
HURRIED_GRACE_S = 0.5
"""What the engine gets to end a reply when nobody wants to wait."""
ENDS_WRITTEN_S = 10.0
"""What turns get, behind the engine's grace, to write their ends: twice SQLite's patience with
another program's lock. Whose end is not written by then is ended by the next start."""
HURRIED_ENDS_WRITTEN_S = 2.0


class RunningTurns:
    """Owns the task group that turns run in; leaving it ends them."""

    def __init__(
        self,
        collaborators: Collaborators,
        *,
        runner_id: str,
        max_turns: int,
        places: Places,
        on_start: Callable[[], Awaitable[None]],
        on_end: Callable[[Admitted, Turn, TurnLog], None],
    ) -> None:
        self._on_start = on_start
        self._collaborators = collaborators
        self._runner_id = runner_id
        self._max_turns = max_turns
        self._places = places
        self._on_end = on_end
        self._group = asyncio.TaskGroup()
        self._heartbeat: asyncio.Task[None] | None = None
        # Both empty as turns end; a runner is in the first while it is admitted, too.
        self._runners: dict[TurnRunner, asyncio.Task[None]] = {}
        self._by_id: dict[TurnId, TurnRunner] = {}
        self._idle = asyncio.Event()
        self._idle.set()
        self._idle_or_hurried = asyncio.Event()
        self._idle_or_hurried.set()
        self._is_draining = False
        self._is_hurried = False

    async def __aenter__(self) -> Self:
        await self._group.__aenter__()
        self._heartbeat = self._group.create_task(self._beat())
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        assert self._heartbeat is not None
        await self.drain(0)
        self._heartbeat.cancel()
        await self._group.__aexit__(kind, exc, traceback)

    def __len__(self) -> int:
        return len(self._runners)

    def get(self, turn_id: TurnId) -> TurnRunner | None:
        """The turn's runner, if it runs here."""
        return self._by_id.get(turn_id)

    def live(self, turn: Turn) -> Turn:
        """The turn as it is now, if it runs here; or else as given."""
        runner = self._by_id.get(turn.id)
        return turn if runner is None else runner.turn

    async def start(
        self,
        owner: OwnerId,
        admit: Callable[[], Awaitable[Admitted | Turn]],
        known: Callable[[], Awaitable[Turn | None]],
        *,
        goes_on: bool = True,
    ) -> Turn:
        """Admit and run a turn in a task of its own; returns, or raises, when it is admitted.

        Whoever waits may be cancelled: the turn goes on, or is cancelled as it begins. One that is
        `known` already needs no place, and is found however full it is.
        """
        try:
            self._take_place(owner)
        except (DrainingError, EngineBusyError, TooManyTurnsError):
            there = await known()
            if there is None:
                raise
            return self.live(there)
        runner = TurnRunner(self._collaborators, admit, on_begin=self._add, on_end=self._on_end)
        self._idle.clear()
        if not self._is_hurried:
            self._idle_or_hurried.clear()
        self._runners[runner] = self._group.create_task(self._run(owner, runner))
        try:
            return self.live(await runner.accepted)
        except asyncio.CancelledError:
            if not goes_on:
                await runner.cancel()
            raise

    def _take_place(self, owner: OwnerId) -> None:
        if self._is_draining:
            raise DrainingError("the server is stopping")
        if len(self._runners) >= self._max_turns:
            # The engine would say so, too, but of a turn that is in the history by then.
            raise EngineBusyError(f"{len(self._runners)} turns run or wait already")
        self._places.take(owner)

    async def drain(self, timeout_s: float) -> None:
        """Refuse new turns, give those that run some time, then interrupt them, keeping replies.

        `hurry` ends the waiting. A store that takes nothing does not keep the server either: what
        it does not take in time is left, with its last checkpoint, to the next start.
        """
        self._is_draining = True
        await self._wait(timeout_s)
        for runner in tuple(self._runners):
            await runner.interrupt()
        await self._wait(self._collaborators.rules.cancel_grace_s + ENDS_WRITTEN_S)
        for runner in tuple(self._runners):
            await runner.interrupt(grace_s=HURRIED_GRACE_S)
        with suppress(TimeoutError):
            async with asyncio.timeout(HURRIED_GRACE_S + HURRIED_ENDS_WRITTEN_S):
                await self._idle.wait()
        await self._abandon()

    async def _abandon(self) -> None:
        while self._runners:
            logger.error("turns whose ends can't be written: %d", len(self._runners))
            tasks = tuple(self._runners.values())
            for task in tasks:
                task.cancel()
            # Again, should one have lost its cancellation in what it was about.
            await asyncio.wait(tasks, timeout=HURRIED_ENDS_WRITTEN_S)

    def hurry(self) -> None:
        """Let a drain, this one or a later, wait no longer; replies are kept even so."""
        self._is_hurried = True
        self._idle_or_hurried.set()

    async def _wait(self, timeout_s: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._idle_or_hurried.wait()

    async def recover(self) -> int:
        """End, as interrupted, what this runner's former life left behind, and what
        `end_abandoned` finds; how many turns."""
        return await self._interrupt(self._runner_id)

    async def tend(self) -> None:
        """Renew the leases of what runs here, and end what nobody runs any more."""
        rules, now = self._collaborators.rules, self._collaborators.clock()
        if self._by_id:
            await self._collaborators.store.renew(
                self._runner_id, tuple(self._by_id), now + timedelta(seconds=rules.lease_s)
            )
        # Not this runner's own by name: one may have been written a moment ago.
        await self._interrupt(None)

    async def _interrupt(self, runner_id: str | None) -> int:
        now = self._collaborators.clock()
        ended = await self._collaborators.store.interrupt_abandoned(
            runner_id, now, spare=tuple(self._by_id)
        )
        if ended:
            logger.warning(
                "turns that a server left behind unfinished, now interrupted: %d", len(ended)
            )
        return len(ended)

    def _add(self, runner: TurnRunner, turn_id: TurnId) -> None:
        self._by_id[turn_id] = runner

    async def _run(self, owner: OwnerId, runner: TurnRunner) -> None:
        try:
            await self._on_start()
            await runner.run()
        finally:
            self._places.leave(owner)
            del self._runners[runner]
            if runner.is_admitted:
                self._by_id.pop(runner.turn.id, None)
            if not self._runners:
                self._idle.set()
                self._idle_or_hurried.set()

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(self._collaborators.rules.lease_s / RENEWALS_PER_LEASE)
            try:
                await self.tend()
            except StoreUnavailableError as exc:
                logger.warning("leases are not renewed: %s", exc)
