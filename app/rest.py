"""Sessions over REST. Their turns are in `app/turns.py`."""

import asyncio
from contextlib import suppress
from typing import Any

from aiohttp import web

from app.answer import json_answer
from app.errors import DOMAIN_ERRORS
from app.idempotency import opened_once
from app.keys import CONFIG, ENGINE, MANAGER, OWNER
from app.parsing import integer_of, read_body, truth_of
from app.protocol import (
    EmptyBody,
    ForkBody,
    HeadBody,
    ParkBody,
    SessionBody,
    SessionPatch,
    WarmBody,
)
from app.representation import hit_object, list_object, session_object, tree_object
from app.tier_representation import tables_object, warmed_object
from sessions.catalog import MAX_PAGE
from sessions.errors import InvalidInputError
from sessions.types import ForkOptions, Session, SessionId, SessionOptions, TurnId


def routes() -> list[web.RouteDef]:
    """The routes of sessions."""
    return [
        web.post("/v1/sessions", create),
        web.get("/v1/sessions", list_sessions),
        web.get("/v1/sessions/{session}", get),
        web.patch("/v1/sessions/{session}", update),
        web.delete("/v1/sessions/{session}", delete),
        web.post("/v1/sessions/{session}/restore", restore),
        web.post("/v1/sessions/{session}/fork", fork),
        web.get("/v1/sessions/{session}/tree", tree),
        web.post("/v1/sessions/{session}/head", move_head),
        web.get("/v1/sessions/{session}/kv", tables),
        web.post("/v1/sessions/{session}/warm", warm),
        web.post("/v1/sessions/{session}/park", park),
        web.get("/v1/search", search),
    ]


def session_of(request: web.Request) -> SessionId:
    """The session that the address names."""
    return SessionId(request.match_info["session"])


def shown(request: web.Request, session: Session) -> dict[str, Any]:
    """Build a session as it stands to the model that is loaded."""
    loaded = None
    with suppress(*DOMAIN_ERRORS):  # while there is none
        loaded = request.app[ENGINE].info
    residency = request.app[MANAGER].presence.residencies.of(session)
    return session_object(session, loaded, residency)


async def create(request: web.Request) -> web.Response:
    """Open a session."""
    body = await read_body(request, SessionBody)

    async def make(session_id: SessionId | None) -> Session:
        return await request.app[MANAGER].create(request[OWNER], **options_of(body, session_id))

    session = await opened_once(request, body, make)
    return json_answer(shown(request, session), status=201)


def options_of(body: SessionBody, session_id: SessionId | None) -> SessionOptions:
    """What the new session is given."""
    options: SessionOptions = {
        "title": body.title,
        "instructions": body.instructions,
        "metadata": body.metadata,
        "reasoning": body.reasoning,
        "sampling": {} if body.sampling is None else body.sampling.to_stored(),
        "is_pinned": body.pinned,
        "is_listed": body.listed,
        "is_auto_titled": body.auto_title,
        "retain_s": body.ttl_s,
        "priority": body.priority,
    }
    if session_id is not None:
        options["id"] = session_id
    return options


async def list_sessions(request: web.Request) -> web.Response:
    """List the owner's sessions, one page."""
    order = request.query.get("order", "desc")
    if order not in ("asc", "desc"):
        raise InvalidInputError("order must be asc or desc", param="order")
    after = request.query.get("after")
    page = await request.app[MANAGER].list(
        request[OWNER],
        limit=integer_of(request, "limit", 20, minimum=1, maximum=MAX_PAGE),
        after=SessionId(after) if after else None,
        is_descending=order == "desc",
        pinned=truth_of(request, "pinned") if "pinned" in request.query else None,
        pinned_first=truth_of(request, "pinned_first"),
        listed=truth_of(request, "listed") if "listed" in request.query else True,
        title_has=request.query.get("q") or None,
    )
    return json_answer(list_object([shown(request, s) for s in page.data], has_more=page.has_more))


