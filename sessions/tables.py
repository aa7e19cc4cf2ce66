"""The tables, as typed rows: what is stored, never what it means. `store.py` reads and writes them.

Append-only where it counts: a node (one item of a conversation) is inserted once and never
changed; a response (wire word for a turn) is inserted once and ended once. Whatever may be lost
is not here: where blocks lie belongs to the engine.

Invariants (kept by constraints, so that a second server on the same database keeps them too):
    one active response a branch; one response a (session, client_turn_id)
    a node's position within its response is unique
"""

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import (
    JSON,
    BigInteger,
    CheckConstraint,
    DateTime,
    Dialect,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    Text,
    UniqueConstraint,
    false,
    text,
    true,
)
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column
from sqlalchemy.types import TypeDecorator

from sessions.types import ItemKind, TurnStatus

NAMING_CONVENTION = {
    "ix": "ix_%(table_name)s_%(column_0_N_name)s",
    "uq": "uq_%(table_name)s_%(column_0_N_name)s",
    "ck": "ck_%(table_name)s_%(constraint_name)s",
    "fk": "fk_%(table_name)s_%(column_0_N_name)s",
    "pk": "pk_%(table_name)s",
}

ACTIVE = "status IN ('pending', 'running')"


class UtcTime(TypeDecorator[datetime]):
    """A moment in UTC. SQLite forgets zones, so they are taken off on the way in and put back."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        """Refuse a naive time: nobody could say what it meant."""
        if value is None:
            return None
        if value.tzinfo is None:
            raise ValueError(f"a time without a zone: {value}")
        return value.astimezone(UTC)

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        """Always aware, always UTC."""
        if value is None:
            return None
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


class StoredText(TypeDecorator[str]):
    """Text as both databases have it. What is stored has no NUL (`validation`), which PostgreSQL
    refuses even in questions: an id that has one is another's that nobody has."""

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: Dialect) -> str | None:
        """Put the sign for "no character" in a NUL's place."""
        return None if value is None else value.replace("\0", "\N{REPLACEMENT CHARACTER}")


class Row(DeclarativeBase):
    """Base of all rows; its metadata is what migrations are compared with."""

    metadata = MetaData(naming_convention=NAMING_CONVENTION)
    type_annotation_map = {  # noqa: RUF012 - SQLAlchemy reads it as a plain attribute
        str: StoredText,
        datetime: UtcTime,
        dict[str, Any]: JSON(none_as_null=True),
        list[Any]: JSON,
        bytes: LargeBinary,
    }


def _one_of(column: str, values: Iterable[str]) -> CheckConstraint:
    listed = ", ".join(f"'{value}'" for value in values)
    return CheckConstraint(f"{column} IN ({listed})", name=column)


class OwnerRow(Row):
    """Who sessions belong to."""

    __tablename__ = "owners"

    id: Mapped[str] = mapped_column(primary_key=True)
    name: Mapped[str | None]
    created_at: Mapped[datetime]
    disabled_at: Mapped[datetime | None]


class ApiKeyRow(Row):
    """A key of an owner: only its hash."""

    __tablename__ = "api_keys"

    id: Mapped[str] = mapped_column(primary_key=True)
    owner_id: Mapped[str] = mapped_column(ForeignKey("owners.id"), index=True)
    name: Mapped[str | None]
    key_hash: Mapped[bytes] = mapped_column(unique=True)
    scopes: Mapped[list[Any]]
    created_at: Mapped[datetime]
    last_used_at: Mapped[datetime | None]
    expires_at: Mapped[datetime | None]
    revoked_at: Mapped[datetime | None]


class SessionRow(Row):
    """One conversation. `head_id` picks the branch; `revision` counts its changes.

    `clock_at` is what its chat template is told the time is; a fork has its origin's. `manifest`
    says where its state lies, for lists and badges.
    """

    __tablename__ = "sessions"
    __table_args__ = (Index("ix_sessions_recent", "owner_id", "is_listed", "updated_at", "id"),)

    id: Mapped[str] = mapped_column(primary_key=True)
    owner_id: Mapped[str] = mapped_column(ForeignKey("owners.id"))
    title: Mapped[str | None]
    instructions: Mapped[str | None]
    model: Mapped[str]
    fingerprint: Mapped[str]
    # No foreign keys on the next two: responses refer to sessions, and a circle of tables can't
    # be created or emptied in any order. The store writes them beside the rows they name.
    head_id: Mapped[str | None]
    forked_from_id: Mapped[str | None] = mapped_column(index=True)
    revision: Mapped[int]
    labels: Mapped[dict[str, Any]]
    settings: Mapped[dict[str, Any]]
    is_pinned: Mapped[bool] = mapped_column(server_default=false())
    is_listed: Mapped[bool] = mapped_column(server_default=true())
    manifest: Mapped[dict[str, Any] | None]
    clock_at: Mapped[datetime]
    created_at: Mapped[datetime]
    updated_at: Mapped[datetime]
    deleted_at: Mapped[datetime | None]


