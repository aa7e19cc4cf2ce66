"""From a request to a stored turn: checked, rendered, and durable before the engine sees it.

What makes a turn impossible (a busy branch, a prompt too long, messages the template refuses, a
form that can't be compiled) is raised here, and leaves nothing behind.
"""

from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial

from model.config import SamplingParams
from model.engine import Engine
from model.errors import ContextLengthError, InvalidGenerationError
from model.messages import EngineInfo, GenerationRequest
from sessions import history
from sessions.comparing import settled
from sessions.errors import (
    ConflictError,
    RevisionConflictError,
    SessionBusyError,
    TurnNotEndedError,
    TurnNotFoundError,
)
from sessions.ids import new_item_id, new_turn_id
from sessions.item_messages import drafts_of, new_item
from sessions.preparation import Preparations
from sessions.prompt import Prompt, PromptComposer
from sessions.repetition import (
    Repetitions,
    named_messages,
    named_rest,
    named_sibling,
    named_turn,
    names_parent,
)
from sessions.reply import PartialReply, partial_reply
from sessions.reply_terms import held, reading
from sessions.shown_reply import Reading
from sessions.store import Store
from sessions.terms import Terms
from sessions.token_log import TokenSpan
from sessions.turn_writes import Lease, NewTurn
from sessions.types import (
    InputMessage,
    Item,
    OwnerId,
    Session,
    SessionId,
    Turn,
    TurnId,
    TurnRequest,
    TurnStatus,
)
from sessions.validation import (
    check_client_turn_id,
    check_messages,
    check_params,
    check_request,
)

MAX_TRIES = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class AdmissionRules:
    """Who runs the turns that are admitted here, for how long at first, and how much they take."""

    runner_id: str
    lease_s: float
    max_input_chars: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Admitted:
    """A turn that is durable and has yet to run."""

    session: Session
    turn: Turn
    span: TokenSpan
    prompt: Prompt
    lease: Lease
    generation: GenerationRequest
    partial: PartialReply | None = None  # what its reply begins with
    reading: Reading | None = None  # how its reply is taken apart


@dataclass(frozen=True, slots=True, kw_only=True)
class _Beginning:
    """What a turn's reply is drawn from."""

    prompt: Prompt
    params: SamplingParams
    partial: PartialReply | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Asked:
    """What the ways to ask for a turn have in common."""

    session: Session
    params: SamplingParams
    client_turn_id: str | None
    metadata: dict[str, str]
    terms: Terms
    digest: str
    follows_head: bool


