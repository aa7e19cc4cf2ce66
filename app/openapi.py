"""`/openapi.json`: the API as OpenAPI 3.1, made from the routes and the models that check them.

Every route of the server is in it by itself, with its handler's own sentence; `CALLS` adds what a
route alone doesn't tell. OpenAPI has no words for a websocket's frames, so they are named at its
address under `x-frames`. Built once, when the server starts.
"""

import re
from collections.abc import Iterable
from typing import Annotated, Any, Final

from aiohttp import web
from pydantic import Field, TypeAdapter

from app.answer import json_answer
from app.answer_schemas import (
    DeletedAnswer,
    ErrorAnswer,
    HitList,
    ServerFrame,
    SessionAnswer,
    SessionList,
    TicketAnswer,
    TurnAnswer,
    TurnEventAnswer,
    TurnList,
)
from app.cache_schemas import (
    CacheAnswer,
    CollectedAnswer,
    ParkedAnswer,
    TablesAnswer,
    VerifiedAnswer,
    WarmedAnswer,
)
from app.idempotency import HEADER
from app.item_schemas import AnyItem
from app.openai.answer_schemas import (
    CompactedAnswer,
    ConversationAnswer,
    DeletedConversationAnswer,
    DeletedResponseAnswer,
    InputTokensAnswer,
    ItemList,
    ResponseServerFrame,
)
from app.openai.chat_request import ChatBody
from app.openai.conversations import ConversationBody, ConversationChange, ItemsBody
from app.openai.legacy import CompletionBody
from app.openai.response_request import InputBody, ResponseBody
from app.openai.response_socket import ResponseFrame
from app.openapi_calls import CALLS, Call
from app.protocol import (
    ContinueBody,
    EmptyBody,
    ForkBody,
    Frame,
    HeadBody,
    ParkBody,
    RegenerateBody,
    SessionBody,
    SessionPatch,
    TurnBody,
    WarmBody,
)
from app.transfer import SessionFile
from sessions.validation import MAX_CLIENT_TURN_ID_CHARS

Json = dict[str, Any]

PATH: Final = "/openapi.json"
DOCUMENT: web.AppKey[Json] = web.AppKey("openapi", dict)

_OPEN: Final = frozenset({"/health", "/healthz", "/readyz", "/version", PATH})
_REF = "#/components/schemas/{model}"
_ERRORS: Final = {"$ref": "#/components/responses/Error"}

_KEY: Final = {"type": "string", "maxLength": MAX_CLIENT_TURN_ID_CHARS}

_NAME_A_MODEL: Final = frozenset({"ChatBody", "CompletionBody", "ResponseBody", "InputBody"})

# The names are the components' own.
_MODELS: Final[dict[str, Any]] = {
    "SessionBody": SessionBody,
    "SessionPatch": SessionPatch,
    "SessionFile": SessionFile,
    "TurnBody": TurnBody,
    "RegenerateBody": RegenerateBody,
    "ContinueBody": ContinueBody,
    "HeadBody": HeadBody,
    "ForkBody": ForkBody,
    "EmptyBody": EmptyBody,
    "WarmBody": WarmBody,
    "ParkBody": ParkBody,
    "ChatBody": ChatBody,
    "ResponseBody": ResponseBody,
    "InputBody": InputBody,
    "ConversationBody": ConversationBody,
    "ConversationChange": ConversationChange,
    "ItemsBody": ItemsBody,
    "ResponseClientFrame": Annotated[ResponseFrame, Field(discriminator="type")],
    "ResponseServerFrame": ResponseServerFrame,
    "CompletionBody": CompletionBody,
    "ClientFrame": Annotated[Frame, Field(discriminator="type")],
    "ServerFrame": ServerFrame,
    "TurnEvent": TurnEventAnswer,
    "Session": SessionAnswer,
    "SessionList": SessionList,
    "Turn": TurnAnswer,
    "TurnList": TurnList,
    "HitList": HitList,
    "Deleted": DeletedAnswer,
    "DeletedResponse": DeletedResponseAnswer,
    "DeletedConversation": DeletedConversationAnswer,
    "Conversation": ConversationAnswer,
    "Item": AnyItem,
    "ItemList": ItemList,
    "InputTokens": InputTokensAnswer,
    "Compacted": CompactedAnswer,
    "Ticket": TicketAnswer,
    "Warmed": WarmedAnswer,
    "Parked": ParkedAnswer,
    "Tables": TablesAnswer,
    "Cache": CacheAnswer,
    "Verified": VerifiedAnswer,
    "Collected": CollectedAnswer,
    "Error": ErrorAnswer,
}


