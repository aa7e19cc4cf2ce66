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
from dataclasses import replace
from datetime import datetime
from functools import partial

from model.config import SamplingParams
from model.engine import Engine
from model.errors import EngineUnavailableError
from model.messages import GenerationRequest
from sessions import history
from sessions.call_results import check_results
from sessions.errors import ConflictError
from sessions.history import Frame
from sessions.prompt_value import Prompt as Prompt
from sessions.public_prefix import PublicPrefixes
from sessions.rendering import Renderer
from sessions.terms import PLAIN, Terms
from sessions.token_log import RecentLogs, TokenSpan, TurnLog, common_prefix, unroll
from sessions.truncation import behind_turns, make_room
from sessions.turn_logs import TurnLogs
from sessions.types import (
    InputMessage,
    OwnerId,
    ReasoningPolicy,
    Session,
    Turn,
    TurnId,
    TurnStatus,
)

# About 40 MB of Python integers at the most.
MAX_RECENT_TOKENS = 1_000_000


class PromptComposer:
    """Makes prompts; keeps the logs of the turns used last."""

    def __init__(
        self, store: TurnLogs, engine: Engine, public_instructions: frozenset[str] = frozenset()
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
            raise EngineUnavailableError("the engine is starting; try again soon")
        return self._renderer

    def remember(self, log: TurnLog) -> None:
        """Keep the log of a turn that has just ended; the next one will be built on it."""
        self._recent.put(log)

    async def compose(
        self,
        session: Session,
        parent: Turn | None,
        messages: Sequence[InputMessage],
        terms: Terms = PLAIN,
    ) -> Prompt:
        """The prompt of a turn that follows `parent` (ended), or that is the session's first.

        Raises InvalidInputError when the model's template refuses the messages, or one is the
        result of no call.
        """
        await check_results(messages, parent, self._store)
        clock_at = await self._store.clock_at(session.id)
        base = await self._base_after(parent) if parent is not None else None
        frame = history.under(terms, session, base, clock_at)
        if base is None or terms.summary is not None:
            told = (*history.lead(frame.session, terms), *messages)
            prompt = Prompt(token_ids=await self._whole(told, frame))
        else:
            prompt = await self._compose(frame, base, messages)
        if terms.truncates and len(prompt.token_ids) >= self._engine.info.max_context_tokens:
            prompt = await self._cut_to_fit(frame, base, messages)
        return await self._placed(prompt, frame, parent)

    async def _compose(self, frame: Frame, base: Turn, messages: Sequence[InputMessage]) -> Prompt:
        log = await self.log(base.id)
        edited_at = frame.session.edited_at
        is_edited = edited_at is not None and base.created_at <= edited_at
        # Who doesn't want turns to be dropped isn't told what others left of them.
        num_dropped = base.terms.num_dropped_turns if frame.terms.truncates else 0
        is_continued = (
            base.terms.has_reply
            and not is_edited
            and num_dropped == base.terms.num_dropped_turns
            and await self._is_instructed(frame, log)
        )
        if is_continued and log.span.fingerprint == self._engine.info.fingerprint:
            appended = await self._append(frame, log, messages)
            if appended is not None:
                return replace(appended, num_dropped_turns=num_dropped)
        prompt = await self._render_again(frame, log, messages, num_dropped)
        prompt = replace(prompt, num_dropped_turns=num_dropped)
        # Where nothing was replied the log ends with the opening of a reply, which nobody misses.
        return prompt if base.terms.has_reply else replace(prompt, diverged_at=None)

    async def _cut_to_fit(
        self, frame: Frame, base: Turn | None, messages: Sequence[InputMessage]
    ) -> Prompt:
        """A prompt without the oldest turns; raises ContextLengthError when that is not enough."""
        told = history.lead(frame.session, frame.terms)
        log = None
        if base is not None and frame.terms.summary is None:
            log = await self.log(base.id)
            told = await self._history(frame, log)
        whole = partial(self.renderer.whole, clock_at=frame.clock_at, tools=frame.terms.tools)
        most = self._engine.info.max_context_tokens
        left = await asyncio.to_thread(make_room, (*told, *messages), lambda m: len(whole(m)), most)
        ids = await self._whole(left.messages, frame)
        prompt = Prompt(token_ids=ids)
        if log is not None and log.span.fingerprint == self._engine.info.fingerprint:
            prompt = self._built(log, ids, common_prefix(log.token_ids, ids))
        return replace(prompt, num_dropped_turns=left.num_dropped_turns)

    async def compose_ahead(self, session: Session, turn: Turn) -> Prompt | None:
        """What every prompt that follows `turn` (ended) with words of the user's begins with.

        None when that is the turn's log and no more, which is there to be continued.
        """
        terms = turn.terms
        ahead = Terms(instructions=terms.instructions, tools=terms.tools, truncates=terms.truncates)
        one, other = [
            await self.compose(session, turn, (InputMessage(role="user", text=text),), ahead)
            for text in ("x", "y")
        ]
        if one.diverged_at is None:
            return None
        shared = one.token_ids[: common_prefix(one.token_ids, other.token_ids)]
        return replace(one, token_ids=shared) if len(shared) > one.keep_tokens else None

    async def compose_log(self, session: Session, head: Turn) -> Prompt | None:
        """What the next turn behind `head` (ended) is built on, as a prompt of its own; None where
        there is no log to go on from, or none that this model wrote."""
        base = await self._base_after(head)
        if base is None or not base.terms.has_reply:
            return None
        log = await self.log(base.id)
        clock_at = await self._store.clock_at(session.id)
        frame = history.under(base.terms, session, base, clock_at)
        is_ours = log.span.fingerprint == self._engine.info.fingerprint
        if not is_ours or not await self._is_instructed(frame, log):
            return None
        if session.reasoning is ReasoningPolicy.DROP:
            ahead = await self.compose_ahead(session, head)
            if ahead is not None:
                return ahead
        prompt = self._built(log, log.token_ids, len(log.token_ids))
        return await self._placed(prompt, frame, head)

    async def compose_lead(
        self, owner: OwnerId, instructions: str | None, request_id: str, now: datetime
    ) -> GenerationRequest | None:
        """A generation of no tokens from what all new conversations with these instructions begin
        with; None where that is nothing."""
        lead = () if instructions is None else (InputMessage(role="system", text=instructions),)
        one, other = [
            await asyncio.to_thread(
                self.renderer.whole,
                (*lead, InputMessage(role="user", text=text)),
                clock_at=now,
            )
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
        log, terms = await self.log(sibling.id), sibling.terms
        clock_at = await self._store.clock_at(session.id)
        is_same = log.span.fingerprint == self._engine.info.fingerprint
        frame = history.under(terms, session, sibling, clock_at)
        if not is_same or not await self._is_instructed(frame, log):
            return await self.compose(session, parent, messages, terms)
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
        return await self._placed(
            prompt, history.under(sibling.terms, session, sibling, clock_at), near
        )

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
        prompt = await self.compose(session, parent, history.given(cut), cut.terms)
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

    async def _placed(self, prompt: Prompt, frame: Frame, near: Turn | None) -> Prompt:
        """Say where else its history may lie, and how much of it is everybody's."""
        assert self._public is not None, "composed without a renderer"
        is_elsewhere = near is not None and near.session_id != frame.session.id
        lead, clock_at = history.instructions(frame.session), frame.clock_at
        count = self._public.count
        has_tools = bool(frame.terms.tools)  # which are told in front, and are the owner's own
        return replace(
            prompt,
            origin_id=near.session_id if near is not None and is_elsewhere else None,
            num_public_tokens=0 if has_tools else await asyncio.to_thread(count, lead, clock_at),
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

    async def _base_after(self, parent: Turn) -> Turn | None:
        if parent.status in (TurnStatus.COMPLETED, TurnStatus.INCOMPLETE):
            return parent
        span = (await self.log(parent.id)).span
        if span.reply_ids:
            return parent
        return None if span.base_id is None else (await self._store.base_turns(span.base_id))[-1]

    async def _append(
        self, frame: Frame, log: TurnLog, messages: Sequence[InputMessage]
    ) -> Prompt | None:
        session = frame.session
        renderer = self.renderer
        has_system = renderer.minds_system and await self._has_system(frame, log)
        added = await asyncio.to_thread(
            renderer.follow,
            tuple(messages),
            has_system=has_system,
            clock_at=frame.clock_at,
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
        self, frame: Frame, log: TurnLog, messages: Sequence[InputMessage], num_dropped: int
    ) -> Prompt:
        told = behind_turns(await self._history(frame, log), num_dropped)
        ids = await self._whole((*told, *messages), frame)
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

    async def _whole(self, messages: tuple[InputMessage, ...], frame: Frame) -> tuple[int, ...]:
        return await asyncio.to_thread(
            self.renderer.whole, messages, clock_at=frame.clock_at, tools=frame.terms.tools
        )

    async def _history(self, frame: Frame, log: TurnLog) -> tuple[InputMessage, ...]:
        session = frame.session
        is_dropped = session.reasoning is ReasoningPolicy.DROP
        retell = self.renderer.answer if is_dropped else self.renderer.retell
        turns = await self._store.base_turns(log.span.turn_id)
        return history.told(session, turns, retell)

    async def _is_instructed(self, frame: Frame, log: TurnLog) -> bool:
        """Whether a log begins with the instructions and tools that there are now."""
        if not frame.session.is_reinstructed:
            return True
        first = (await self._store.base_turns(log.span.turn_id))[0]
        said = (*history.instructions(frame.session), *history.opening(first))
        beginning = await self._whole(said, frame)
        return log.token_ids[: len(beginning)] == beginning

    async def _has_system(self, frame: Frame, log: TurnLog) -> bool:
        told = await self._history(frame, log)
        return self.renderer.begins_with_system(told, frame.terms.tools)