class Admission:
    """Admits turns; holds no state of its own."""

    def __init__(
        self,
        *,
        store: Store,
        engine: Engine,
        composer: PromptComposer,
        preparations: Preparations,
        clock: Callable[[], datetime],
        rules: AdmissionRules,
    ) -> None:
        self._store = store
        self._engine = engine
        self._composer = composer
        self._preparations = preparations
        self._clock = clock
        self._rules = rules
        self._repetitions = Repetitions(store)

    async def submit(
        self, owner: OwnerId, session_id: SessionId, request: TurnRequest
    ) -> Admitted | Turn:
        """A new turn, or the one that the same `client_turn_id` made before."""
        check_request(request, max_chars=self._rules.max_input_chars)
        named = named_turn(request)
        return await _retried(partial(self._submit, owner, session_id, request, named))

    async def put(
        self,
        owner: OwnerId,
        session_id: SessionId,
        messages: tuple[InputMessage, ...],
        client_turn_id: str | None,
    ) -> Turn:
        """A turn that has ended as it begins: messages behind the head, and no reply."""
        check_messages(messages, max_chars=self._rules.max_input_chars)
        check_client_turn_id(client_turn_id)
        named = named_messages(messages)

        async def attempt() -> Turn:
            session = await self._store.session(owner, session_id)
            known = await self._repetitions.known(session, client_turn_id, named)
            if known is not None:
                return known
            parent = await self._parent(session, session.head_turn_id)
            if parent is not None and parent.status.is_active:
                raise _still_active(parent, is_given=False)
            asked = _Asked(
                session=session,
                params=SamplingParams(max_output_tokens=0),
                client_turn_id=client_turn_id,
                metadata={},
                terms=Terms(has_reply=False),
                digest=named,
                follows_head=True,
            )
            prompt = await self._composer.compose(session, parent, messages)
            turn = self._new_turn(asked, parent, messages)
            turn = replace(turn, status=TurnStatus.COMPLETED, finished_at=turn.created_at)
            await self._store.add_turn(self._new(asked, turn, prompt, input_turn_id=turn.id))
            return turn

        turn = await _retried(attempt)
        assert isinstance(turn, Turn), "nothing is left to run"
        return turn

    async def regenerate(
        self,
        owner: OwnerId,
        turn_id: TurnId,
        *,
        params: SamplingParams,
        client_turn_id: str | None,
    ) -> Admitted | Turn:
        """A sibling: the same parent, the same input items, a reply of its own."""
        check_params(params)
        named = named_sibling(turn_id, params)

        async def begin(session: Session, sibling: Turn, parent: Turn | None) -> _Beginning:
            messages = history.given(sibling)
            prompt = await self._composer.compose_again(session, sibling, messages, parent)
            return _Beginning(prompt=prompt, params=params)

        return await self._beside(owner, turn_id, client_turn_id, named, begin)

    async def go_on(
        self,
        owner: OwnerId,
        turn_id: TurnId,
        *,
        max_more_tokens: int | None,
        client_turn_id: str | None,
    ) -> Admitted | Turn:
        """A sibling whose reply begins with the whole of a cut one's: token for token, or, where
        another model's tokens or none are known, with its text encoded anew.

        Raises ConflictError for a reply that came to its own end, or whose text this model's
        tokenizer can't write.
        """
        named = named_rest(turn_id, max_more_tokens)

        async def begin(session: Session, cut: Turn, parent: Turn | None) -> _Beginning:
            if cut.status is TurnStatus.COMPLETED:
                raise ConflictError(f"{turn_id} is complete; there is nothing to continue")
            prompt, reply_ids = await self._composer.recall_cut(session, cut, parent)
            limit = None if max_more_tokens is None else len(reply_ids) + max_more_tokens
            return _Beginning(
                prompt=prompt,
                params=replace(cut.params, max_output_tokens=limit),
                partial=partial_reply(cut, reply_ids) if reply_ids else None,
            )

        return await self._beside(owner, turn_id, client_turn_id, named, begin)

    async def _beside(
        self,
        owner: OwnerId,
        turn_id: TurnId,
        client_turn_id: str | None,
        named: str,
        begin: Callable[[Session, Turn, Turn | None], Awaitable[_Beginning]],
    ) -> Admitted | Turn:
        """A sibling of an ended turn, or the one that the same `client_turn_id` made before."""
        check_client_turn_id(client_turn_id)

        async def attempt() -> Admitted | Turn:
            sibling = await self._store.turn(owner, turn_id)
            session = await self._store.session(owner, sibling.session_id)
            known = await self._repetitions.known(session, client_turn_id, named)
            if known is not None:
                return known
            if sibling.status.is_active:
                raise _still_active(sibling, is_given=True)
            parent = await self._parent(session, sibling.parent_id)
            begun = await begin(session, sibling, parent)
            asked = _Asked(
                session=session,
                params=begun.params,
                client_turn_id=client_turn_id,
                metadata=sibling.metadata,
                terms=sibling.terms,
                digest=named,
                follows_head=False,
            )
            turn = self._new_turn(asked, parent, sibling.input_items)
            # Input items are shared along a row of siblings: they are the first one's.
            input_turn_id = next((item.turn_id for item in sibling.input_items), sibling.id)
            return await self._insert(asked, turn, begun, input_turn_id=input_turn_id)

        return await _retried(attempt)

    async def turn_of(self, session: Session, turn_id: TurnId) -> Turn:
        """A turn of the session, or one before its fork; raises when there is no such."""
        turn = await self._parent(session, turn_id)
        assert turn is not None
        return turn

    async def ended_turn(self, session: Session, turn_id: TurnId) -> Turn:
        """A turn that something may follow; raises when there is no such, or not yet."""
        turn = await self.turn_of(session, turn_id)
        if turn.status.is_active:
            raise _still_active(turn, is_given=True)
        return turn

    async def _submit(
        self, owner: OwnerId, session_id: SessionId, request: TurnRequest, named: str
    ) -> Admitted | Turn:
        session = await self._store.session(owner, session_id)
        known = await self._repetitions.known(session, request.client_turn_id, named)
        if known is not None:
            return known
        is_given = names_parent(request)
        parent = await self._parent(session, request.parent if is_given else session.head_turn_id)
        if parent is not None and parent.status.is_active:
            raise _still_active(parent, is_given=is_given)
        asked = _Asked(
            session=session,
            params=request.params,
            client_turn_id=request.client_turn_id,
            metadata=request.metadata,
            terms=request.terms,
            digest=named,
            follows_head=not is_given,
        )
        prompt = await self._composer.compose(session, parent, request.input, request.terms)
        fingerprint = self._engine.info.fingerprint
        terms = await settled(request, prompt, parent, self._composer, fingerprint)
        asked = replace(asked, terms=terms)
        turn = self._new_turn(asked, parent, request.input)
        begun = _Beginning(prompt=prompt, params=request.params)
        return await self._insert(asked, turn, begun, input_turn_id=turn.id)

    async def _parent(self, session: Session, turn_id: TurnId | None) -> Turn | None:
        """The turn, if it is the session's or lies before its fork; also one that was deleted by
        itself, as long as others are built on it."""
        if turn_id is None:
            return None
        turn = await self._store.turn(session.owner, turn_id, is_followed=True)
        if turn.session_id == session.id:
            return turn
        origin = session.forked_from
        if origin is None or not await self._store.is_ancestor(turn.id, of=origin):
            raise TurnNotFoundError(f"the session has no turn {turn_id!r}")
        return turn

    def _new_turn(
        self, asked: _Asked, parent: Turn | None, given: Sequence[InputMessage] | Sequence[Item]
    ) -> Turn:
        now = self._clock()
        turn_id = new_turn_id(now)
        items: Sequence[Item] = [item for item in given if isinstance(item, Item)]
        if not items:
            drafts = [d for m in given if isinstance(m, InputMessage) for d in drafts_of(m)]
            items = [new_item(draft, asked.session.id, turn_id, now) for draft in drafts]
        return Turn(
            id=turn_id,
            session_id=asked.session.id,
            parent_id=parent.id if parent is not None else None,
            client_turn_id=asked.client_turn_id,
            status=TurnStatus.PENDING,
            params=asked.params,
            model=self._engine.info.model_id,
            input_items=tuple(items),
            reply_item_id=new_item_id(now),
            reply_text="",
            delta_lengths=(),
            metadata=dict(asked.metadata),
            terms=asked.terms,
            created_at=now,
        )

    async def _insert(
        self, asked: _Asked, turn: Turn, begun: _Beginning, *, input_turn_id: TurnId
    ) -> Admitted:
        info, prompt, partial = self._engine.info, begun.prompt, begun.partial
        num_tokens = len(prompt.token_ids) + (len(partial.ids) if partial is not None else 0)
        _check_fits(info, num_tokens, turn.params)
        params = await held(turn, self._composer.renderer.calling, self._engine)
        new = self._new(asked, turn, prompt, input_turn_id=input_turn_id)
        await self._store.add_turn(new)
        prompt = await self._preparations.claim(asked.session, prompt)
        generation = prompt.generation(turn.id, asked.session, params)
        if partial is not None:
            generation = replace(generation, resumed_ids=partial.ids)
        return Admitted(
            session=asked.session,
            turn=turn,
            span=new.span,
            prompt=prompt,
            lease=new.lease,
            generation=generation,
            partial=partial,
            reading=reading(turn, self._composer.renderer, info.eos_token_ids),
        )

    def _new(self, asked: _Asked, turn: Turn, prompt: Prompt, *, input_turn_id: TurnId) -> NewTurn:
        until = turn.created_at + timedelta(seconds=self._rules.lease_s)
        return NewTurn(
            turn=turn,
            span=prompt.span(turn.id, self._engine.info.fingerprint),
            lease=Lease(turn_id=turn.id, runner_id=self._rules.runner_id, until=until),
            digest=asked.digest,
            input_turn_id=input_turn_id,
            follows_head=asked.follows_head,
        )


async def _retried(attempt: Callable[[], Awaitable[Admitted | Turn]]) -> Admitted | Turn:
    """Read everything again while others write first; each of them got further."""
    for _ in range(MAX_TRIES):
        with suppress(RevisionConflictError):
            return await attempt()
    raise RevisionConflictError("the session kept changing; try again")


def _check_fits(info: EngineInfo, num_tokens: int, params: SamplingParams) -> None:
    """What the engine would refuse for good: here it still leaves nothing behind."""
    if num_tokens + 1 > info.max_context_tokens:
        raise ContextLengthError(num_tokens, info.max_context_tokens)
    for token_id, _ in params.logit_bias:
        if not 0 <= token_id < info.vocab_size:
            raise InvalidGenerationError(f"no token has id {token_id}", param="logit_bias")


def _still_active(turn: Turn, *, is_given: bool) -> SessionBusyError | TurnNotEndedError:
    if is_given:
        return TurnNotEndedError(f"{turn.id} has not ended yet")
    return SessionBusyError(f"{turn.id} is still running")
