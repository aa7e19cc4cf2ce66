"""Turns over REST: submit, read, cancel, regenerate; as JSON or as server-sent events.

A turn belongs to the session manager: a client that leaves stops reading it and nothing else.
"""

import asyncio
from collections.abc import AsyncGenerator

from aiohttp import web

from app.answer import json_answer
from app.keys import MANAGER, OWNER
from app.parsing import integer_of, read_body, truth_of
from app.peer import beside, closing, until_gone
from app.protocol import (
    ContinueBody,
    EmptyBody,
    RegenerateBody,
    TurnBody,
    more_tokens,
    session_params,
)
from app.representation import event_object, list_object
from app.response_object import turn_object
from app.rest import session_of
from app.sampling import default_params
from app.sse import named_event, serve_sse
from sessions.errors import TurnNotFoundError
from sessions.types import Turn, TurnEnded, TurnId


def routes() -> list[web.RouteDef]:
    """The routes of turns."""
    turns = "/v1/sessions/{session}/turns"
    return [
        web.get(turns, list_turns),
        web.post(turns, submit),
        web.get(turns + "/{turn}", get),
        web.post(turns + "/{turn}/cancel", cancel),
        web.post(turns + "/{turn}/regenerate", regenerate),
        web.post(turns + "/{turn}/continue", go_on),
    ]


async def list_turns(request: web.Request) -> web.Response:
    """List the turns of the head's branch, or of the whole tree."""
    turns = await request.app[MANAGER].turns(
        request[OWNER], session_of(request), whole_tree=truth_of(request, "all")
    )
    shown = await asyncio.to_thread(lambda: [turn_object(turn) for turn in turns])
    return json_answer(list_object(shown))


async def submit(request: web.Request) -> web.StreamResponse:
    """Begin a turn and answer with its events, or with the turn once it has ended."""
    body = await read_body(request, TurnBody)
    manager, owner = request.app[MANAGER], request[OWNER]
    session = await manager.get(owner, session_of(request))
    params = session_params(session, default_params(request.app))
    turn = await manager.submit(owner, session.id, body.to_request(params))
    return await _answer(request, turn, is_streamed=body.stream)


async def regenerate(request: web.Request) -> web.StreamResponse:
    """Begin a sibling of a turn, with the same input."""
    body = await read_body(request, RegenerateBody)
    turn = await _turn_of(request)
    sibling = await request.app[MANAGER].regenerate(
        request[OWNER],
        turn.id,
        params=body.to_params_again(turn.params),
        client_turn_id=body.client_turn_id,
    )
    return await _answer(request, sibling, is_streamed=body.stream)


async def go_on(request: web.Request) -> web.StreamResponse:
    """Go on with a reply that was cut, in a sibling of its turn."""
    body = await read_body(request, ContinueBody)
    manager, owner = request.app[MANAGER], request[OWNER]
    cut = await _turn_of(request)
    session = await manager.get(owner, cut.session_id)
    turn = await manager.go_on(
        owner,
        cut.id,
        max_more_tokens=more_tokens(session, body, default_params(request.app)),
        client_turn_id=body.client_turn_id,
    )
    return await _answer(request, turn, is_streamed=body.stream)


async def get(request: web.Request) -> web.StreamResponse:
    """Show a turn, or its events after a cursor and then live ones."""
    after = integer_of(request, "starting_after", -1, minimum=-1, maximum=2**53)
    turn = await _turn_of(request)
    if truth_of(request, "stream"):
        return await serve_sse(request, _events(request, turn, after))
    return json_answer(turn_object(turn))


async def cancel(request: web.Request) -> web.Response:
    """Stop a turn; answers when it has ended."""
    await read_body(request, EmptyBody)
    turn = await _turn_of(request)
    return json_answer(turn_object(await request.app[MANAGER].cancel(request[OWNER], turn.id)))


async def _turn_of(request: web.Request) -> Turn:
    """Find the turn that the address names, in the session that it names."""
    turn_id = TurnId(request.match_info["turn"])
    turn = await request.app[MANAGER].turn(request[OWNER], turn_id)
    if turn.session_id != session_of(request):
        raise TurnNotFoundError(f"this session has no turn {turn_id}")
    return turn


async def _answer(request: web.Request, turn: Turn, *, is_streamed: bool) -> web.StreamResponse:
    if is_streamed:
        return await serve_sse(request, _events(request, turn, -1))
    return json_answer(turn_object(await _ended(request, turn)))


async def _ended(request: web.Request, turn: Turn) -> Turn:
    """Wait for a turn's end, as long as somebody waits for the answer."""
    reading = request.app[MANAGER].read(request[OWNER], turn.id)
    async with beside(until_gone(request)), closing(reading) as events:
        async for _, event in events:
            if isinstance(event, TurnEnded):
                turn = event.turn
    return turn


async def _events(request: web.Request, turn: Turn, after: int) -> AsyncGenerator[bytes, None]:
    """Write a turn's events, from the one behind the cursor on."""
    reading = request.app[MANAGER].read(request[OWNER], turn.id, after=after)
    async with closing(reading) as events:
        async for number, event in events:
            yield named_event(event_object(number, event))
