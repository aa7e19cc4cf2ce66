"""Sessions as files: exported as JSON or Markdown, imported from JSON.

The JSON has the whole tree and comes back as it went; the Markdown is the branch of the head, for
people. Ids in a file name turns within it, and nothing else.
"""

import asyncio
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Annotated, Any, Literal

from aiohttp import web
from pydantic import Field, StringConstraints

from app.answer import json_answer
from app.idempotency import opened_once
from app.keys import MANAGER, OWNER
from app.parsing import read_body
from app.protocol import MessageBody, Metadata, SamplingBody, SessionBody, Strict, Text
from app.rest import session_of, shown
from sessions.errors import InvalidInputError
from sessions.history import given
from sessions.tool_prompt import plainly
from sessions.transfer import MAX_TURNS, ImportedSession, ImportedTurn
from sessions.types import (
    InputMessage,
    SamplingParams,
    Session,
    SessionId,
    Turn,
    TurnError,
    TurnStatus,
)

VERSION = 1

Key = Annotated[str, StringConstraints(min_length=1, max_length=128)]
Moment = Annotated[float, Field(ge=0, le=4102444800)]  # until 2100
Status = Literal["completed", "incomplete", "cancelled", "failed", "interrupted"]


def routes() -> list[web.RouteDef]:
    """The routes of files."""
    return [
        web.get("/v1/sessions/{session}/export", export),
        web.post("/v1/sessions/import", bring_in),
    ]


class ErrorFile(Strict):
    """Why a turn failed."""

    code: Text
    message: Text
    retryable: bool


class TurnFile(Strict):
    """An ended turn."""

    id: Key
    parent: Key | None
    status: Status
    created_at: Moment
    completed_at: Moment
    sampling: SamplingBody = SamplingBody()
    input: list[MessageBody]
    reply: Text
    incomplete_reason: Text | None = None
    error: ErrorFile | None = None
    metadata: Metadata = Field(default_factory=dict)

    def to_turn(self) -> ImportedTurn:
        """Build the turn."""
        return ImportedTurn(
            key=self.id,
            parent=self.parent,
            status=TurnStatus(self.status),
            params=self.sampling.to_params(SamplingParams()),
            input=tuple(InputMessage(role=m.role, text=m.content) for m in self.input),
            reply_text=self.reply,
            incomplete_reason=self.incomplete_reason,
            error=TurnError(**self.error.model_dump()) if self.error is not None else None,
            metadata=self.metadata,
            created_at=datetime.fromtimestamp(self.created_at, UTC),
            finished_at=datetime.fromtimestamp(self.completed_at, UTC),
        )


class SessionFile(Strict):
    """A session with all its branches; a parent comes before its children."""

    object: Literal["splice.export"]
    version: Literal[1]
    model: str | None = None
    session: SessionBody
    head: Key | None
    turns: Annotated[list[TurnFile], Field(max_length=MAX_TURNS)]

    def to_session(self) -> ImportedSession:
        """Build the session."""
        given = self.session
        return ImportedSession(
            title=given.title,
            instructions=given.instructions,
            reasoning=given.reasoning,
            metadata=given.metadata,
            sampling={} if given.sampling is None else given.sampling.to_stored(),
            is_pinned=given.pinned,
            is_auto_titled=given.auto_title,
            head=self.head,
            turns=tuple(turn.to_turn() for turn in self.turns),
        )


async def bring_in(request: web.Request) -> web.Response:
    """Open a session from an exported one."""
    body = await read_body(request, SessionFile)

    async def make(session_id: SessionId | None) -> Session:
        importer = request.app[MANAGER].importer
        return await importer.bring_in(request[OWNER], body.to_session(), session_id=session_id)

    session = await opened_once(request, body, make)
    return json_answer(shown(request, session), status=201)


async def export(request: web.Request) -> web.Response:
    """Write a session as a file."""
    kind = request.query.get("format", "json")
    if kind not in ("json", "markdown"):
        raise InvalidInputError("format must be json or markdown", param="format")
    manager, owner = request.app[MANAGER], request[OWNER]
    session = await manager.get(owner, session_of(request))
    turns = await manager.turns(owner, session.id, whole_tree=kind == "json")
    if kind == "markdown":
        text = await asyncio.to_thread(to_markdown, session, turns)
        answer = web.Response(text=text, content_type="text/markdown")
    else:
        answer = json_answer(await asyncio.to_thread(to_file, session, turns))
    suffix = "md" if kind == "markdown" else "json"
    answer.headers["Content-Disposition"] = f'attachment; filename="{session.id}.{suffix}"'
    return answer


def to_file(session: Session, turns: tuple[Turn, ...]) -> dict[str, Any]:
    """Build what `SessionFile` reads; a turn that runs is written as if it were interrupted."""
    return {
        "object": "splice.export",
        "version": VERSION,
        "model": session.model,
        "session": {
            "title": session.title,
            "instructions": session.instructions,
            "reasoning": str(session.reasoning),
            "metadata": session.metadata,
            "sampling": session.sampling,
            "pinned": session.is_pinned,
            "auto_title": session.is_auto_titled,
        },
        "head": session.head_turn_id,
        "turns": [_turn_file(turn) for turn in turns],
    }


def _turn_file(turn: Turn) -> dict[str, Any]:
    ended = turn.finished_at if turn.finished_at is not None else turn.created_at
    return {
        "id": turn.id,
        "parent": turn.parent_id,
        "status": "interrupted" if turn.status.is_active else str(turn.status),
        "created_at": turn.created_at.timestamp(),
        "completed_at": ended.timestamp(),
        "sampling": _sampling_file(turn.params),
        # Calls and results as words: a file of messages has no others.
        "input": [{"role": m.role, "content": m.text} for m in plainly(given(turn), ())],
        "reply": turn.reply_text,
        "incomplete_reason": turn.incomplete_reason,
        "error": asdict(turn.error) if turn.error is not None else None,
        "metadata": turn.metadata,
    }


def _sampling_file(params: SamplingParams) -> dict[str, Any]:
    """Write what is not as it always is."""
    usual = asdict(SamplingParams())
    said = {k: v for k, v in asdict(params).items() if v != usual[k]}
    if "logit_bias" in said:
        said["logit_bias"] = {str(token): bias for token, bias in said["logit_bias"]}
    known = SamplingBody.model_fields
    return {k: list(v) if isinstance(v, tuple) else v for k, v in said.items() if k in known}


def to_markdown(session: Session, turns: tuple[Turn, ...]) -> str:
    """Write a branch for people."""
    parts = [f"# {session.title or 'Conversation'}"]
    if session.instructions:
        parts.append(f"## System\n\n{session.instructions}")
    for turn in turns:
        said = plainly(given(turn), ())
        parts += [f"## {m.role.capitalize()}\n\n{m.text}" for m in said]
        if turn.reply_text:
            parts.append(f"## Assistant\n\n{turn.reply_text}")
    return "\n\n".join(part.rstrip() for part in parts) + "\n"
