"""Sessions, turns and their numbers as frozen values, read from the wire.

Fields the server adds later are not lost: each value keeps what it was read from in `raw`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypedDict

Json = Mapping[str, Any]


class Message(TypedDict):
    """One message of a turn's input; `role` is user, system, developer or assistant."""

    role: str
    content: str


class TurnOptions(TypedDict, total=False):
    """What a turn may be given beside its input; the server's defaults stand for what is absent.

    `client_turn_id` makes a repetition harmless; one is made up where none is given. `parent` is
    the turn to continue from, None a new beginning; without it, the end of the conversation.
    """

    client_turn_id: str
    parent: str | None
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
    metadata: dict[str, str]


class SessionFields(TypedDict, total=False):
    """What a session is made with; `instructions` are its system prompt, `reasoning` says what
    becomes of a reply's reasoning behind its turn (keep, drop or template)."""

    title: str | None
    instructions: str | None
    metadata: Mapping[str, str]
    reasoning: str
    sampling: Mapping[str, Any] | None
    pinned: bool
    auto_title: bool


class SessionChanges(SessionFields, total=False):
    """What `update` may change; None takes a title, instructions or sampling away.

    With `expected_revision` the change is refused when the session changed meanwhile.
    """

    expected_revision: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Tokens of one turn; `cached_tokens` is the part of `input_tokens` that was not computed."""

    input_tokens: int
    cached_tokens: int
    output_tokens: int

    @classmethod
    def from_wire(cls, raw: Json) -> "Usage":
        """Read a response's `usage`."""
        return cls(
            input_tokens=raw["input_tokens"],
            cached_tokens=raw.get("input_tokens_details", {}).get("cached_tokens", 0),
            output_tokens=raw["output_tokens"],
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
    """Why a turn failed."""

    code: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """One exchange. `status`: in_progress, completed, incomplete, cancelled or failed.

    `text` is the reply, or what there is of it; `error` is given when the turn failed.
    """

    id: str
    session_id: str
    parent_id: str | None
    status: str
    text: str
    model: str
    usage: Usage | None
    metrics: Metrics | None
    error: TurnError | None
    incomplete_reason: str | None
    raw: Json = field(repr=False)

    @classmethod
    def from_wire(cls, raw: Json) -> "Turn":
        """Read a Responses object."""
        error = raw.get("error")
        metrics = (raw.get("splice") or {}).get("metrics")
        return cls(
            id=raw["id"],
            session_id=(raw.get("conversation") or {}).get("id", ""),
            parent_id=raw.get("previous_response_id"),
            status=raw["status"],
            text=_text(raw),
            model=raw.get("model", ""),
            usage=Usage.from_wire(raw["usage"]) if raw.get("usage") else None,
            metrics=Metrics.from_wire(metrics) if metrics else None,
            error=TurnError(code=error["code"], message=error["message"]) if error else None,
            incomplete_reason=(raw.get("incomplete_details") or {}).get("reason"),
            raw=raw,
        )

    @property
    def input_text(self) -> str:
        """The text that was sent, its messages separated by blank lines."""
        parts = [
            part.get("text", "") for item in self.raw.get("input", ()) for part in item["content"]
        ]
        return "\n\n".join(parts)


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionInfo:
    """A session as it was when it was read; times are seconds since 1970.

    `sampling` stands for what a turn does not name; `active` are the turns that ran. `model_state`
    is `loaded`, `other_model` or `fingerprint_changed`, None while the server has no model.
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
    sampling: Mapping[str, Any]
    pinned: bool
    auto_title: bool
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
            sampling=raw.get("sampling") or {},
            pinned=raw.get("pinned", False),
            auto_title=raw.get("auto_title", True),
            active=tuple(raw.get("active") or ()),
            created_at=raw.get("created_at", 0),
            updated_at=raw.get("updated_at", 0),
            raw=raw,
        )


def _text(raw: Json) -> str:
    items = [item for item in raw.get("output", ()) if item.get("type") == "message"]
    parts = [part for item in items for part in item["content"]]
    return "".join(part.get("text", "") for part in parts if part.get("type") == "output_text")
