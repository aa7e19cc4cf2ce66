"""Where sessions' states lie and how they are moved: shown, warmed, parked. One for a server."""

from collections.abc import Callable
from datetime import datetime
from types import TracebackType
from typing import Self

from model.engine import Engine
from model.messages import TierName
from sessions.errors import InvalidInputError
from sessions.prompt import PromptComposer
from sessions.residencies import Residencies
from sessions.store import Store
from sessions.types import OwnerId, Session, SessionId, Turn
from sessions.warm_up import WarmUp
from sessions.warming import Warmed, Warming, WarmingLedger


class Presence:
    """An async context manager: while it is open, it keeps up with the engine."""

    def __init__(
        self,
        *,
        store: Store,
        engine: Engine,
        composer: PromptComposer,
        runner_id: str,
        clock: Callable[[], datetime],
    ) -> None:
        self._store = store
        self._engine = engine
        self.ledger = WarmingLedger(clock)
        self._warming = Warming(
            store=store, engine=engine, composer=composer, ledger=self.ledger, clock=clock
        )
        self.warm_up = WarmUp(
            store=store, engine=engine, composer=composer, ledger=self.ledger, clock=clock
        )
        self.residencies = Residencies(store=store, engine=engine, runner_id=runner_id)

    async def __aenter__(self) -> Self:
        await self.residencies.__aenter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.residencies.__aexit__(kind, exc, traceback)

    async def warm(self, owner: OwnerId, session_id: SessionId, *, deadline_s: float) -> Warmed:
        """Bring what the session's next turn begins with onto the device; see `Warming.warm`."""
        session = await self._store.session(owner, session_id)
        warmed = await self._warming.warm(session, deadline_s)
        self.residencies.touch()
        return warmed

    async def park(self, owner: OwnerId, session_id: SessionId, tier: str) -> bool:
        """Move what the device has of the session to a tier; whether there was anything to move.

        Raises InvalidInputError where the server has no such tier.
        """
        await self._store.session(owner, session_id)
        names = [stats.name for stats in (await self._engine.stats()).tiers]
        if tier not in names:
            has = f"only {', '.join(names)}" if names else "no tier at all"
            raise InvalidInputError(f"this server has no tier {tier!r}: {has}", param="tier")
        is_moved = await self._engine.park(session_id, TierName(tier))
        self.residencies.touch()
        return is_moved

    def followed(self, session: Session, turn: Turn) -> None:
        """A turn of the session has ended."""
        self.residencies.assume(turn)
        self.ledger.used("request", session.id)
        self.warm_up.used(session)
        self.residencies.touch()
