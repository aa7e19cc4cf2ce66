"""Titles that the model makes while nobody else wants it.

A title is made from how a conversation began, in a generation of its own that belongs to no
conversation: nothing is parked, and nothing is written but the title. One at a time, and only while
no reply is in the making; the first turn that comes ends it, and it is tried again later.

Invariants:
    nobody waits for a title, and none takes blocks from a table that is parked
    a title that a person gave, or took away for good, is never written over
"""

import asyncio
import logging
from collections import OrderedDict
from collections.abc import AsyncGenerator
from contextlib import aclosing, suppress
from itertools import count
from types import TracebackType
from typing import Self, cast

from model.config import SamplingParams
from model.engine import Engine
from model.errors import ModelError
from model.messages import GenerationEvent, GenerationFinished, GenerationRequest
from sessions.errors import SessionsError
from sessions.places import Places
from sessions.preparation import Preparations
from sessions.prompt import PromptComposer
from sessions.store import Store
from sessions.title_text import first_words, title_request, to_title
from sessions.types import Session, SessionId, Turn, Untitled

logger = logging.getLogger(__name__)

MAX_TOKENS = 24
DEADLINE_S = 60.0
# Those that wait beyond are found again at the next start.
MAX_WAITING = 1000
# Of those that a former life left without, the ones used last.
MAX_RESUMED = 100
# Interruptions don't count; whatever fails this often is named by its first words.
MAX_TRIES = 3
RETRY_S = 2.0


class Titler:
    """Owns the task that makes titles; leaving it ends them. Does nothing unless `is_on`."""

    def __init__(
        self,
        *,
        store: Store,
        engine: Engine,
        composer: PromptComposer,
        preparations: Preparations,
        places: Places,
        is_on: bool,
        retry_s: float = RETRY_S,
    ) -> None:
        self._store = store
        self._engine = engine
        self._composer = composer
        self._preparations = preparations
        self._places = places
        self._is_on = is_on
        self._retry_s = retry_s
        self._group = asyncio.TaskGroup()
        self._task: asyncio.Task[None] | None = None
        self._has_model = asyncio.Event()
        self._has_work = asyncio.Event()
        self._num_failures: OrderedDict[SessionId, int] = OrderedDict()  # of those that wait
        self._numbers = count()

    async def __aenter__(self) -> Self:
        await self._group.__aenter__()
        if self._is_on:
            self._task = self._group.create_task(self._run())
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()
        await self._group.__aexit__(kind, exc, traceback)

    def begin(self) -> None:
        """There is a model now: take up what was left behind, and what comes."""
        self._has_model.set()

    def stop(self) -> None:
        """Make no more titles."""
        if self._task is not None:
            self._task.cancel()

    def follow(self, session: Session, ended: Turn) -> None:
        """Have a title made behind a turn, if the session wants one."""
        is_wanted = session.title is None and session.is_auto_titled
        if is_wanted and ended.status.is_answer:
            self._want(session.id)

    def _want(self, session_id: SessionId) -> None:
        if not self._is_on or len(self._num_failures) >= MAX_WAITING:
            return
        self._num_failures.setdefault(session_id, 0)
        self._has_work.set()

    async def _run(self) -> None:
        await self._has_model.wait()
        with suppress(SessionsError):
            for session_id in await self._store.untitled(MAX_RESUMED):
                self._want(session_id)
        while True:
            await self._has_work.wait()
            await self._places.idle()
            await self._preparations.settled()
            if self._places.is_idle:
                await self._next()

    async def _next(self) -> None:
        """Make one title; what was interrupted stays the next."""
        session_id, num_failures = next(iter(self._num_failures.items()))
        is_over = True
        try:
            found = await self._store.beginning(session_id)
            if found is not None:
                is_over = await self._give(found, has_failed=num_failures >= MAX_TRIES)
        except (ModelError, SessionsError) as exc:
            logger.info("%s: no title yet: %s", session_id, exc)
            self._num_failures[session_id] += 1
            self._num_failures.move_to_end(session_id)
            await asyncio.sleep(self._retry_s)
            is_over = num_failures > MAX_TRIES
        except Exception:
            logger.exception("%s: no title", session_id)
        if is_over:
            del self._num_failures[session_id]
        if not self._num_failures:
            self._has_work.clear()

    async def _give(self, untitled: Untitled, *, has_failed: bool) -> bool:
        """Make a title and write it; False when it was interrupted."""
        title = first_words(untitled.question, untitled.reply)
        if not has_failed:
            answer = await self._unless_busy(untitled)
            if answer is None:
                return False
            title = to_title(answer) or title
        if title is not None:
            await self._store.give_title(untitled.session_id, title)
        return True

    async def _unless_busy(self, untitled: Untitled) -> str | None:
        """The model's answer, empty if there is no room for it; None when a turn came first."""
        async with asyncio.TaskGroup() as group:
            asked = group.create_task(self._asked(untitled))
            busy = group.create_task(self._places.busy())
            await asyncio.wait((asked, busy), return_when=asyncio.FIRST_COMPLETED)
            asked.cancel()
            busy.cancel()
        if asked.cancelled():
            return None
        answer = asked.result()
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def _asked(self, untitled: Untitled) -> str | ModelError | SessionsError:
        """The answer, or why there is none: raised, it would come out of a group."""
        try:
            return await self._ask(untitled)
        except (ModelError, SessionsError) as exc:
            return exc

    async def _ask(self, untitled: Untitled) -> str:
        renderer = self._composer.renderer
        messages = title_request(untitled.question, untitled.reply)
        token_ids = await asyncio.to_thread(renderer.whole, messages)
        if not await self._has_room(len(token_ids) + MAX_TOKENS):
            return ""
        request = GenerationRequest(
            request_id=f"title_{untitled.session_id}_{next(self._numbers)}",
            token_ids=token_ids,
            params=SamplingParams(
                max_output_tokens=MAX_TOKENS, temperature=0.0, deadline_s=DEADLINE_S
            ),
            owner=untitled.owner,
        )
        generated = cast("AsyncGenerator[GenerationEvent, None]", self._engine.generate(request))
        async with aclosing(generated):
            async for event in generated:
                if isinstance(event, GenerationFinished):
                    return renderer.answer(event.text)
        return ""

    async def _has_room(self, num_tokens: int) -> bool:
        """Whether so many tokens fit into blocks that no table holds."""
        stats = await self._engine.stats()
        block_size = self._engine.info.block_size
        num_free = stats.blocks_cached + stats.blocks_empty
        return num_tokens + block_size <= num_free * block_size
