"""The ephemeral path: one generation from a whole list of messages, and no rows.

What is known of the chat is used again (`sessions.chat_index`), and its block table is parked until
it is forgotten here, or evicted.
"""

import asyncio
import hashlib
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass, replace
from datetime import datetime
from typing import cast

from model.config import SamplingParams
from model.engine import Engine
from model.errors import EngineUnavailableError
from model.messages import FinishReason, GenerationEvent, GenerationFinished, GenerationRequest
from sessions.chat_index import ChatIndex, KnownChat, chain, follow
from sessions.completion_events import (
    CompletionEvent,
    CompletionFinished,
    CompletionRequest,
    parse_generation,
)
from sessions.errors import DrainingError
from sessions.messages import InputMessage, ToolCall
from sessions.places import Places
from sessions.public_prefix import PublicPrefixes
from sessions.rendering import Renderer
from sessions.reply_parser import ParsedReply
from sessions.stateless_prompt import StatelessComposer, StatelessPrompt
from sessions.tools import check_form, check_tools
from sessions.truncation import Truncated, Truncation, make_room, truncate, without_turns
from sessions.types import OwnerId
from sessions.validation import MAX_INPUT_CHARS, check_chat


@dataclass(frozen=True, slots=True, kw_only=True)
class _Chat:
    """A completion's chat, as it is fed; `key` is that of all messages, the dropped ones too."""

    messages: tuple[InputMessage, ...]
    prompt: StatelessPrompt
    key: bytes
    known: KnownChat | None
    clock_at: datetime | None
    replies: tuple[tuple[int, str], ...] = ()
    num_dropped_messages: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Loaded:
    """What there is once the model is."""

    renderer: Renderer
    public: PublicPrefixes
    composer: StatelessComposer


async def _nobody_minds() -> None:
    pass


