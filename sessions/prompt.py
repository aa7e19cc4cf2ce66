"""A turn's prompt: the token log it is built on, and what is new.

A turn is built on the log of its *base*, usually its parent. A parent that ended by failure,
cancellation or interruption before its first token left nothing in the conversation and is
skipped, with what it was asked: its child is built on what it was built on itself.

Invariants:
    an append-only template never has a known token encoded again, and no template has a token
    computed again whose text, and the text before it, stayed the same
    `token_ids[:keep_tokens]` is the base's log up to there
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from model.config import SamplingParams
from model.engine import Engine
from model.errors import EngineUnavailableError
from model.messages import GenerationRequest
from sessions.errors import ConflictError
from sessions.public_prefix import PublicPrefixes
from sessions.rendering import Renderer
from sessions.store import Store
from sessions.token_log import RecentLogs, TokenSpan, TurnLog, common_prefix, unroll
from sessions.types import (
    InputMessage,
    OwnerId,
    ReasoningPolicy,
    Session,
    SessionId,
    Turn,
    TurnId,
    TurnStatus,
)

# About 40 MB of Python integers at the most.
MAX_RECENT_TOKENS = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """All ids to feed, where they leave the base's log, and what the engine may know of them.

    `table_of` is the turn whose parked block table fits best; `origin_id` the session it lies in,
    where that is another one. The first `num_public_tokens` are nobody's own.
    """

    token_ids: tuple[int, ...] = field(repr=False)
    base_id: TurnId | None = None
    keep_tokens: int = 0
    table_of: TurnId | None = None
    num_known_tokens: int = 0
    known_fingerprint: str | None = None
    diverged_at: int | None = None
    origin_id: SessionId | None = None
    num_public_tokens: int = 0

    def generation(
        self, request_id: str, session: Session, params: SamplingParams
    ) -> GenerationRequest:
        """What the engine is asked, for a session; parked under `request_id`."""
        return GenerationRequest(
            request_id=request_id,
            token_ids=self.token_ids,
            params=params,
            owner=session.owner,
            conversation_id=session.id,
            parent_turn_id=self.table_of,
            origin_conversation_id=self.origin_id,
            num_public_tokens=self.num_public_tokens,
            num_known_tokens=self.num_known_tokens,
            parent_fingerprint=self.known_fingerprint,
            diverged_at=self.diverged_at,
            retain_s=session.retain_s,
            priority=session.priority,
        )

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

    def __init__(
        self, store: Store, engine: Engine, public_instructions: frozenset[str] = frozenset()
    ) -> None:
        self._store = store
        self._engine = engine
        self._public_instructions = public_instructions
        self._renderer: Renderer | None = None
        self._public: PublicPrefixes | None = None
        self._recent = RecentLogs(MAX_RECENT_TOKENS)

    def use_renderer(self, renderer: Renderer) -> None:
        """Make prompts with this renderer from now on."""
        self._renderer = renderer
        self._public = PublicPrefixes(renderer, self._public_instructions)

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
        clock_at = await self._store.clock_at(session.id)
        prompt = await self._compose(session, parent, messages, clock_at)
        return await self._placed(prompt, session, parent, clock_at)

    async def _compose(
        self,
        session: Session,
        parent: Turn | None,
        messages: Sequence[InputMessage],
        clock_at: datetime,
    ) -> Prompt:
        base_id = await self._base_after(parent) if parent is not None else None
        if base_id is None:
            lead = _instructions(session)
            ids = await self._whole((*lead, *messages), clock_at)
            return Prompt(token_ids=ids)
        log = await self.log(base_id)
        is_continued = await self._is_instructed(session, log, clock_at)
        if is_continued and log.span.fingerprint == self._engine.info.fingerprint:
            appended = await self._append(session, log, messages, clock_at)
            if appended is not None:
                return appended
        return await self._render_again(session, log, messages, clock_at)

    async def compose_ahead(self, session: Session, turn: Turn) -> Prompt | None:
        """What every prompt that follows `turn` (ended) with words of the user's begins with.

        None when that is the turn's log and no more, which is there to be continued.
        """
        one, other = [
            await self.compose(session, turn, (InputMessage(role="user", text=text),))
            for text in ("x", "y")
        ]
        if one.diverged_at is None:
            return None
        shared = one.token_ids[: common_prefix(one.token_ids, other.token_ids)]
        return replace(one, token_ids=shared) if len(shared) > one.keep_tokens else None

    async def compose_log(self, session: Session, head: Turn) -> Prompt | None:
        """What the next turn behind `head` (ended) is built on, as a prompt of its own; None where
        there is no log to go on from, or none that this model wrote."""
        base_id = await self._base_after(head)
        if base_id is None:
            return None
        log = await self.log(base_id)
        clock_at = await self._store.clock_at(session.id)
        is_ours = log.span.fingerprint == self._engine.info.fingerprint
        if not is_ours or not await self._is_instructed(session, log, clock_at):
            return None
        if session.reasoning is ReasoningPolicy.DROP:
            ahead = await self.compose_ahead(session, head)
            if ahead is not None:
                return ahead
        prompt = self._built(log, log.token_ids, len(log.token_ids))
        return await self._placed(prompt, session, head, clock_at)

    async def compose_lead(
        self, owner: OwnerId, instructions: str | None, request_id: str, now: datetime
    ) -> GenerationRequest | None:
        """A generation of no tokens from what all new conversations with these instructions begin
        with; None where that is nothing."""
        lead = () if instructions is None else (InputMessage(role="system", text=instructions),)
        one, other = [
            await self._whole((*lead, InputMessage(role="user", text=text)), now)
            for text in ("x", "y")
        ]
        ids = one[: common_prefix(one, other)]
        if not ids:
            return None
        assert self._public is not None, "composed without a renderer"
        return GenerationRequest(
            request_id=request_id,
            token_ids=ids,
            params=SamplingParams(max_output_tokens=0, temperature=0.0),
            owner=owner,
            num_public_tokens=await asyncio.to_thread(self._public.count, lead, now),
        )

    async def compose_again(
        self, session: Session, sibling: Turn, messages: Sequence[InputMessage], parent: Turn | None
    ) -> Prompt:
        """The prompt that `sibling` (ended) had, id for id, as long as the model and the
        session's instructions are the same."""
        log = await self.log(sibling.id)
        clock_at = await self._store.clock_at(session.id)
        is_same = log.span.fingerprint == self._engine.info.fingerprint
        if not is_same or not await self._is_instructed(session, log, clock_at):
            return await self.compose(session, parent, messages)
        return await self.recall(session, sibling, parent)

    async def recall(self, session: Session, sibling: Turn, parent: Turn | None) -> Prompt:
        """The prompt that `sibling` (ended) had, id for id, whatever has changed since."""
        log = await self.log(sibling.id)
        span = log.span
        has_table = bool(span.reply_ids)
        prompt = Prompt(
            token_ids=log.token_ids[: span.num_prompt_tokens],
            base_id=span.base_id,
            keep_tokens=span.keep_tokens,
            # The sibling's own table has the whole prompt; its parent's ends where it began.
            table_of=sibling.id if has_table else span.base_id,
            num_known_tokens=span.num_prompt_tokens if has_table else span.keep_tokens,
            known_fingerprint=span.fingerprint,
        )
        clock_at = await self._store.clock_at(session.id)
        near = sibling if has_table else parent
        return await self._placed(prompt, session, near, clock_at)

    async def recall_cut(
        self, session: Session, cut: Turn, parent: Turn | None
    ) -> tuple[Prompt, tuple[int, ...]]:
        """The prompt and the reply so far that a cut turn is continued with.

        The very ids, if they are the loaded model's; or else all is rendered and encoded anew, and
        ConflictError raised when the reply's text can't be encoded such that it stays the same.
        """
        span = (await self.log(cut.id)).span
        if span.fingerprint == self._engine.info.fingerprint:
            return await self.recall(session, cut, parent), span.reply_ids
        messages = [InputMessage(role=i.role, text=i.text) for i in cut.input_items]
        prompt = await self.compose(session, parent, messages)
        reply_ids = await asyncio.to_thread(self.renderer.reply, cut.reply_text)
        if reply_ids is None:
            raise ConflictError(
                f"{cut.id} was begun by another model, and this one's tokenizer can't write its "
                "text; regenerate it instead"
            )
        return self._because_changed(prompt, span), reply_ids

    def _because_changed(self, prompt: Prompt, span: TokenSpan) -> Prompt:
        """A prompt without a base to blame: it was the tokens of `span` that could not be used."""
        if prompt.base_id is not None:
            return prompt
        return replace(
            prompt,
            table_of=span.turn_id,
            num_known_tokens=len(prompt.token_ids),
            known_fingerprint=span.fingerprint,
        )

    async def _placed(
        self, prompt: Prompt, session: Session, near: Turn | None, clock_at: datetime
    ) -> Prompt:
        """Say where else its history may lie, and how much of it is everybody's."""
        assert self._public is not None, "composed without a renderer"
        is_elsewhere = near is not None and near.session_id != session.id
        lead = _instructions(session)
        return replace(
            prompt,
            origin_id=near.session_id if near is not None and is_elsewhere else None,
            num_public_tokens=await asyncio.to_thread(self._public.count, lead, clock_at),
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
            renderer.follow,
            tuple(messages),
            has_system=has_system,
            clock_at=clock_at,
            only_answers=session.reasoning is not ReasoningPolicy.TEMPLATE,
        )
        if added is None:
            return None
        prompt_ids, reply_ids = await self._remembered(session, log)
        rest = added.behind(reply_ids)
        if rest == added.token_ids and self._ends_itself(reply_ids):
            # The model ended with a token that the template does not close a reply with.
            reply_ids = reply_ids[:-1]
        front = prompt_ids + reply_ids
        return self._built(log, front + rest, common_prefix(front, log.token_ids))

    async def _remembered(
        self, session: Session, log: TurnLog
    ) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """The base's prompt and reply as they stand in front of what comes next."""
        size = log.span.num_prompt_tokens
        prompt_ids, reply_ids = log.token_ids[:size], log.token_ids[size:]
        if session.reasoning is not ReasoningPolicy.DROP:
            return prompt_ids, reply_ids
        return await asyncio.to_thread(self.renderer.without_reasoning, prompt_ids, reply_ids)

    def _built(self, log: TurnLog, token_ids: tuple[int, ...], keep: int) -> Prompt:
        """A prompt of which the base's log has the first `keep` tokens."""
        is_whole = keep >= len(log.token_ids) - self._ends_itself(log.span.reply_ids)
        return Prompt(
            token_ids=token_ids,
            base_id=log.span.turn_id,
            keep_tokens=keep,
            table_of=log.span.turn_id,
            num_known_tokens=keep,
            known_fingerprint=log.span.fingerprint,
            diverged_at=None if is_whole else keep,
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
        keep, met = await asyncio.to_thread(self.renderer.meet, log.token_ids, ids)
        return self._built(log, log.token_ids[:keep] + ids[met:], keep)

    def _ends_itself(self, reply_ids: tuple[int, ...]) -> bool:
        return bool(reply_ids) and reply_ids[-1] in self._engine.info.eos_token_ids

    async def _whole(
        self, messages: tuple[InputMessage, ...], clock_at: datetime
    ) -> tuple[int, ...]:
        return await asyncio.to_thread(self.renderer.whole, messages, clock_at=clock_at)

    async def _history(self, session: Session, log: TurnLog) -> tuple[InputMessage, ...]:
        is_dropped = session.reasoning is ReasoningPolicy.DROP
        retell = self.renderer.answer if is_dropped else self.renderer.retell
        messages = list(_instructions(session))
        for turn in await self._store.base_turns(log.span.turn_id):
            messages += [InputMessage(role=i.role, text=i.text) for i in turn.input_items]
            messages.append(InputMessage(role="assistant", text=retell(turn.reply_text)))
        return tuple(messages)

    async def _is_instructed(self, session: Session, log: TurnLog, clock_at: datetime) -> bool:
        """Whether a log begins with the instructions that the session has now."""
        if not session.is_reinstructed:
            return True
        first = (await self._store.base_turns(log.span.turn_id))[0]
        messages = [InputMessage(role=i.role, text=i.text) for i in first.input_items]
        beginning = await self._whole((*_instructions(session), *messages), clock_at)
        return log.token_ids[: len(beginning)] == beginning

    async def _has_system(self, session: Session, log: TurnLog) -> bool:
        return self.renderer.begins_with_system(await self._history(session, log))


def _instructions(session: Session) -> tuple[InputMessage, ...]:
    if session.instructions is None:
        return ()
    return (InputMessage(role="system", text=session.instructions),)
