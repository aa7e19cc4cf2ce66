"""A turn's prompt: the token log it is built on, and what is new.

A turn is built on the log of its *base*, usually its parent. A parent that ended by failure,
cancellation or interruption before its first token left nothing in the conversation and is
skipped, with what it was asked: its child is built on what it was built on itself.

Invariants:
    an append-only template never has a known token encoded again
    `token_ids[:keep_tokens]` is the base's log up to there
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime

from model.engine import Engine
from model.errors import EngineUnavailableError
from sessions.rendering import Renderer
from sessions.store import Store
from sessions.token_log import RecentLogs, TokenSpan, TurnLog, common_prefix, unroll
from sessions.types import InputMessage, Session, Turn, TurnId, TurnStatus

# About 40 MB of Python integers at the most.
MAX_RECENT_TOKENS = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """All ids to feed, where they leave the base's log, and what the engine may know of them.

    `table_of` is the turn whose parked block table fits best.
    """

    token_ids: tuple[int, ...] = field(repr=False)
    base_id: TurnId | None = None
    keep_tokens: int = 0
    table_of: TurnId | None = None
    num_known_tokens: int = 0
    known_fingerprint: str | None = None
    diverged_at: int | None = None

    def span(self, turn_id: TurnId, fingerprint: str) -> TokenSpan:
        """The turn's part of the log as long as there is no reply."""
        return TokenSpan(
            turn_id=turn_id,
            base_id=self.base_id,
            keep_tokens=self.keep_tokens,
            num_prompt_tokens=len(self.token_ids),
            ids=self.token_ids[self.keep_tokens :],
            fingerprint=fingerprint,
        )


class PromptComposer:
    """Makes prompts; keeps the logs of the turns used last."""

    def __init__(self, store: Store, engine: Engine) -> None:
        self._store = store
        self._engine = engine
        self._renderer: Renderer | None = None
        self._recent = RecentLogs(MAX_RECENT_TOKENS)

    def use_renderer(self, renderer: Renderer) -> None:
        """Make prompts with this renderer from now on."""
        self._renderer = renderer

    @property
    def renderer(self) -> Renderer:
        """Raises EngineUnavailableError while there is none."""
        if self._renderer is None:
            raise EngineUnavailableError("the engine is starting")
        return self._renderer

    def remember(self, log: TurnLog) -> None:
        """Keep the log of a turn that has just ended; the next one will be built on it."""
        self._recent.put(log)

    async def compose(
        self, session: Session, parent: Turn | None, messages: Sequence[InputMessage]
    ) -> Prompt:
        """The prompt of a turn that follows `parent` (ended), or that is the session's first.

        Raises InvalidInputError when the model's template refuses the messages.
        """
        base_id = await self._base_after(parent) if parent is not None else None
        clock_at = await self._store.clock_at(session.id)
        if base_id is None:
            lead = _instructions(session)
            ids = await self._whole((*lead, *messages), clock_at)
            return Prompt(token_ids=ids)
        log = await self.log(base_id)
        if log.span.fingerprint == self._engine.info.fingerprint:
            appended = await self._append(session, log, messages, clock_at)
            if appended is not None:
                return appended
        return await self._render_again(session, log, messages, clock_at)

    async def compose_again(
        self, session: Session, sibling: Turn, messages: Sequence[InputMessage], parent: Turn | None
    ) -> Prompt:
        """The prompt that `sibling` (ended) had, id for id, as long as the model is the same."""
        log = await self.log(sibling.id)
        span = log.span
        if span.fingerprint != self._engine.info.fingerprint:
            return await self.compose(session, parent, messages)
        has_table = bool(span.reply_ids)
        return Prompt(
            token_ids=log.token_ids[: span.num_prompt_tokens],
            base_id=span.base_id,
            keep_tokens=span.keep_tokens,
            # The sibling's own table has the whole prompt; its parent's ends where it began.
            table_of=sibling.id if has_table else span.base_id,
            num_known_tokens=span.num_prompt_tokens if has_table else span.keep_tokens,
            known_fingerprint=span.fingerprint,
        )

    async def log(self, turn_id: TurnId) -> TurnLog:
        """The whole log of an ended turn."""
        known = self._recent.get(turn_id)
        if known is not None:
            return known
        spans = await self._store.spans(turn_id)
        log = TurnLog(span=spans[-1], token_ids=unroll(spans))
        self._recent.put(log)
        return log

    async def _base_after(self, parent: Turn) -> TurnId | None:
        if parent.status in (TurnStatus.COMPLETED, TurnStatus.INCOMPLETE):
            return parent.id
        span = (await self.log(parent.id)).span
        return parent.id if span.reply_ids else span.base_id

    async def _append(
        self, session: Session, log: TurnLog, messages: Sequence[InputMessage], clock_at: datetime
    ) -> Prompt | None:
        renderer = self.renderer
        has_system = renderer.minds_system and await self._has_system(session, log)
        added = await asyncio.to_thread(
            renderer.follow, tuple(messages), has_system=has_system, clock_at=clock_at
        )
        if added is None:
            return None
        token_ids = log.token_ids
        rest = added.behind(log.span.reply_ids)
        if rest == added.token_ids and self._ends_itself(log):
            # The model ended with a token that the template does not close a reply with.
            token_ids = token_ids[:-1]
        return Prompt(
            token_ids=token_ids + rest,
            base_id=log.span.turn_id,
            keep_tokens=len(token_ids),
            table_of=log.span.turn_id,
            num_known_tokens=len(token_ids),
            known_fingerprint=log.span.fingerprint,
        )

    async def _render_again(
        self, session: Session, log: TurnLog, messages: Sequence[InputMessage], clock_at: datetime
    ) -> Prompt:
        history = await self._history(session, log)
        ids = await self._whole((*history, *messages), clock_at)
        base_id, fingerprint = log.span.turn_id, log.span.fingerprint
        if fingerprint != self._engine.info.fingerprint:
            # Ids of another model: nothing is kept, but the engine may say why.
            return Prompt(
                token_ids=ids,
                base_id=base_id,
                table_of=base_id,
                num_known_tokens=min(len(ids), len(log.token_ids)),
                known_fingerprint=fingerprint,
            )
        keep = common_prefix(ids, log.token_ids)
        is_whole = keep >= len(log.token_ids) - self._ends_itself(log)
        return Prompt(
            token_ids=ids,
            base_id=base_id,
            keep_tokens=keep,
            table_of=base_id,
            num_known_tokens=keep,
            known_fingerprint=fingerprint,
            diverged_at=None if is_whole else keep,
        )

    def _ends_itself(self, log: TurnLog) -> bool:
        reply_ids = log.span.reply_ids
        return bool(reply_ids) and reply_ids[-1] in self._engine.info.eos_token_ids

    async def _whole(
        self, messages: tuple[InputMessage, ...], clock_at: datetime
    ) -> tuple[int, ...]:
        return await asyncio.to_thread(self.renderer.whole, messages, clock_at=clock_at)

    async def _history(self, session: Session, log: TurnLog) -> tuple[InputMessage, ...]:
        messages = list(_instructions(session))
        for turn in await self._store.base_turns(log.span.turn_id):
            messages += [InputMessage(role=i.role, text=i.text) for i in turn.input_items]
            messages.append(InputMessage(role="assistant", text=turn.reply_text))
        return tuple(messages)

    async def _has_system(self, session: Session, log: TurnLog) -> bool:
        return self.renderer.begins_with_system(await self._history(session, log))


def _instructions(session: Session) -> tuple[InputMessage, ...]:
    if not session.instructions:
        return ()
    return (InputMessage(role="system", text=session.instructions),)
