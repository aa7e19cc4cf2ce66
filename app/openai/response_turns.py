"""From a response's body to a turn: what it follows, what it says, where it lies.

Every stored response is a turn of a session's tree. One that follows the head of a session goes on
with it; one that follows an earlier turn begins a fork; one that follows nothing begins a session.
A response that is not stored has no rows; it may follow stored ones.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from aiohttp import web

from app.errors import RequestError
from app.keys import CONFIG, ENGINE, MANAGER
from app.openai.input_items import Given, Reference, read_items
from app.openai.models import is_served, model_not_found
from app.openai.response_request import InputBody, ResponseBody
from app.openai.response_tools import read_choice, read_form, read_tools
from app.peer import closing
from app.protocol import session_params
from app.response_object import spoken
from app.sampling import default_params
from sessions.comparison import Comparison
from sessions.errors import (
    InvalidInputError,
    ItemNotFoundError,
    NotFoundError,
    SessionNotFoundError,
    TurnNotFoundError,
    UnavailableError,
)
from sessions.history import given, made
from sessions.item_messages import Draft, messages_of
from sessions.manager import SessionManager
from sessions.terms import PLAIN, Terms
from sessions.tools import ToolChoice, ToolMode, check_form
from sessions.types import (
    InputMessage,
    Item,
    OwnerId,
    SamplingParams,
    Session,
    SessionId,
    Turn,
    TurnEnded,
    TurnEvent,
    TurnId,
    TurnRequest,
)
from sessions.validation import digest

Json = dict[str, Any]

MAX_SUMMARY_TOKENS = 1024
SUMMARY_REQUEST = (
    "Sum up our conversation so far, so that it can be gone on with from your words alone: what "
    "was asked, what was found out and decided, what is still to be done. Write nothing else."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """What a response follows: the head of a session, a turn, or nothing."""

    session: Session | None = None
    parent: Turn | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Summed:
    """A summary, and the turn that made it."""

    turn: Turn
    text: str


class ResponseTurns:
    """One owner's way from bodies to turns.

    `is_kept_here` says which responses without rows can be followed by whoever asks.
    """

    def __init__(
        self,
        app: web.Application,
        owner: OwnerId,
        *,
        is_kept_here: Callable[[TurnId], bool] = lambda _turn_id: False,
    ) -> None:
        self._app = app
        self._manager = app[MANAGER]
        self._owner = owner
        self._is_kept_here = is_kept_here

    async def place_of(self, body: InputBody) -> Place:
        """Find what a body follows. Raises `previous_response_not_found` for an unknown parent."""
        if body.model is not None and not is_served(
            body.model, self._app[CONFIG], self._app[ENGINE].info
        ):
            raise model_not_found(body.model, param="model")
        if body.conversation_id is not None:
            session = await self._manager.get(self._owner, SessionId(body.conversation_id))
            head = session.head_turn_id
            parent = None if head is None else await self._manager.turn(self._owner, head)
            return Place(session=session, parent=parent)
        if body.previous_response_id is None:
            return Place()
        turn_id = TurnId(body.previous_response_id)
        kept = self._manager.ephemeral.kept(self._owner, turn_id)
        if kept is not None and self._is_kept_here(turn_id):
            return Place(parent=kept)
        try:
            parent = await self._manager.turn(self._owner, turn_id)
            session = await self._manager.get(self._owner, parent.session_id)
        except (TurnNotFoundError, SessionNotFoundError):
            raise RequestError(
                "previous_response_not_found",
                "there is no response of that id to follow",
                param="previous_response_id",
            ) from None
        return Place(session=session, parent=parent)

    async def messages_of(self, value: object, place: str = "input") -> tuple[InputMessage, ...]:
        """What an input says, with the items that it refers to."""
        if value is None:
            raise InvalidInputError(f"{place} is missing", param=place)
        return messages_of([await self._resolved(given) for given in read_items(value, place)])

    async def request_of(self, body: ResponseBody, place: Place) -> TurnRequest:
        """The turn that a body asks for."""
        request = TurnRequest(
            input=await self.messages_of(body.input),
            params=self._params(body, place.session),
            metadata=body.metadata or {},
            terms=replace(
                self.terms_of(body, place, shown=body.shown(), has_reply=body.has_reply),
                is_background=body.is_background,
            ),
        )
        options = body.prompt_cache_options
        if options is not None and options.comparison_response_id is not None:
            kept = place.parent if not body.is_stored else None
            request = await self._comparing(request, options.comparison_response_id, kept)
        if not body.context_management:
            return request
        most = body.compact_threshold or self._app[ENGINE].info.max_context_tokens * 3 // 4
        if await self._manager.ephemeral.count(self._owner, request, place.parent) <= most:
            return request
        return await self._compacted(request, place)

    async def _comparing(
        self, request: TurnRequest, response_id: str, kept: Turn | None
    ) -> TurnRequest:
        """The request, to be compared with a stored response, or with the one `kept` for it."""
        other = kept if kept is not None and kept.id == response_id else None
        if other is None:
            with suppress(TurnNotFoundError):
                other = await self._manager.turn(self._owner, TurnId(response_id))
        terms = replace(request.terms, comparison=Comparison(turn_id=response_id))
        return replace(request, compared=other, terms=terms)

    async def _compacted(self, request: TurnRequest, place: Place) -> TurnRequest:
        """The request behind a summary: of what it follows, or else of its own earlier messages."""
        terms = request.terms
        if place.parent is not None:
            # Told as the parent was, so that nothing of the conversation is computed again.
            before = place.parent.terms
            alike = replace(terms, instructions=before.instructions, tools=before.tools)
            summary = (await self.summed_up(alike, place, ())).text
            return replace(request, terms=replace(terms, summary=summary))
        front, earlier, rest = _parted(request.input)
        if not earlier:
            return request
        said = [text for text in (terms.instructions, *(m.text for m in front)) if text is not None]
        terms = replace(terms, instructions="\n\n".join(said) if said else None)
        summary = (await self.summed_up(terms, place, earlier)).text
        return replace(request, input=rest, terms=replace(terms, summary=summary))

    async def summed_up(
        self, terms: Terms, place: Place, messages: tuple[InputMessage, ...]
    ) -> Summed:
        """What was said up to a place, and what the messages say behind it, in short."""
        asked = TurnRequest(
            input=(*messages, InputMessage(role="user", text=SUMMARY_REQUEST)),
            params=replace(
                default_params(self._app), temperature=0.0, max_output_tokens=MAX_SUMMARY_TOKENS
            ),
            terms=replace(
                terms, choice=ToolChoice(mode=ToolMode.NONE), form=None, has_reply=True, shown={}
            ),
        )
        events = self._manager.ephemeral.run(self._owner, asked, place.parent)
        async with closing(events):
            async for _, event in events:
                if isinstance(event, TurnEnded):
                    if event.turn.error is not None or event.turn.usage is None:
                        raise UnavailableError("the conversation could not be summed up")
                    return Summed(turn=event.turn, text=spoken(event.turn).strip())
        raise AssertionError("a summary ended without its last event")

    def terms_of(
        self, body: InputBody, place: Place, *, shown: Json, has_reply: bool = True
    ) -> Terms:
        """Instructions are the response's own; those of a prepared state go for what follows it."""
        instructions, tools = body.instructions, read_tools(body.tools)
        choice = read_choice(body.tool_choice, tools, is_parallel=body.parallel_tool_calls)
        prepared = place.parent.terms if place.parent is not None else PLAIN
        if not prepared.has_reply:
            instructions = prepared.instructions if instructions is None else instructions
            if body.tools is None and prepared.tools:
                tools = prepared.tools
                shown = {"tools": prepared.shown.get("tools", []), **shown}
        form = read_form(body.text)
        check_form(tools, choice, form)
        return Terms(
            instructions=instructions,
            has_reply=has_reply,
            is_parsed=True,
            tools=tools,
            choice=choice,
            form=form,
            truncates=body.truncation == "auto",
            shown=shown,
        )

    async def submit(self, body: ResponseBody, place: Place, key: str | None = None) -> Turn:
        """Begin a stored response. What was opened for it alone goes if it can't begin; it is
        cancelled if whoever waits for that is, unless it is to go on without them.

        Within a conversation, the only place where one may be, the same `key` gives the same
        response again.
        """
        if body.conversation is not None:
            assert place.session is not None, "a conversation was found"
            return await self._submit_into(place.session, body, place, key)
        request = replace(await self.request_of(body, place), goes_on=body.is_background)
        session, is_unused = await self._session_for(place)
        try:
            parent = place.parent.id if place.parent is not None and place.session else None
            request = replace(self._told_anew(request, place), parent=parent)
            turn = await self._manager.submit(self._owner, session.id, request)
            is_unused = False
            return turn
        except asyncio.CancelledError:
            is_unused = False  # the turn begins all the same, to go on or to end
            raise
        finally:
            if is_unused:
                await self._manager.delete(self._owner, session.id)

    async def _submit_into(
        self, session: Session, body: ResponseBody, place: Place, key: str | None
    ) -> Turn:
        """A conversation's next response, or the one that the key made before."""
        if key is None:
            request = replace(await self.request_of(body, place), goes_on=body.is_background)
            return await self._manager.submit(self._owner, session.id, request)
        # By the body: what is made of it differs with what the conversation has come to since.
        said = body.model_dump(mode="json", exclude_unset=True, exclude={"stream"})
        named = digest(said)
        known = await self._manager.repeated(session, key, named)
        if known is not None:
            return known
        request = replace(await self.request_of(body, place), client_turn_id=key, digest=named)
        return await self._manager.submit(self._owner, session.id, request)

    async def stream(
        self, body: ResponseBody, place: Place, *, keeps: bool = False
    ) -> AsyncIterator[tuple[int, TurnEvent]]:
        """The events of a response that is not stored; it ends with whoever reads it."""
        request = _instructed(await self.request_of(body, place), place)
        return self._manager.ephemeral.run(self._owner, request, place.parent, keeps=keeps)

    async def num_tokens(self, body: InputBody, place: Place) -> int:
        """How many tokens the prompt of such a response would have."""
        asked = TurnRequest(
            input=await self.messages_of(body.input),
            params=default_params(self._app),
            terms=self.terms_of(body, place, shown={}),
        )
        asked = _instructed(asked, place)
        return await self._manager.ephemeral.count(self._owner, asked, place.parent)

    async def _session_for(self, place: Place) -> tuple[Session, bool]:
        """The session that a response lies in, and whether it was opened for it."""
        session, parent = place.session, place.parent
        if session is None or parent is None:
            return await self._opened(), True
        if session.head_turn_id == parent.id:
            return session, False
        fork = await self._manager.fork(self._owner, session.id, at=parent.id, is_listed=False)
        return fork, True

    async def _opened(self) -> Session:
        """A session that people find by its words only: agents make one with every response."""
        return await self._manager.create(self._owner, is_auto_titled=False, is_listed=False)

    def _told_anew(self, request: TurnRequest, place: Place) -> TurnRequest:
        """A stored response behind one without rows has all that was said in its own input, unless
        a summary stands for it."""
        is_told = place.session is not None or request.terms.summary is not None
        if is_told or place.parent is None:
            return request
        said: list[InputMessage] = []
        for turn in self._manager.ephemeral.told(place.parent.id):
            said += [*given(turn), *messages_of(made(turn))]
        return replace(request, input=(*said, *request.input))

    def _params(self, body: ResponseBody, session: Session | None) -> SamplingParams:
        defaults = default_params(self._app)
        if session is not None:
            defaults = session_params(session, defaults)
        return body.to_params(defaults)

    async def _resolved(self, given: Given) -> Draft | Item:
        if not isinstance(given, Reference):
            return given
        try:
            return await self._manager.items.find(self._owner, given.id)
        except ItemNotFoundError as exc:
            raise InvalidInputError(str(exc), param=given.place) from None


