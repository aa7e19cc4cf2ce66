"""Between rows and frozen values, both ways. No SQL, no decisions."""

from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime
from typing import Any

from model.config import SamplingParams
from model.grammar import Grammar, GrammarKind
from model.messages import ClaimReport, MissReason
from sessions.folding import fold
from sessions.output import OutputItem
from sessions.tables import NodeRow, ResponseRow, SearchEntryRow, SessionRow, TokenSpanRow
from sessions.terms import Terms
from sessions.token_log import TokenSpan, pack_ids, unpack_ids
from sessions.types import (
    Item,
    ItemId,
    ItemKind,
    OwnerId,
    ReasoningPolicy,
    Session,
    SessionId,
    Timing,
    Turn,
    TurnError,
    TurnId,
    TurnStatus,
    Usage,
)


def to_session(row: SessionRow, active: Sequence[TurnId] = ()) -> Session:
    """A session as stored, with the turns of it that run."""
    return Session(
        id=SessionId(row.id),
        owner=OwnerId(row.owner_id),
        title=row.title,
        instructions=row.instructions,
        model=row.model,
        fingerprint=row.fingerprint,
        reasoning=ReasoningPolicy(row.settings.get("reasoning", ReasoningPolicy.TEMPLATE)),
        metadata=dict(row.labels),
        sampling=dict(row.settings.get("sampling", {})),
        is_pinned=row.is_pinned,
        is_listed=row.is_listed,
        is_auto_titled=row.settings.get("is_auto_titled", True),
        is_reinstructed=row.settings.get("is_reinstructed", False),
        edited_at=_to_time(row.settings.get("edited_at")),
        retain_s=row.settings.get("retain_s", 0.0),
        priority=row.settings.get("priority", 0),
        manifest=row.manifest,
        active=tuple(active),
        head_turn_id=_turn_id(row.head_id),
        forked_from=_turn_id(row.forked_from_id),
        revision=row.revision,
        created_at=row.created_at,
        updated_at=row.updated_at,
    )


def from_session(session: Session) -> dict[str, Any]:
    """The columns that a session's owner decides."""
    return {
        "title": session.title,
        "instructions": session.instructions,
        "labels": session.metadata,
        "is_pinned": session.is_pinned,
        "is_listed": session.is_listed,
        "settings": {
            "reasoning": session.reasoning.value,
            "sampling": session.sampling,
            "is_auto_titled": session.is_auto_titled,
            "is_reinstructed": session.is_reinstructed,
            "edited_at": session.edited_at.isoformat() if session.edited_at else None,
            "retain_s": session.retain_s,
            "priority": session.priority,
        },
    }


def to_turn(row: ResponseRow, inputs: Sequence[NodeRow], outputs: Sequence[NodeRow]) -> Turn:
    """A turn as stored; without a reply's node its text is what the last checkpoint had."""
    nodes, terms = (*inputs, *outputs), Terms.of_stored(row.request.get("terms", {}))
    pieces: Sequence[Any] = row.delta_lengths
    output = tuple(OutputItem.of_stored(item) for item in pieces) if terms.is_parsed else ()
    is_whole = bool(outputs) and not terms.is_parsed
    return Turn(
        id=TurnId(row.id),
        session_id=SessionId(row.session_id),
        parent_id=_turn_id(row.parent_id),
        client_turn_id=row.client_turn_id,
        status=TurnStatus(row.status),
        params=to_params(row.request["params"]),
        model=row.model,
        input_items=tuple(to_item(node) for node in inputs),
        reply_item_id=ItemId(row.reply_node_id),
        reply_text=outputs[0].text if is_whole else row.partial_text or "",
        delta_lengths=() if terms.is_parsed else tuple(pieces),
        output=output,
        incomplete_reason=row.incomplete_reason,
        error=TurnError(**row.error) if row.error is not None else None,
        usage=_to_usage(row.usage) if row.usage is not None else None,
        timing=Timing(**row.timing) if row.timing is not None else None,
        metadata=dict(row.labels),
        terms=terms,
        deleted_items=frozenset(ItemId(n.id) for n in nodes if n.deleted_at is not None),
        created_at=row.created_at,
        finished_at=row.finished_at,
    )


