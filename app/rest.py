"""Sessions over REST. Their turns are in `app/turns.py`."""

from aiohttp import web

from app.answer import json_answer
from app.keys import MANAGER, OWNER
from app.parsing import integer_of, read_body
from app.protocol import ForkBody, SessionBody
from app.representation import list_object, session_object, tables_object
from sessions.errors import InvalidInputError
from sessions.manager import MAX_PAGE
from sessions.types import SessionId, TurnId


def routes() -> list[web.RouteDef]:
    """The routes of sessions."""
    return [
        web.post("/v1/sessions", create),
        web.get("/v1/sessions", list_sessions),
        web.get("/v1/sessions/{session}", get),
        web.delete("/v1/sessions/{session}", delete),
        web.post("/v1/sessions/{session}/fork", fork),
        web.get("/v1/sessions/{session}/kv", tables),
    ]


def session_of(request: web.Request) -> SessionId:
    """The session that the address names."""
    return SessionId(request.match_info["session"])


async def create(request: web.Request) -> web.Response:
    """Open a session."""
    body = await read_body(request, SessionBody)
    session = await request.app[MANAGER].create(
        request[OWNER],
        title=body.title,
        instructions=body.instructions,
        metadata=body.metadata,
        reasoning=body.reasoning,
    )
    return json_answer(session_object(session), status=201)


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
    )
    return json_answer(list_object([session_object(s) for s in page.data], has_more=page.has_more))


async def get(request: web.Request) -> web.Response:
    """Show a session."""
    session = await request.app[MANAGER].get(request[OWNER], session_of(request))
    return json_answer(session_object(session))


async def delete(request: web.Request) -> web.Response:
    """Delete a session."""
    session_id = session_of(request)
    await request.app[MANAGER].delete(request[OWNER], session_id)
    return json_answer({"id": session_id, "object": "session.deleted", "deleted": True})


async def fork(request: web.Request) -> web.Response:
    """Open a session that continues from a turn of this one."""
    body = await read_body(request, ForkBody)
    at = TurnId(body.at) if body.at is not None else None
    session = await request.app[MANAGER].fork(
        request[OWNER], session_of(request), at=at, title=body.title
    )
    return json_answer(session_object(session), status=201)


async def tables(request: web.Request) -> web.Response:
    """Show a conversation's block tables."""
    session_id = session_of(request)
    views = await request.app[MANAGER].tables(request[OWNER], session_id)
    return json_answer(tables_object(session_id, views))
