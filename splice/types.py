"""Sessions, turns and their numbers as frozen values, read from the wire.

Fields the server adds later are not lost: each value keeps what it was read from in `raw`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypedDict

from splice.items import Item
from splice.json_value import Json, texts_of


class Message(TypedDict):
    """One message of a turn's input; `role` is user, system, developer or assistant."""

    role: str
    content: str


class ReplyOptions(TypedDict, total=False):
    """How a reply is drawn; what is absent is as the session or else the server has it.

    `client_turn_id` makes a repetition harmless; one is made up where none is given.
    """

    client_turn_id: str
    max_output_tokens: int
    temperature: float
    top_p: float
    top_k: int
    min_p: float
    presence_penalty: float
    frequency_penalty: float
    repetition_penalty: float
    seed: int
    stop: str | list[str]
    stop_token_ids: list[int]
    logit_bias: dict[str, float]
    ignore_eos: bool
    deadline_s: float


class TurnOptions(ReplyOptions, total=False):
    """What a turn may be given beside its input: `parent` is the turn to continue from, None a new
    beginning; without it, the end of the conversation."""

    parent: str | None
    metadata: dict[str, str]


class SessionFields(TypedDict, total=False):
    """What a session is made with; `instructions` are its system prompt, `reasoning` says what
    becomes of a reply's reasoning behind its turn (keep, drop or template), `sampling` stands for
    what a turn does not name. One that isn't `listed` is found by whoever asks for such. `ttl_s`
    (seconds) and `priority` (-10 to 10) are hints to what is kept when memory is short."""

    title: str | None
    instructions: str | None
    metadata: Mapping[str, str]
    reasoning: str
    sampling: Mapping[str, Any] | None
    pinned: bool
    listed: bool
    auto_title: bool
    ttl_s: float
    priority: int


