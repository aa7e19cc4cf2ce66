"""A conversation made short: the model sums it up, and the summary stands for what was said.

The summary is asked for behind the conversation as it is, so that nothing of it is computed again.
"""

from dataclasses import replace
from typing import Any

from aiohttp import web

from app.answer import json_answer
from app.item_object import item_object
from app.keys import CONFIG, OWNER
from app.openai.response_request import parse_input
from app.openai.response_turns import ResponseTurns
from app.parsing import read_object
from app.peer import beside, until_gone
from app.response_object import seconds, usage_object
from sessions.errors import InvalidInputError
from sessions.ids import new_id_of_kind
from sessions.types import ItemKind, OutputItem

Json = dict[str, Any]


async def compact(request: web.Request) -> web.Response:
    """Sum a conversation up; the answer's items stand for it as another's input."""
    body = parse_input(await read_object(request))
    turns = ResponseTurns(request.app, request[OWNER])
    place = await turns.place_of(body)
    if body.input is None and place.parent is None:
        raise InvalidInputError("there is nothing to sum up", param="input")
    messages = await turns.messages_of(body.input) if body.input is not None else ()
    terms = turns.terms_of(body, place, shown={})
    if place.parent is not None:
        # What the conversation began with, so that its state is used as it is.
        before = place.parent.terms
        if body.instructions is None:
            terms = replace(terms, instructions=before.instructions)
        if body.tools is None:
            terms = replace(terms, tools=before.tools)
    async with beside(until_gone(request)):
        summed = await turns.summed_up(terms, place, messages)
    now = request.app[CONFIG].clock()
    kind = ItemKind.COMPACTION
    item = OutputItem(id=new_id_of_kind(kind, now), kind=kind, text=summed.text)
    assert summed.turn.usage is not None, "a summary was generated"
    return json_answer(
        {
            "id": summed.turn.id,
            "object": "response.compaction",
            "created_at": seconds(summed.turn.created_at),
            "output": [item_object(item)],
            "usage": usage_object(summed.turn.usage),
        }
    )
