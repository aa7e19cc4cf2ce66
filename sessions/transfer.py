"""A session brought in from elsewhere: another server, or this one before a deletion.

Its words and their tree come in, under new ids; its tokens don't. What is built on it is rendered
and encoded anew, as it is where another model wrote the log.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from model.config import SamplingParams
from model.engine import Engine
from sessions.errors import InvalidInputError
from sessions.ids import new_item_id, new_session_id, new_turn_id
from sessions.store import Store
from sessions.token_log import TokenSpan
from sessions.turn_writes import Lease, NewTurn
from sessions.types import (
    InputMessage,
    Item,
    ItemKind,
    OwnerId,
    ReasoningPolicy,
    Session,
    SessionId,
    Turn,
    TurnError,
    TurnId,
    TurnStatus,
)
from sessions.validation import check_messages, check_metadata, check_session, check_text

MAX_TURNS = 10_000
FINGERPRINT = "imported"  # no model's

# Stands for a reply's tokens where there was a reply: only that there were some is known.
_SOME_IDS = (0,)


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportedTurn:
    """An ended turn; `key` and `parent` name turns within one import."""

    key: str
    parent: str | None
    status: TurnStatus
    params: SamplingParams
    input: tuple[InputMessage, ...]
    reply_text: str
    incomplete_reason: str | None
    error: TurnError | None
    metadata: dict[str, str] = field(default_factory=dict)
    created_at: datetime
    finished_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportedSession:
    """A whole session; each turn comes behind its parent, and `head` is the key of one."""

    title: str | None
    instructions: str | None
    reasoning: ReasoningPolicy
    metadata: dict[str, str]
    sampling: dict[str, Any]
    is_pinned: bool
    is_auto_titled: bool
    head: str | None
    turns: tuple[ImportedTurn, ...]


class Importer:
    """Brings sessions in; holds no state of its own."""

    def __init__(
        self,
        *,
        store: Store,
        engine: Engine,
        clock: Callable[[], datetime],
        max_input_chars: int,
    ) -> None:
        self._store = store
        self._engine = engine
        self._clock = clock
        self._max_input_chars = max_input_chars

    async def bring_in(
        self, owner: OwnerId, given: ImportedSession, *, session_id: SessionId | None = None
    ) -> Session:
        """The new session; `session_id` is one of a `KeyedOpenings`. Raises InvalidInputError for
        what is no session."""
        self._check(given)
        now, info = self._clock(), self._engine.info
        session_id = session_id or new_session_id(now)
        new = self._turns(session_id, given.turns, now)
        session = Session(
            id=session_id,
            owner=owner,
            title=given.title,
            instructions=given.instructions,
            model=info.model_id,
            fingerprint=FINGERPRINT if new else info.fingerprint,
            reasoning=given.reasoning,
            metadata=given.metadata,
            sampling=given.sampling,
            is_pinned=given.is_pinned,
            is_auto_titled=given.is_auto_titled,
            head_turn_id=new[given.head].turn.id if given.head is not None else None,
            created_at=now,
            updated_at=now,
        )
        await self._store.add_imported(session, tuple(new.values()))
        return session

    def _check(self, given: ImportedSession) -> None:
        check_session(
            given.title, given.instructions, given.metadata, max_chars=self._max_input_chars
        )
        if len(given.turns) > MAX_TURNS:
            raise InvalidInputError(f"at most {MAX_TURNS} turns", param="turns")
        known: set[str] = set()
        for number, turn in enumerate(given.turns):
            place = f"turns[{number}]"
            if turn.key in known:
                raise InvalidInputError("this id was there before", param=f"{place}.id")
            if turn.parent is not None and turn.parent not in known:
                raise InvalidInputError("a parent comes before", param=f"{place}.parent")
            known.add(turn.key)
            if turn.input:  # or all of it was deleted where it comes from
                check_messages(turn.input, max_chars=self._max_input_chars)
            check_text(turn.reply_text, param=f"{place}.reply")
            check_metadata(turn.metadata)
        if given.head is not None and given.head not in known:
            raise InvalidInputError("the head is none of the turns", param="head")

    def _turns(
        self, session_id: SessionId, given: Sequence[ImportedTurn], now: datetime
    ) -> dict[str, NewTurn]:
        made: dict[str, NewTurn] = {}
        for one in given:
            parent = made[one.parent] if one.parent is not None else None
            turn = self._turn(session_id, one, parent.turn.id if parent is not None else None)
            span = TokenSpan(
                turn_id=turn.id,
                base_id=_base_after(parent),
                keep_tokens=0,
                num_prompt_tokens=0,
                ids=_SOME_IDS if turn.reply_text else (),
                fingerprint=FINGERPRINT,
            )
            made[one.key] = NewTurn(
                turn=turn,
                span=span,
                lease=Lease(turn_id=turn.id, runner_id="import", until=now),
                digest="",
                input_turn_id=turn.id,
                follows_head=False,
            )
        return made

    def _turn(self, session_id: SessionId, given: ImportedTurn, parent: TurnId | None) -> Turn:
        turn_id = new_turn_id(given.created_at)
        items = tuple(
            Item(
                id=new_item_id(given.created_at),
                session_id=session_id,
                turn_id=turn_id,
                kind=ItemKind.MESSAGE,
                role=message.role,
                text=message.text,
                status="completed",
                created_at=given.created_at,
            )
            for message in given.input
        )
        return Turn(
            id=turn_id,
            session_id=session_id,
            parent_id=parent,
            client_turn_id=None,
            status=given.status,
            params=given.params,
            model=self._engine.info.model_id,
            input_items=items,
            reply_item_id=new_item_id(given.finished_at),
            reply_text=given.reply_text,
            delta_lengths=(len(given.reply_text),) if given.reply_text else (),
            incomplete_reason=given.incomplete_reason,
            error=given.error,
            metadata=given.metadata,
            created_at=given.created_at,
            finished_at=given.finished_at,
        )


def _base_after(parent: NewTurn | None) -> TurnId | None:
    """What a turn's history is: its parent, unless that ended before it said anything."""
    if parent is None:
        return None
    is_whole = parent.turn.status in (TurnStatus.COMPLETED, TurnStatus.INCOMPLETE)
    return parent.turn.id if is_whole or parent.turn.reply_text else parent.span.base_id