class SessionChanges(SessionFields, total=False):
    """What `update` may change; None takes a title, instructions or sampling away.

    With `expected_revision` the change is refused when the session changed meanwhile.
    """

    expected_revision: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Tokens of one turn, or of several; `cached_tokens` is the part of `input_tokens` that was not
    computed, `reasoning_tokens` the part of `output_tokens` that was thought and not said."""

    input_tokens: int = 0
    cached_tokens: int = 0
    output_tokens: int = 0
    reasoning_tokens: int = 0

    @classmethod
    def from_wire(cls, raw: Json) -> "Usage":
        """Read a response's `usage`."""
        return cls(
            input_tokens=raw["input_tokens"],
            cached_tokens=raw.get("input_tokens_details", {}).get("cached_tokens", 0),
            output_tokens=raw["output_tokens"],
            reasoning_tokens=raw.get("output_tokens_details", {}).get("reasoning_tokens", 0),
        )

    def __add__(self, other: "Usage") -> "Usage":
        return Usage(
            input_tokens=self.input_tokens + other.input_tokens,
            cached_tokens=self.cached_tokens + other.cached_tokens,
            output_tokens=self.output_tokens + other.output_tokens,
            reasoning_tokens=self.reasoning_tokens + other.reasoning_tokens,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Metrics:
    """How a turn went: milliseconds, and where its prompt's tokens came from.

    `reason` says why less was reused than could have been; None when nothing was missing.
    """

    ttft_ms: float | None
    total_ms: float
    tokens_per_second: float | None
    input_tokens: int
    output_tokens: int
    reused: int
    computed: int
    reason: str | None
    raw: Json = field(repr=False)

    @classmethod
    def from_wire(cls, raw: Json) -> "Metrics":
        """Read a `splice:metrics` event or a response's `splice.metrics`."""
        kv = raw.get("kv", {})
        return cls(
            ttft_ms=raw.get("ttft_ms"),
            total_ms=raw.get("total_ms", 0.0),
            tokens_per_second=raw.get("tokens_per_second"),
            input_tokens=raw.get("input_tokens", 0),
            output_tokens=raw.get("output_tokens", 0),
            reused=kv.get("reused", 0),
            computed=kv.get("computed", 0),
            reason=kv.get("reason"),
            raw=raw,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnError:
    """Why a turn failed; `retryable` says whether the same again may well succeed."""

    code: str
    message: str
    retryable: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """One exchange. `status`: in_progress, completed, incomplete, cancelled or failed.

    `text` is the reply, or what there is of it; `items` are what it is made of, calls and reasoning
    among them. `error` is given when the turn failed. `client_turn_id` is the name under which it
    was sent.
    """

    id: str
    session_id: str
    parent_id: str | None
    client_turn_id: str | None
    status: str
    text: str
    items: tuple[Item, ...]
    model: str
    usage: Usage | None
    metrics: Metrics | None
    error: TurnError | None
    incomplete_reason: str | None
    raw: Json = field(repr=False)

    @classmethod
    def from_wire(cls, raw: Json) -> "Turn":
        """Read a Responses object."""
        error, ours = raw.get("error"), raw.get("splice") or {}
        metrics = ours.get("metrics")
        items = tuple(Item.from_wire(item) for item in raw.get("output") or ())
        return cls(
            id=raw["id"],
            session_id=(raw.get("conversation") or {}).get("id", ""),
            parent_id=raw.get("previous_response_id"),
            client_turn_id=ours.get("client_turn_id"),
            status=raw["status"],
            text="".join(item.text for item in items if item.type == "message"),
            items=items,
            model=raw.get("model", ""),
            usage=Usage.from_wire(raw["usage"]) if raw.get("usage") else None,
            metrics=Metrics.from_wire(metrics) if metrics else None,
            error=_error(error) if error else None,
            incomplete_reason=(raw.get("incomplete_details") or {}).get("reason"),
            raw=raw,
        )

    @property
    def input_text(self) -> str:
        """The text that was sent, its messages separated by blank lines."""
        said = (texts_of(item.get("content")) for item in self.raw.get("input") or ())
        return "\n\n".join(text for text in said if text)

    @property
    def is_running(self) -> bool:
        """Whether more is to come."""
        return self.status in ("queued", "in_progress")


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionInfo:
    """A session as it was when it was read; times are seconds since 1970.

    `sampling` stands for what a turn does not name; `active` are the turns that ran. `model_state`
    is `loaded`, `other_model` or `fingerprint_changed`, None while the server has no model. `kv`
    says where its state lies (`tier`, `num_tokens`, …), as of some seconds ago; None: nowhere.
    """

    id: str
    title: str | None
    instructions: str | None
    model: str
    model_state: str | None
    head: str | None
    forked_from: str | None
    revision: int
    metadata: Mapping[str, str]
    reasoning: str
    sampling: Mapping[str, Any]
    pinned: bool
    listed: bool
    auto_title: bool
    ttl_s: float
    priority: int
    kv: Json | None
    active: tuple[str, ...]
    created_at: int
    updated_at: int
    raw: Json = field(repr=False)

    @classmethod
    def from_wire(cls, raw: Json) -> "SessionInfo":
        """Read a session object."""
        return cls(
            id=raw["id"],
            title=raw.get("title"),
            instructions=raw.get("instructions"),
            model=raw.get("model", ""),
            model_state=raw.get("model_state"),
            head=raw.get("head"),
            forked_from=raw.get("forked_from"),
            revision=raw.get("revision", 0),
            metadata=raw.get("metadata") or {},
            reasoning=raw.get("reasoning", "template"),
            sampling=raw.get("sampling") or {},
            pinned=raw.get("pinned", False),
            listed=raw.get("listed", True),
            auto_title=raw.get("auto_title", True),
            ttl_s=raw.get("ttl_s", 0.0),
            priority=raw.get("priority", 0),
            kv=raw.get("kv"),
            active=tuple(raw.get("active") or ()),
            created_at=raw.get("created_at", 0),
            updated_at=raw.get("updated_at", 0),
            raw=raw,
        )


def _error(raw: Json) -> TurnError:
    return TurnError(
        code=raw.get("code") or "",
        message=raw.get("message") or "",
        retryable=bool(raw.get("retryable")),
    )