def to_item(node: NodeRow) -> Item:
    """One item of the conversation."""
    return Item(
        id=ItemId(node.id),
        session_id=SessionId(node.session_id),
        turn_id=TurnId(node.response_id),
        kind=ItemKind(node.kind),
        role=node.role,
        text=node.text,
        status=node.status,
        payload=node.payload,
        created_at=node.created_at,
    )


def from_item(item: Item, *, position: int, parent_id: str | None, is_output: bool) -> NodeRow:
    """The node to insert for an item."""
    return NodeRow(
        id=item.id,
        session_id=item.session_id,
        response_id=item.turn_id,
        parent_id=parent_id,
        position=position,
        is_output=is_output,
        kind=item.kind.value,
        role=item.role,
        text=item.text,
        payload=item.payload,
        status=item.status,
        created_at=item.created_at,
    )


def search_entries(nodes: Sequence[NodeRow]) -> list[SearchEntryRow]:
    """By what the nodes can be found: the words of messages."""
    return [
        SearchEntryRow(
            session_id=node.session_id,
            response_id=node.response_id,
            node_id=node.id,
            text=fold(node.text),
        )
        for node in nodes
        if node.text and node.kind == ItemKind.MESSAGE
    ]


def to_span(row: TokenSpanRow) -> TokenSpan:
    """A turn's part of the token log."""
    return TokenSpan(
        turn_id=TurnId(row.response_id),
        base_id=_turn_id(row.base_id),
        keep_tokens=row.keep_tokens,
        num_prompt_tokens=row.num_prompt_tokens,
        ids=unpack_ids(row.ids),
        fingerprint=row.fingerprint,
    )


def from_span(span: TokenSpan) -> TokenSpanRow:
    """The row to insert for a span."""
    return TokenSpanRow(
        response_id=span.turn_id,
        base_id=span.base_id,
        keep_tokens=span.keep_tokens,
        num_prompt_tokens=span.num_prompt_tokens,
        ids=pack_ids(span.ids),
        fingerprint=span.fingerprint,
    )


def from_params(params: SamplingParams) -> dict[str, Any]:
    """Sampling parameters as JSON."""
    return asdict(params)


def to_params(stored: dict[str, Any]) -> SamplingParams:
    """The inverse of `from_params`; parameters that a newer version added are left out."""
    known = {k: v for k, v in stored.items() if k in SamplingParams.__dataclass_fields__}
    for name in ("stop", "stop_token_ids"):
        known[name] = tuple(known.get(name, ()))
    known["logit_bias"] = tuple((int(i), float(b)) for i, b in known.get("logit_bias", ()))
    if (grammar := known.get("grammar")) is not None:
        known["grammar"] = Grammar(**{**grammar, "kind": GrammarKind(grammar["kind"])})
    return SamplingParams(**known)


def pieces_of(turn: Turn) -> list[Any]:
    """How a reply was shown: the lengths of its pieces, or its items, each with those."""
    if turn.terms.is_parsed:
        return [item.to_stored() for item in turn.output]
    return list(turn.delta_lengths)


def ending_values(turn: Turn) -> dict[str, Any]:
    """What an UPDATE sets when a turn has ended."""
    return {
        "status": turn.status.value,
        "partial_text": turn.reply_text if turn.terms.is_parsed else None,
        "delta_lengths": pieces_of(turn),
        "incomplete_reason": turn.incomplete_reason,
        "error": asdict(turn.error) if turn.error is not None else None,
        "usage": asdict(turn.usage) if turn.usage is not None else None,
        "timing": asdict(turn.timing) if turn.timing is not None else None,
        "finished_at": turn.finished_at,
    }


def _to_usage(stored: dict[str, Any]) -> Usage:
    claim = dict(stored["claim"])
    if claim["reason"] is not None:
        claim["reason"] = MissReason(claim["reason"])
    return Usage(**{**stored, "claim": ClaimReport(**claim)})


def _to_time(stored: str | None) -> datetime | None:
    return None if stored is None else datetime.fromisoformat(stored)


def _turn_id(value: str | None) -> TurnId | None:
    return TurnId(value) if value is not None else None