class ResponseRow(Row):
    """One turn. `input_response_id` is whose input nodes it has: its own, or a sibling's.

    `partial_text` grows while the reply does and goes when the reply's node is written. A deleted
    one is there for those that follow it, and for nobody else.
    """

    __tablename__ = "responses"
    __table_args__ = (
        UniqueConstraint("session_id", "client_turn_id"),
        _one_of("status", TurnStatus),
        Index(
            "uq_responses_active_branch",
            "branch_id",
            unique=True,
            sqlite_where=text(ACTIVE),
            postgresql_where=text(ACTIVE),
        ),
        Index(
            "ix_responses_active_lease",
            "lease_until",
            sqlite_where=text(ACTIVE),
            postgresql_where=text(ACTIVE),
        ),
        Index("ix_responses_session", "session_id", "id"),
    )

    id: Mapped[str] = mapped_column(primary_key=True)
    session_id: Mapped[str] = mapped_column(ForeignKey("sessions.id"))
    parent_id: Mapped[str | None] = mapped_column(ForeignKey("responses.id"), index=True)
    branch_id: Mapped[str]
    client_turn_id: Mapped[str | None]
    status: Mapped[str]
    model: Mapped[str]
    request: Mapped[dict[str, Any]]
    labels: Mapped[dict[str, Any]]
    input_response_id: Mapped[str]
    reply_node_id: Mapped[str] = mapped_column(unique=True)
    partial_text: Mapped[str | None]
    delta_lengths: Mapped[list[Any]]
    incomplete_reason: Mapped[str | None]
    error: Mapped[dict[str, Any] | None]
    usage: Mapped[dict[str, Any] | None]
    timing: Mapped[dict[str, Any] | None]
    runner_id: Mapped[str]
    lease_until: Mapped[datetime]
    epoch: Mapped[int]
    created_at: Mapped[datetime]
    finished_at: Mapped[datetime | None]
    deleted_at: Mapped[datetime | None]


class NodeRow(Row):
    """One item, below the item it followed. `payload` is what a message's text can't hold.

    A deleted one belongs to its turn still, and to the conversation no more.
    """

    __tablename__ = "nodes"
    __table_args__ = (
        UniqueConstraint("response_id", "position"),
        _one_of("kind", ItemKind),
        Index("ix_nodes_session", "session_id", "id"),
    )

    id: Mapped[str] = mapped_column(primary_key=True)
    session_id: Mapped[str] = mapped_column(ForeignKey("sessions.id"))
    response_id: Mapped[str] = mapped_column(ForeignKey("responses.id"))
    parent_id: Mapped[str | None] = mapped_column(ForeignKey("nodes.id"), index=True)
    position: Mapped[int] = mapped_column(Integer)
    is_output: Mapped[bool]
    kind: Mapped[str]
    role: Mapped[str]
    text: Mapped[str]
    payload: Mapped[dict[str, Any] | None]
    status: Mapped[str]
    created_at: Mapped[datetime]
    deleted_at: Mapped[datetime | None]


class TokenSpanRow(Row):
    """A turn's part of the token log: the first `keep_tokens` of `base_id`'s log, then `ids`.

    `num_prompt_tokens` counts from the log's beginning; what follows was sampled.
    """

    __tablename__ = "token_spans"

    response_id: Mapped[str] = mapped_column(ForeignKey("responses.id"), primary_key=True)
    base_id: Mapped[str | None] = mapped_column(ForeignKey("responses.id"), index=True)
    keep_tokens: Mapped[int]
    num_prompt_tokens: Mapped[int]
    ids: Mapped[bytes]
    fingerprint: Mapped[str]


class ResponseEventRow(Row):
    """A stored event of a turn whose replay can't be made from its reply's text alone."""

    __tablename__ = "response_events"
    __table_args__ = {"sqlite_with_rowid": False}  # noqa: RUF012 - SQLAlchemy's own form

    response_id: Mapped[str] = mapped_column(ForeignKey("responses.id"), primary_key=True)
    seq: Mapped[int] = mapped_column(BigInteger, primary_key=True, autoincrement=False)
    type: Mapped[str]
    data: Mapped[bytes]


class SessionEventRow(Row):
    """What a revision of a session was about, for those who watch it. The newest are kept."""

    __tablename__ = "session_events"
    __table_args__ = {"sqlite_with_rowid": False}  # noqa: RUF012 - SQLAlchemy's own form

    session_id: Mapped[str] = mapped_column(ForeignKey("sessions.id"), primary_key=True)
    revision: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    kind: Mapped[str]
    turn_id: Mapped[str | None]
    status: Mapped[str | None]
    fields: Mapped[list[Any]]


class SearchEntryRow(Row):
    """What can be found by its words: a session's title (no node), or a message's text, without
    case and accents.

    Inserted and deleted, never changed: `search_index` follows it.
    """

    __tablename__ = "search_entries"

    id: Mapped[int] = mapped_column(
        BigInteger().with_variant(Integer, "sqlite"), primary_key=True, autoincrement=True
    )
    session_id: Mapped[str] = mapped_column(ForeignKey("sessions.id"), index=True)
    response_id: Mapped[str | None] = mapped_column(ForeignKey("responses.id"))
    node_id: Mapped[str | None] = mapped_column(ForeignKey("nodes.id"), unique=True)
    text: Mapped[str]
