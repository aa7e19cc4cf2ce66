"""`/v1/conversations`: sessions as OpenAI's clients know them, and their items one by one.

A conversation is a session: the same id, the same turns. Its items are those of the head's branch;
items that are put in by themselves are a turn without a reply.
"""

from typing import Annotated, Any

from aiohttp import web
from pydantic import Field

from app.answer import json_answer
from app.idempotency import key_of, opened_once
from app.item_object import item_object
from app.keys import MANAGER, OWNER
from app.openai.paging import page_wanted
from app.openai.response_request import Lenient
from app.openai.response_turns import ResponseTurns
from app.parsing import read_body
from app.protocol import Metadata
from app.representation import list_object
from app.response_object import seconds
from sessions.types import ItemId, Session, SessionChange, SessionId, SessionOptions

Json = dict[str, Any]

MAX_NEW_ITEMS = 20

_PATH = "/v1/conversations"


class ConversationBody(Lenient):
    """`POST /v1/conversations`."""

    items: Annotated[list[Json], Field(max_length=MAX_NEW_ITEMS)] | None = None
    metadata: Metadata | None = None


class ConversationChange(Lenient):
    """`POST /v1/conversations/{id}`: the metadata is replaced whole."""

    metadata: Metadata | None = None


class ItemsBody(Lenient):
    """`POST /v1/conversations/{id}/items`."""

    items: Annotated[list[Json], Field(min_length=1, max_length=MAX_NEW_ITEMS)]


def routes() -> list[web.RouteDef]:
    """The routes of conversations."""
    one = _PATH + "/{conversation}"
    return [
        web.post(_PATH, create),
        web.get(one, get),
        web.post(one, update),
        web.delete(one, delete),
        web.get(one + "/items", list_items),
        web.post(one + "/items", add_items),
        web.get(one + "/items/{item}", get_item),
        web.delete(one + "/items/{item}", delete_item),
    ]


async def create(request: web.Request) -> web.Response:
    """Open a conversation, with items that stand at its beginning. What they can't be put into goes
    again, but for one with a key, whose client may ask again."""
    body = await read_body(request, ConversationBody)
    manager, owner = request.app[MANAGER], request[OWNER]
    turns = ResponseTurns(request.app, owner)
    messages = await turns.messages_of(body.items, "items") if body.items else ()

    async def make(session_id: SessionId | None) -> Session:
        options: SessionOptions = {"metadata": body.metadata or {}, "is_auto_titled": False}
        if session_id is not None:
            options["id"] = session_id
        return await manager.create(owner, **options)

    session, key = await opened_once(request, body, make), key_of(request)
    is_unused = bool(messages) and key is None
    try:
        if messages:
            await manager.items.put(owner, session.id, messages, key)
        is_unused = False
    finally:
        if is_unused:
            await manager.delete(owner, session.id)
    return json_answer(_conversation(session))


async def get(request: web.Request) -> web.Response:
    """Show a conversation."""
    return json_answer(_conversation(await _session_of(request)))


async def update(request: web.Request) -> web.Response:
    """Replace a conversation's metadata."""
    body = await read_body(request, ConversationChange)
    change = SessionChange(
        named=frozenset({"metadata"} if "metadata" in body.model_fields_set else ()),
        metadata=body.metadata or {},
    )
    session = await request.app[MANAGER].catalog.update(request[OWNER], _id_of(request), change)
    return json_answer(_conversation(session))


async def delete(request: web.Request) -> web.Response:
    """Delete a conversation."""
    session_id = _id_of(request)
    await request.app[MANAGER].delete(request[OWNER], session_id)
    return json_answer({"id": session_id, "object": "conversation.deleted", "deleted": True})


async def list_items(request: web.Request) -> web.Response:
    """List a conversation's items, one page."""
    wanted = page_wanted(request)
    page = await request.app[MANAGER].items.page(request[OWNER], _id_of(request), wanted)
    items = [item_object(item) for item in page.data]
    return json_answer(list_object(items, has_more=page.has_more))


async def add_items(request: web.Request) -> web.Response:
    """Put items in behind what is there."""
    body = await read_body(request, ItemsBody)
    turns = ResponseTurns(request.app, request[OWNER])
    messages = await turns.messages_of(body.items, "items")
    items = request.app[MANAGER].items
    turn = await items.put(request[OWNER], _id_of(request), messages, key_of(request))
    return json_answer(list_object([item_object(item) for item in turn.input_items]))


async def get_item(request: web.Request) -> web.Response:
    """Show an item."""
    items = request.app[MANAGER].items
    item_id = ItemId(request.match_info["item"])
    return json_answer(item_object(await items.get(request[OWNER], _id_of(request), item_id)))


async def delete_item(request: web.Request) -> web.Response:
    """Take an item out; what comes next is computed again from there."""
    item_id = ItemId(request.match_info["item"])
    await request.app[MANAGER].items.delete(request[OWNER], _id_of(request), item_id)
    return json_answer(_conversation(await _session_of(request)))


def _id_of(request: web.Request) -> SessionId:
    return SessionId(request.match_info["conversation"])


async def _session_of(request: web.Request) -> Session:
    return await request.app[MANAGER].get(request[OWNER], _id_of(request))


def _conversation(session: Session) -> Json:
    return {
        "id": session.id,
        "object": "conversation",
        "created_at": seconds(session.created_at),
        "metadata": session.metadata,
    }
