"""`/v1/responses`: create, read, resume, cancel, delete, and the items that led to one.

A response without `background` belongs to its connection: when the client leaves, generation
stops, and what there is of a stored one is kept. One with it goes on, and can be read again from
any event; so does one of a conversation that came with a key, for its client may ask again.
"""

from collections.abc import AsyncGenerator, AsyncIterator

from aiohttp import web

from app.answer import json_answer
from app.idempotency import key_of
from app.item_object import item_object
from app.keys import MANAGER, OWNER
from app.openai.compaction import compact
from app.openai.paging import page_of
from app.openai.response_request import ResponseBody, parse_input, parse_response
from app.openai.response_socket import response_socket
from app.openai.response_turns import Place, ResponseTurns, attached
from app.parsing import integer_of, read_body, read_object, truth_of
from app.peer import beside, closing, until_gone
from app.protocol import EmptyBody
from app.representation import event_object
from app.response_object import turn_object
from app.sse import named_event, serve_sse
from sessions.types import Turn, TurnEnded, TurnEvent, TurnId

_PATH = "/v1/responses"


def routes() -> list[web.RouteDef]:
    """The routes of responses; a `GET` without an id opens a websocket."""
    one = _PATH + "/{response}"
    return [
        web.get(_PATH, response_socket),
        web.post(_PATH, create),
        web.post(_PATH + "/input_tokens", count),
        web.post(_PATH + "/compact", compact),
        web.get(one, get),
        web.delete(one, delete),
        web.post(one + "/cancel", cancel),
        web.get(one + "/input_items", input_items),
    ]


async def create(request: web.Request) -> web.StreamResponse:
    """Make a response."""
    body = parse_response(await read_object(request))
    turns = ResponseTurns(request.app, request[OWNER])
    place = await turns.place_of(body)
    if not body.is_stored:
        return await _unstored(request, turns, body, place)
    key = key_of(request) if body.conversation is not None else None
    turn = await turns.submit(body, place, key)
    if body.is_background and not body.stream:
        return json_answer(turn_object(turn))
    manager, owner = request.app[MANAGER], request[OWNER]
    is_detached = body.is_background or key is not None
    reading = manager.read(owner, turn.id) if is_detached else attached(manager, owner, turn.id)
    return await _answer(request, reading, is_streamed=bool(body.stream))


async def _unstored(
    request: web.Request, turns: ResponseTurns, body: ResponseBody, place: Place
) -> web.StreamResponse:
    events = await turns.stream(body, place)
    return await _answer(request, events, is_streamed=bool(body.stream))


async def _answer(
    request: web.Request, reading: AsyncIterator[tuple[int, TurnEvent]], *, is_streamed: bool
) -> web.StreamResponse:
    """Answer with the events, or with the response once it has ended."""
    if is_streamed:
        return await serve_sse(request, _written(reading))
    async with beside(until_gone(request)), closing(reading) as events:
        async for _, event in events:
            if isinstance(event, TurnEnded):
                return json_answer(turn_object(event.turn))
    raise AssertionError("a response ended without its last event")


async def _written(
    reading: AsyncIterator[tuple[int, TurnEvent]],
) -> AsyncGenerator[bytes, None]:
    async with closing(reading) as events:
        async for number, event in events:
            yield named_event(event_object(number, event))


async def count(request: web.Request) -> web.Response:
    """Count the tokens that a response's prompt would have."""
    body = parse_input(await read_object(request))
    turns = ResponseTurns(request.app, request[OWNER])
    place = await turns.place_of(body)
    num_tokens = await turns.num_tokens(body, place)
    return json_answer({"object": "response.input_tokens", "input_tokens": num_tokens})


async def get(request: web.Request) -> web.StreamResponse:
    """Show a response, or its events after a cursor and then live ones; log probabilities if they
    were asked for when it was made."""
    after = integer_of(request, "starting_after", -1, minimum=-1, maximum=2**53)
    turn = await _turn_of(request)
    if truth_of(request, "stream"):
        reading = request.app[MANAGER].read(request[OWNER], turn.id, after=after)
        return await serve_sse(request, _written(reading))
    return json_answer(turn_object(turn))


async def delete(request: web.Request) -> web.Response:
    """Have a response found no more; what follows it keeps its words."""
    response_id = TurnId(request.match_info["response"])
    await request.app[MANAGER].delete_turn(request[OWNER], response_id)
    return json_answer({"id": response_id, "object": "response", "deleted": True})


async def cancel(request: web.Request) -> web.Response:
    """Stop a response; answers when it has ended."""
    await read_body(request, EmptyBody)
    turn_id = TurnId(request.match_info["response"])
    return json_answer(turn_object(await request.app[MANAGER].cancel(request[OWNER], turn_id)))


async def input_items(request: web.Request) -> web.Response:
    """List the items that were put in with a response."""
    turn = await _turn_of(request)
    return json_answer(page_of(request, [item_object(item) for item in turn.input_items]))


async def _turn_of(request: web.Request) -> Turn:
    turn_id = TurnId(request.match_info["response"])
    return await request.app[MANAGER].turn(request[OWNER], turn_id)