async def get(request: web.Request) -> web.Response:
    """Show a session."""
    session = await request.app[MANAGER].get(request[OWNER], session_of(request))
    return json_answer(shown(request, session))


async def update(request: web.Request) -> web.Response:
    """Rename a session, or change how it goes on."""
    body = await read_body(request, SessionPatch)
    session = await request.app[MANAGER].catalog.update(
        request[OWNER],
        session_of(request),
        body.to_change(),
        expected_revision=body.expected_revision,
    )
    return json_answer(shown(request, session))


async def delete(request: web.Request) -> web.Response:
    """Delete a session."""
    session_id = session_of(request)
    await request.app[MANAGER].delete(request[OWNER], session_id)
    undo_s = request.app[CONFIG].delete_grace_s
    return json_answer(
        {"id": session_id, "object": "session.deleted", "deleted": True, "undo_s": undo_s}
    )


async def restore(request: web.Request) -> web.Response:
    """Take a deletion back."""
    await read_body(request, EmptyBody)
    session = await request.app[MANAGER].catalog.restore(request[OWNER], session_of(request))
    return json_answer(shown(request, session))


async def fork(request: web.Request) -> web.Response:
    """Open a session that continues from a turn of this one."""
    body = await read_body(request, ForkBody)
    options: ForkOptions = {"title": body.title}
    if body.at is not None:
        options["at"] = TurnId(body.at)

    async def make(session_id: SessionId | None) -> Session:
        if session_id is not None:
            options["id"] = session_id
        return await request.app[MANAGER].fork(request[OWNER], session_of(request), **options)

    session = await opened_once(request, body, make)
    return json_answer(shown(request, session), status=201)


async def search(request: web.Request) -> web.Response:
    """Look for words in the owner's sessions."""
    words = request.query.get("q")
    if not words:
        raise InvalidInputError("q says what to look for", param="q")
    page = await request.app[MANAGER].catalog.search(
        request[OWNER],
        words,
        limit=integer_of(request, "limit", 20, minimum=1, maximum=MAX_PAGE),
        after=request.query.get("after") or None,
    )
    return json_answer(list_object([hit_object(h) for h in page.data], has_more=page.has_more))


async def tree(request: web.Request) -> web.Response:
    """Show how a session's turns hang together, in short."""
    manager, owner = request.app[MANAGER], request[OWNER]
    session = await manager.get(owner, session_of(request))
    turns = await manager.turns(owner, session.id, whole_tree=True)
    return json_answer(await asyncio.to_thread(tree_object, session, turns))


async def move_head(request: web.Request) -> web.Response:
    """Pick the branch that a plain new turn continues."""
    body = await read_body(request, HeadBody)
    session = await request.app[MANAGER].move_head(
        request[OWNER],
        session_of(request),
        TurnId(body.turn) if body.turn is not None else None,
        expected_revision=body.expected_revision,
    )
    return json_answer(shown(request, session))


async def tables(request: web.Request) -> web.Response:
    """Show a conversation's block tables."""
    session_id = session_of(request)
    views = await request.app[MANAGER].tables(request[OWNER], session_id)
    return json_answer(tables_object(session_id, views))


async def warm(request: web.Request) -> web.Response:
    """Bring a session's state onto the device, before somebody goes on."""
    body = await read_body(request, WarmBody)
    session_id = session_of(request)
    warmed = await request.app[MANAGER].presence.warm(
        request[OWNER], session_id, deadline_s=body.deadline_s
    )
    return json_answer(warmed_object(session_id, warmed))


async def park(request: web.Request) -> web.Response:
    """Move a session's state off the device."""
    body = await read_body(request, ParkBody)
    session_id = session_of(request)
    is_moved = await request.app[MANAGER].presence.park(request[OWNER], session_id, body.tier)
    return json_answer(
        {
            "object": "session.parked",
            "conversation": session_id,
            "tier": body.tier,
            "parked": is_moved,
        }
    )
