"""The warm-up behind a start: the system prompts that most turns began with lately are restored, or
computed, while nobody asks for anything.

Invariant: it ends when a turn begins
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime, timedelta

from model.engine import Engine
from model.errors import ModelError
from model.messages import FinishReason, GenerationRequest
from sessions.ids import new_turn_id
from sessions.prompt import PromptComposer
from sessions.store import Store
from sessions.types import OwnerId, Session
from sessions.warming import WarmingLedger, generate


class WarmUp:
    """Makes the busiest system prompts ready when a server has started."""

    _SINCE = timedelta(days=1)
    _MAX_PROMPTS = 32

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
        self._ledger = ledger
        self._clock = clock
        self._running: str | None = None
        self._is_over = False

    async def run(self, limit_s: float) -> int:
        """Warm one prompt after another, the busiest first, until a turn comes or the time is over;
        how many are warm. Raises ModelError, SessionsError."""
        num_warm, self._is_over = 0, False
        with suppress(TimeoutError):
            async with asyncio.timeout(limit_s):
                now = self._clock()
                busy = await self._store.busy_prompts(now - self._SINCE, self._MAX_PROMPTS)
                for prompt in busy:
                    if self._is_over:
                        break
                    owner, text = prompt.owner, prompt.instructions
                    name = f"warm_{new_turn_id(now)}"
                    request = await self._composer.compose_lead(owner, text, name, now)
                    num_warm += await self._warm_one(request, _name_of(owner, text))
        return num_warm

    async def _warm_one(self, request: GenerationRequest | None, name: str) -> bool:
        if request is None or self._is_over:
            return False
        self._running = request.request_id
        try:
            claim, finished = await generate(self._engine, request)
        finally:
            self._running = None
        if claim is None or finished.reason is not FinishReason.LENGTH:
            return False
        self._ledger.warmed("start", name, claim)
        return True

    def used(self, session: Session) -> None:
        """A turn begins with the session's system prompt."""
        self._ledger.used("start", _name_of(session.owner, session.instructions))

    async def give_way(self) -> None:
        """A turn has come: end what runs, and begin nothing any more. What was computed so far can
        still be found."""
        self._is_over = True
        if self._running is not None:
            with suppress(ModelError):  # then there is nothing to end
                await self._engine.cancel(self._running)


def _name_of(owner: OwnerId, instructions: str | None) -> str:
    """By what a turn's use of a warmed prompt is known again."""
    return f"{owner}\0{instructions}"