def _parted(messages: tuple[InputMessage, ...]) -> tuple[tuple[InputMessage, ...], ...]:
    """An input's instructions in front, what it tells before its last question, and the rest."""
    is_front = [message.role in ("system", "developer") for message in messages]
    num_front = is_front.index(False) if False in is_front else len(messages)
    asked = [n for n, message in enumerate(messages) if message.role == "user"]
    last = asked[-1] if asked else num_front
    return messages[:num_front], messages[num_front:last], messages[last:]


def _instructed(request: TurnRequest, place: Place) -> TurnRequest:
    """The request, told what the session it has no rows in would tell it."""
    session, terms = place.session, request.terms
    if session is None or terms.instructions is not None or session.instructions is None:
        return request
    return replace(request, terms=replace(terms, instructions=session.instructions))


async def attached(
    manager: SessionManager, owner: OwnerId, turn_id: TurnId
) -> AsyncGenerator[tuple[int, TurnEvent], None]:
    """The events of a turn that is cancelled when they are not read to their end."""
    is_over = False
    try:
        async with closing(manager.read(owner, turn_id)) as events:
            async for number, event in events:
                is_over = isinstance(event, TurnEnded)
                yield number, event
    finally:
        if not is_over:
            with suppress(NotFoundError):  # deleted while it was read
                await manager.cancel(owner, turn_id)