def known_calls() -> frozenset[tuple[str, str]]:
    """The calls that `CALLS` describes."""
    return frozenset(CALLS)


async def openapi(request: web.Request) -> web.Response:
    """Describe the API."""
    return json_answer(request.app[DOCUMENT])


def document(routes: Iterable[web.RouteDef], *, base_path: str, version: str) -> Json:
    """Build the document of these routes."""
    paths: dict[str, Json] = {}
    for route in routes:
        path = re.sub(r"\{(\w+):[^}]*\}", r"{\1}", route.path)
        paths.setdefault(path, {})[route.method.lower()] = _operation(route, path)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Splice",
            "version": version,
            "description": "A chat server whose conversations stay in memory.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": base_path or "/"}],
        "paths": paths,
        "components": {
            "schemas": _schemas(),
            "responses": {"Error": {"description": "Refused, or failed", **_json("Error")}},
            "securitySchemes": {
                "key": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "Needed from the first key on: `splice keys create`.",
                }
            },
        },
    }


def _operation(route: web.RouteDef, path: str) -> Json:
    known = CALLS.get((route.method, path), Call())
    operation: Json = {
        "operationId": re.sub(r"\W+", "_", f"{route.method.lower()}{path}").strip("_"),
        "summary": (route.handler.__doc__ or path).strip().partition("\n")[0],
        "responses": {**_answers(known), **_refusals(route.method, known, path)},
    }
    parameters = [_parameter(name, "path", {"type": "string"}) for name in _names_in(path)]
    parameters += [_parameter(name, "query", schema) for name, schema in known.query]
    if known.is_keyed:
        parameters.append(_parameter(HEADER, "header", _KEY))
    if parameters:
        operation["parameters"] = parameters
    if known.body is not None:
        is_needed = any(f.is_required() for f in _MODELS[known.body].model_fields.values())
        operation["requestBody"] = {"required": is_needed, **_json(known.body)}
    if path not in _OPEN:
        operation["security"] = [{"key": []}]
    if known.frames is not None:
        client, server = known.frames
        operation["x-frames"] = {"client": _ref(client), "server": _ref(server)}
    return operation


def _answers(known: Call) -> Json:
    if known.frames is not None:
        return {"101": {"description": "The websocket is open"}}
    answer: Json = {"description": "Done"}
    if known.answer is not None:
        answer |= _json(known.answer)
    if known.stream is not None:
        answer["content"]["text/event-stream"] = {"schema": _server_sent(known.stream)}
    return {str(known.status): answer}


def _refusals(method: str, known: Call, path: str) -> Json:
    """The statuses of errors that the call may answer with."""
    statuses = {403, 500, 503}
    if path not in _OPEN:
        statuses |= {401, 429}
    if known.query or known.body or "{" in path:
        statuses.add(400)
    if "{" in path or known.body in _NAME_A_MODEL:
        statuses.add(404)
    if method != "GET":
        statuses |= {409, 413}
    if path == "/v1/ws":
        statuses |= {400, 426}
    elif known.frames is not None:
        statuses |= {400, 405}
    answers = {str(status): _ERRORS for status in sorted(statuses)}
    if path == "/readyz":
        answers["503"] = {"description": "Not ready; the body says why"}
    return answers


def _server_sent(name: str) -> Json:
    """Each event of a stream; the last one's data is `[DONE]`."""
    told = {"type": "string", "contentMediaType": "application/json", "contentSchema": _ref(name)}
    event = {"event": {"type": "string"}, "data": {"anyOf": [{"const": "[DONE]"}, told]}}
    return {"type": "object", "properties": event, "required": ["data"]}


def _parameter(name: str, place: str, schema: Json) -> Json:
    is_needed = place == "path" or schema.get("minLength", 0) > 0
    return {"name": name, "in": place, "required": is_needed, "schema": schema}


def _names_in(path: str) -> list[str]:
    return re.findall(r"\{(\w+)\}", path)


def _json(name: str) -> Json:
    return {"content": {"application/json": {"schema": _ref(name)}}}


def _ref(name: str) -> Json:
    return {"$ref": _REF.format(model=name)}


def _schemas() -> Json:
    adapters = [(name, "validation", TypeAdapter(kind)) for name, kind in _MODELS.items()]
    made, shared = TypeAdapter.json_schemas(adapters, ref_template=_REF)  # type: ignore[arg-type]
    schemas: Json = dict(shared.get("$defs", {}))
    for (name, _), schema in made.items():
        # A model used by another is among the shared ones, under the name of its class.
        if schema != _ref(str(name)):
            schemas[str(name)] = schema
    return schemas
