"""Sessions, turns and what happens in them, as frozen values. No I/O.

A session is a tree of turns. A turn (wire: a response, `resp_…`) has the items that led to it and
the items it made, and hangs below its parent turn. `head_turn_id` picks the branch that a plain
new turn continues.
"""

from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from typing import Any, NewType, TypedDict

from model.config import (
    SamplingParams as SamplingParams,  # part of the vocabulary: app reads it here
)
from model.messages import ClaimReport
from sessions.item_kind import ItemKind as ItemKind
from sessions.messages import InputMessage as InputMessage
from sessions.output import OutputEvent as OutputEvent
from sessions.output import OutputItem as OutputItem
from sessions.terms import PLAIN, Terms

OwnerId = NewType("OwnerId", str)
SessionId = NewType("SessionId", str)  # conv_…
TurnId = NewType("TurnId", str)  # resp_…
ItemId = NewType("ItemId", str)  # msg_…, fc_…, rs_…

ANONYMOUS = OwnerId("anonymous")
"""The owner of everything while no API keys exist."""


class TurnStatus(StrEnum):
    """`pending → running → completed | incomplete | cancelled | failed`.

    `interrupted`: its runner died, or its server stopped before it was done.
    """

    PENDING = "pending"
    RUNNING = "running"
    COMPLETED = "completed"
    INCOMPLETE = "incomplete"
    CANCELLED = "cancelled"
    FAILED = "failed"
    INTERRUPTED = "interrupted"

    @property
    def is_active(self) -> bool:
        """Whether the turn may still change by itself."""
        return self in (TurnStatus.PENDING, TurnStatus.RUNNING)

    @property
    def is_answer(self) -> bool:
        """Whether it ended with a reply, be it one that was cut."""
        return not self.is_active and self is not TurnStatus.FAILED


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """A stored node: one item of the conversation. `text` is a message's or reasoning's words, a
    call's arguments or its output; `payload` names the call."""

    id: ItemId
    session_id: SessionId
    turn_id: TurnId
    kind: ItemKind
    role: str
    text: str
    status: str  # completed | incomplete | in_progress
    payload: dict[str, Any] | None = None
    created_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Tokens of one turn. `cached` and `cache_write` are parts of `input`; by tier in `claim`.

    `num_rows_computed` is what the model really computed for the turn.
    """

    input_tokens: int
    cached_tokens: int
    cache_write_tokens: int
    output_tokens: int
    num_rows_computed: int
    claim: ClaimReport
    reasoning_tokens: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """Seconds from submission. `first_token_s` None: there was no token.

    `restore_s` is what bringing blocks back from other tiers took: a part of `queue_s`, unless the
    reply was set back and waited again.
    """

    queue_s: float
    first_token_s: float | None
    total_s: float
    tokens_per_s: float | None
    restore_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnError:
    """Why a turn failed: a stable code of `model.errors` or `sessions.errors`, and a sentence."""

    code: str
    message: str
    retryable: bool


class ReasoningPolicy(StrEnum):
    """What becomes of a reply's reasoning in the turns behind it.

    `keep`: it stays. `drop`: it is cut out. `template`: whatever the model's chat template does.
    """

    KEEP = "keep"
    DROP = "drop"
    TEMPLATE = "template"


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """One conversation. `model` and `fingerprint` are what its token log was written with.

    `sampling` is how replies are drawn where a turn names nothing, as the wire has it.
    `is_listed`: lists show it unasked; those that single responses lie in they don't.
    `is_auto_titled`: as long as it has no title, the model may give it one.
    `is_reinstructed`: its instructions changed behind a turn, so a log may begin with others.
    `edited_at` is when an item was last deleted, so a log written before may have it still.
    `active` are the turns that run, here or on another server. `manifest` is where its state was.
    `retain_s` and `priority` are hints to what is kept when memory is short; they lock nothing.
    """

    id: SessionId
    owner: OwnerId
    title: str | None
    instructions: str | None
    model: str
    fingerprint: str
    reasoning: ReasoningPolicy = ReasoningPolicy.TEMPLATE
    metadata: dict[str, str] = field(default_factory=dict)
    sampling: dict[str, Any] = field(default_factory=dict)
    is_pinned: bool = False
    is_listed: bool = True
    is_auto_titled: bool = True
    is_reinstructed: bool = False
    edited_at: datetime | None = None
    retain_s: float = 0.0
    priority: int = 0
    manifest: dict[str, Any] | None = None
    active: tuple[TurnId, ...] = ()
    head_turn_id: TurnId | None = None
    forked_from: TurnId | None = None
    revision: int = 1
    created_at: datetime
    updated_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Untitled:
    """How a session without a title began: its first completed turn."""

    session_id: SessionId
    owner: OwnerId
    question: str
    reply: str


class ForkOptions(TypedDict, total=False):
    """What a fork may be given; `at` is the head by default, `id` one of a `KeyedOpenings`."""

    id: SessionId
    at: TurnId | None
    title: str | None
    is_listed: bool


class SessionOptions(TypedDict, total=False):
    """What a new session may be given; `id` is one of a `KeyedOpenings`."""

    id: SessionId
    title: str | None
    instructions: str | None
    reasoning: ReasoningPolicy
    metadata: dict[str, str]
    sampling: dict[str, Any]
    is_pinned: bool
    is_listed: bool
    is_auto_titled: bool
    retain_s: float
    priority: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionChange:
    """New values for the parts of a session that are `named`; the others are left as they are."""

    named: frozenset[str]
    title: str | None = None
    instructions: str | None = None
    reasoning: ReasoningPolicy = ReasoningPolicy.TEMPLATE
    metadata: dict[str, str] = field(default_factory=dict)
    sampling: dict[str, Any] = field(default_factory=dict)
    is_pinned: bool = False
    is_listed: bool = True
    is_auto_titled: bool = True
    retain_s: float = 0.0
    priority: int = 0

    def onto(self, session: Session) -> Session:
        """The session with the change, one revision further. Whoever names or pins one wants to
        find it again."""
        new = {name: getattr(self, name) for name in self.named}
        if self.title is not None or self.is_pinned:
            new.setdefault("is_listed", True)
        changed = replace(session, revision=session.revision + 1, **new)
        is_new = changed.instructions != session.instructions
        if is_new and session.head_turn_id is not None:
            return replace(changed, is_reinstructed=True)
        return changed


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """One exchange: what was put in, and the reply so far or as it ended.

    `incomplete_reason` is `max_output_tokens` or `deadline` when the reply was cut, and
    `server_restart` when its server stopped in good order.
    `client_turn_id` makes submission idempotent.
    """

    id: TurnId
    session_id: SessionId
    parent_id: TurnId | None
    client_turn_id: str | None
    status: TurnStatus
    params: SamplingParams
    model: str
    input_items: tuple[Item, ...]
    reply_item_id: ItemId
    reply_text: str
    delta_lengths: tuple[int, ...]  # characters a delta, so that a replay has the same numbers
    incomplete_reason: str | None = None
    error: TurnError | None = None
    usage: Usage | None = None
    timing: Timing | None = None
    metadata: dict[str, str] = field(default_factory=dict)
    terms: Terms = PLAIN
    output: tuple[OutputItem, ...] = ()  # of a parsed reply
    deleted_items: frozenset[ItemId] = frozenset()  # out of the conversation, not of the turn
    created_at: datetime
    finished_at: datetime | None = None

    @property
    def log_ids(self) -> dict[str, str]:
        """What a log record about it carries."""
        return {"session_id": self.session_id, "turn_id": self.id}


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnRequest:
    """What a caller asks for. `parent` None continues the session's head; `parent_given` tells an
    explicit None (a new root) from a missing one. `goes_on` False: it is cancelled if whoever waits
    for it to begin is. `compared` is the turn that `terms.comparison` names, if there is one.
    `digest` names what was asked for, where the same words may come to another request the next
    time; None: the request itself says it."""

    input: tuple[InputMessage, ...]
    params: SamplingParams
    client_turn_id: str | None = None
    parent: TurnId | None = None
    parent_given: bool = False
    metadata: dict[str, str] = field(default_factory=dict)
    terms: Terms = PLAIN
    goes_on: bool = True
    compared: "Turn | None" = None
    digest: str | None = None


# What a turn's feed holds, one for each wire event, so that a position in the feed is the event's
# sequence number. `app/protocol.py` gives them their names on the wire.


@dataclass(frozen=True, slots=True)
class TurnCreated:
    """`response.created`; the turn has no output yet."""

    turn: Turn


@dataclass(frozen=True, slots=True)
class TurnQueued:
    """`response.queued`, of a turn in the background."""

    turn: Turn


@dataclass(frozen=True, slots=True)
class TurnInProgress:
    """`response.in_progress`."""

    turn: Turn


@dataclass(frozen=True, slots=True)
class ReplyItemAdded:
    """`response.output_item.added`."""

    item_id: ItemId


@dataclass(frozen=True, slots=True)
class ReplyPartAdded:
    """`response.content_part.added`."""

    item_id: ItemId


@dataclass(frozen=True, slots=True)
class ReplyDelta:
    """`response.output_text.delta`; never empty."""

    item_id: ItemId
    text: str


@dataclass(frozen=True, slots=True)
class ReplyTextDone:
    """`response.output_text.done`."""

    item_id: ItemId
    text: str


@dataclass(frozen=True, slots=True)
class ReplyPartDone:
    """`response.content_part.done`."""

    item_id: ItemId
    text: str


@dataclass(frozen=True, slots=True)
class ReplyItemDone:
    """`response.output_item.done`; `status` completed or incomplete."""

    item_id: ItemId
    text: str
    status: str


@dataclass(frozen=True, slots=True)
class TurnMetrics:
    """`splice:metrics`, before the terminal event when there is usage."""

    turn_id: TurnId
    usage: Usage
    timing: Timing


@dataclass(frozen=True, slots=True)
class TurnEnded:
    """The terminal event: `response.completed`, `.incomplete` or `.failed` by the turn's status."""

    turn: Turn


TurnEvent = (
    TurnCreated
    | TurnQueued
    | TurnInProgress
    | ReplyItemAdded
    | ReplyPartAdded
    | ReplyDelta
    | ReplyTextDone
    | ReplyPartDone
    | ReplyItemDone
    | OutputEvent
    | TurnMetrics
    | TurnEnded
)
