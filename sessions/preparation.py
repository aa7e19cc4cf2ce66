"""Prefixes computed ahead: where reasoning is dropped, the next turn's is made while people read.

A prefix is a generation of no tokens under an id of its own, parked in the engine for the next turn
to claim. It is an offer: whatever goes wrong here, the next turn computes what is missing.

Invariants:
    at most one prefix is computed behind a turn, and none any more once the turn was followed
    nobody waits for one: who is quicker ends it, and keeps what was computed until then
"""

import asyncio
import logging
from collections import OrderedDict
from collections.abc import AsyncGenerator
from contextlib import aclosing, suppress
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Self, cast

from model.config import SamplingParams
from model.engine import Engine
from model.errors import ModelError
from model.messages import FinishReason, GenerationEvent, GenerationFinished
from sessions.errors import SessionsError
from sessions.prompt import Prompt, PromptComposer
from sessions.token_log import common_prefix
from sessions.types import ReasoningPolicy, Session, SessionId, Turn, TurnId

logger = logging.getLogger(__name__)

# Of those that nobody followed yet. What is forgotten here is still found by the engine, which
# looks through all tables of a conversation; only the reasons it gives are less exact.
MAX_REMEMBERED = 1000


@dataclass(slots=True, eq=False)
class _Preparation:
    """One prefix: `keep_tokens` of its turn's log and `token_ids` behind them."""

    session_id: SessionId
    request_id: str
    task: asyncio.Task[None] | None = None
    is_wanted: bool = True
    is_computed: bool = False
    keep_tokens: int = 0
    token_ids: tuple[int, ...] = ()


class Preparations:
    """Owns the tasks that compute prefixes; leaving it ends them."""

    def __init__(self, engine: Engine, composer: PromptComposer) -> None:
        self._engine = engine
        self._composer = composer
        self._group = asyncio.TaskGroup()
        self._by_turn: OrderedDict[TurnId, _Preparation] = OrderedDict()
        self._tasks: set[asyncio.Task[None]] = set()  # each leaves as it ends
        self._is_stopped = False

    async def __aenter__(self) -> Self:
        await self._group.__aenter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()
        await self._group.__aexit__(kind, exc, traceback)

    def begin(self, session: Session, turn: Turn) -> None:
        """Have the prefix behind an ended turn computed, if it differs from the turn's log."""
        if session.reasoning is not ReasoningPolicy.DROP or self._is_stopped:
            return
        made = _Preparation(session_id=session.id, request_id=f"ahead_{turn.id}")
        self._by_turn[turn.id] = made
        made.task = self._group.create_task(self._run(made, session, turn))
        self._tasks.add(made.task)
        made.task.add_done_callback(self._tasks.discard)
        while len(self._by_turn) > MAX_REMEMBERED:
            _, oldest = self._by_turn.popitem(last=False)
            oldest.is_wanted = False

    async def claim(self, session: Session, prompt: Prompt) -> Prompt:
        """The prompt, told of the prefix that was computed for it; one that is still being computed
        is ended."""
        if prompt.base_id is None or prompt.table_of != prompt.base_id:
            return prompt
        made = self._by_turn.get(prompt.base_id)
        if made is None:
            return prompt
        if made.session_id == session.id:  # a fork takes nothing away
            made.is_wanted = False
            del self._by_turn[prompt.base_id]
            if not made.is_computed:
                with suppress(ModelError):  # then there is nothing to end
                    await self._engine.cancel(made.request_id)
        if not made.is_computed or made.keep_tokens != prompt.keep_tokens:
            return prompt
        num_met = common_prefix(made.token_ids, prompt.token_ids[made.keep_tokens :])
        return replace(
            prompt,
            table_of=TurnId(made.request_id),
            num_known_tokens=made.keep_tokens + num_met,
            diverged_at=None,
        )

    async def forget(self, session_id: SessionId) -> None:
        """End what is being computed for a session; returns when it has ended."""
        mine = [t for t, made in self._by_turn.items() if made.session_id == session_id]
        tasks = [task for turn_id in mine if (task := self._by_turn.pop(turn_id).task) is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def settled(self) -> None:
        """Return when what is being computed now has ended."""
        if self._tasks:
            await asyncio.wait(tuple(self._tasks))

    def stop(self) -> None:
        """End everything, and begin nothing any more."""
        self._is_stopped = True
        for task in self._tasks:
            task.cancel()

    async def _run(self, made: _Preparation, session: Session, turn: Turn) -> None:
        try:
            await self._compute(made, session, turn)
        except (ModelError, SessionsError) as exc:
            logger.info("%s: no prefix behind it: %s", turn.id, exc)
        except Exception:
            logger.exception("%s: no prefix behind it", turn.id)
        finally:
            made.task = None
            if not made.is_computed and self._by_turn.get(turn.id) is made:
                del self._by_turn[turn.id]

    async def _compute(self, made: _Preparation, session: Session, turn: Turn) -> None:
        prompt = await self._composer.compose_ahead(session, turn)
        if prompt is None or prompt.base_id != turn.id or not made.is_wanted:
            return
        made.keep_tokens = prompt.keep_tokens
        made.token_ids = prompt.token_ids[prompt.keep_tokens :]
        request = prompt.generation(
            made.request_id, session, SamplingParams(max_output_tokens=0, temperature=0.0)
        )
        generated = cast("AsyncGenerator[GenerationEvent, None]", self._engine.generate(request))
        async with aclosing(generated):
            async for event in generated:
                if isinstance(event, GenerationFinished):
                    made.is_computed = event.reason is FinishReason.LENGTH