class Completions:
    """Renders and generates."""

    def __init__(
        self,
        *,
        engine: Engine,
        max_input_chars: int = MAX_INPUT_CHARS,
        public_instructions: frozenset[str] = frozenset(),
        places: Places | None = None,
        clock: Callable[[], datetime] | None = None,
        index: ChatIndex | None = None,
        on_begin: Callable[[], Awaitable[None]] = _nobody_minds,
    ) -> None:
        """`on_begin` is called before each generation."""
        self._on_begin = on_begin
        self._engine = engine
        self._public_instructions = public_instructions
        self._places = places or Places()
        self._max_input_chars = max_input_chars
        self._clock = clock
        self._index = index or ChatIndex()
        self._loaded: _Loaded | None = None
        self._is_cut = False
        self._request_ids: set[str] = set()  # of what is generated now
        self._idle = asyncio.Event()
        self._idle.set()

    def use_renderer(self, renderer: Renderer) -> None:
        """Render with this from now on; until then everything raises EngineUnavailableError."""
        self._loaded = _Loaded(
            renderer=renderer,
            public=PublicPrefixes(renderer, self._public_instructions),
            composer=StatelessComposer(renderer, self._engine.info.eos_token_ids),
        )

    async def stream(
        self, owner: OwnerId, asked: CompletionRequest, *, request_id: str
    ) -> AsyncGenerator[CompletionEvent, None]:
        """Reply to a chat; leaving the iterator early (aclose) cancels.

        Raises InvalidInputError for messages that can't be rendered, TooManyTurnsError, and what
        the engine raises.
        """
        calling = self._ready.renderer.calling
        check_chat(asked.messages, max_chars=self._max_input_chars)
        check_tools(asked.tools, asked.choice)
        check_form(asked.tools, asked.choice, asked.params.grammar)
        grammar = calling.grammar(asked.tools, asked.choice, asked.params.grammar)
        parser = calling.parser(asked.choice.of(asked.tools), is_bound=grammar is not None)
        self._enter(owner, request_id)
        try:
            chat = await self._compose(owner, asked)
            # Tools stand within the system message, so of theirs nothing is everybody's.
            num_public = 0 if asked.tools else await asyncio.to_thread(self._count_public, chat)
            request = self._request(owner, asked, chat, request_id)
            request = replace(request, num_public_tokens=num_public)
            generated = self._generated(
                replace(request, params=replace(asked.params, grammar=grammar))
            )
            events = parse_generation(
                generated,
                parser,
                calling.unseen,
                self._ready.renderer.tokens,
                chat.num_dropped_messages,
            )
            async with aclosing(events):
                async for event in events:
                    if isinstance(event, CompletionFinished):
                        await self._remember(owner, chat, request, event)
                    yield event
        finally:
            self._leave(owner, request_id)

    async def stream_raw(
        self,
        owner: OwnerId,
        prompt: str | Sequence[int],
        params: SamplingParams,
        *,
        request_id: str,
    ) -> AsyncGenerator[CompletionEvent, None]:
        """Go on with a text, or with ids, as they stand; else as `stream`."""
        renderer = self._ready.renderer
        self._enter(owner, request_id)
        try:
            ids = prompt
            if isinstance(prompt, str):
                ids = await asyncio.to_thread(renderer.raw, prompt)
            generated = self._generated(
                GenerationRequest(
                    request_id=request_id,
                    token_ids=tuple(cast("Sequence[int]", ids)),
                    params=params,
                    owner=owner,
                )
            )
            events = parse_generation(
                generated, renderer.calling.plain_parser(), _nothing, renderer.tokens
            )
            async with aclosing(events):
                async for event in events:
                    yield event
        finally:
            self._leave(owner, request_id)

    async def raw_text(self, token_ids: Sequence[int]) -> str:
        """What ids say, for those who want their prompt back."""
        return await asyncio.to_thread(self._ready.renderer.say, token_ids)

    async def drain(self, timeout_s: float) -> None:
        """Give what is generated some time to end, then end it."""
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._idle.wait()
        await self.cut()

    async def cut(self) -> None:
        """End what is generated now, with DrainingError."""
        self._is_cut = True
        for request_id in tuple(self._request_ids):
            await self._engine.cancel(request_id)

    @property
    def _ready(self) -> _Loaded:
        if self._loaded is None:
            raise EngineUnavailableError("the engine is starting; try again soon")
        return self._loaded

    def _enter(self, owner: OwnerId, request_id: str) -> None:
        self._places.take(owner)
        self._request_ids.add(request_id)
        self._idle.clear()

    def _leave(self, owner: OwnerId, request_id: str) -> None:
        self._places.leave(owner)
        self._request_ids.discard(request_id)
        if not self._request_ids:
            self._idle.set()

    async def _generated(self, request: GenerationRequest) -> AsyncIterator[GenerationEvent]:
        await self._on_begin()
        generated = self._engine.generate(request)
        async with aclosing(cast("AsyncGenerator[GenerationEvent, None]", generated)) as events:
            async for event in events:
                if self._is_cut and _was_cancelled(event):
                    # Half an answer would look like a whole one.
                    raise DrainingError("the server is stopping")
                yield event

    async def _compose(self, owner: OwnerId, asked: CompletionRequest) -> _Chat:
        whole = await self._composed(owner, asked)
        limit = self._engine.info.max_context_tokens
        if len(whole.prompt.token_ids) < limit:
            return whole
        left = await asyncio.to_thread(self._truncated, asked, whole.clock_at, limit)
        chat = await self._composed(owner, replace(asked, messages=left.messages))
        if len(chat.prompt.token_ids) >= limit and chat.known is not None:
            # What is known has kept more, reasoning say, than the words that were sent need.
            again = self._ready.composer.again
            prompt = await asyncio.to_thread(again, chat.known, chat.messages, asked.tools)
            chat = replace(chat, prompt=prompt, replies=())
        return replace(chat, key=whole.key, num_dropped_messages=left.num_dropped_messages)

    def _truncated(
        self, asked: CompletionRequest, clock_at: datetime | None, limit: int
    ) -> Truncated:
        renderer, messages = self._ready.renderer, asked.messages

        def count(some: Sequence[InputMessage]) -> int:
            return len(renderer.whole(some, tools=asked.tools, clock_at=clock_at))

        if asked.truncation is Truncation.AUTO and count(messages) >= limit:
            return make_room(messages, count, limit)
        return truncate(messages, count, limit, asked.truncation)

    async def _composed(self, owner: OwnerId, asked: CompletionRequest) -> _Chat:
        messages, tools, composer = asked.messages, asked.tools, self._ready.composer
        keys = chain(owner, self._engine.info.fingerprint, tools, messages)
        clock_at = None if self._clock is None else self._clock()
        found = self._index.find(owner, keys, messages)
        known = self._index.find_part(owner, keys) if found is None else found[1]
        if known is not None and known.num_dropped and asked.truncation is Truncation.DISABLED:
            found = known = None
        replies: tuple[tuple[int, str], ...] = ()
        if known is not None:
            messages = without_turns(messages, known.num_dropped)
        if found is not None and known is not None:
            replies = known.replies
            place = found[0] - known.num_dropped
            prompt = await asyncio.to_thread(composer.behind, known, place, messages, tools)
        elif known is not None:
            prompt = await asyncio.to_thread(composer.again, known, messages, tools)
        else:
            prompt = await asyncio.to_thread(composer.whole, messages, tools, clock_at)
        return _Chat(
            messages=messages,
            prompt=prompt,
            key=keys[-1],
            known=known,
            clock_at=clock_at if known is None else known.clock_at,
            replies=replies,
            num_dropped_messages=0 if known is None else known.num_dropped,
        )

    def _request(
        self, owner: OwnerId, asked: CompletionRequest, chat: _Chat, request_id: str
    ) -> GenerationRequest:
        known, prompt = chat.known, chat.prompt
        conversation_id = f"chat_{asked.group or request_id}"
        if asked.hint is not None:
            named = hashlib.blake2b(f"{owner}\0{asked.hint}".encode(), digest_size=12)
            conversation_id = f"chat_{named.hexdigest()}"
        elif known is not None:
            conversation_id = known.conversation_id
        return GenerationRequest(
            request_id=request_id,
            token_ids=tuple(prompt.token_ids),
            params=asked.params,
            owner=owner,
            conversation_id=conversation_id,
            parent_turn_id=None if known is None else known.request_id,
            num_known_tokens=prompt.num_known,
            parent_fingerprint=None if known is None else self._engine.info.fingerprint,
            diverged_at=prompt.diverged_at,
        )

    def _count_public(self, chat: _Chat) -> int:
        return self._ready.public.count(chat.messages, chat.clock_at)

    async def _remember(
        self, owner: OwnerId, chat: _Chat, request: GenerationRequest, event: CompletionFinished
    ) -> None:
        """Know the chat with its reply, which its client will send back."""
        if event.finished.reason is FinishReason.CANCELLED:
            return
        ids = chat.prompt.token_ids[:]
        ids.extend(event.finished.token_ids)
        assert request.conversation_id is not None
        known = KnownChat(
            token_ids=ids,
            num_prompt_tokens=len(chat.prompt.token_ids),
            request_id=request.request_id,
            conversation_id=request.conversation_id,
            clock_at=chat.clock_at,
            replies=(*chat.replies, (len(chat.messages), event.finished.text)),
            num_dropped=chat.num_dropped_messages,
        )
        self._index.put(owner, follow(chat.key, _said(event.reply)), known)
        for conversation_id in self._index.take_released():
            await self._engine.release(conversation_id)


def _said(reply: ParsedReply) -> InputMessage:
    calls = tuple(ToolCall(id="", name=c.name, arguments=c.arguments) for c in reply.calls)
    return InputMessage(role="assistant", text=reply.text, calls=calls)


def _nothing(_token_ids: Sequence[int]) -> str:
    return ""


def _was_cancelled(event: GenerationEvent) -> bool:
    return isinstance(event, GenerationFinished) and event.reason is FinishReason.CANCELLED
