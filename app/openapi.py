"""`/openapi.json`: the API as OpenAPI 3.1, made from the routes and the models that check them.

Every route of the server is in it by itself, with its handler's own sentence; `_KNOWN` adds what a
route alone doesn't tell. OpenAPI has no words for a websocket's frames, so they are named at its
address under `x-frames`. Built once, when the server starts.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
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
from app.openai.chat_request import ChatBody
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

Json = dict[str, Any]

PATH: Final = "/openapi.json"
DOCUMENT: web.AppKey[Json] = web.AppKey("openapi", dict)

_OPEN: Final = frozenset({"/healthz", "/readyz", PATH})
_REF = "#/components/schemas/{model}"
_ERRORS: Final = {"$ref": "#/components/responses/Error"}

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
    "ClientFrame": Annotated[Frame, Field(discriminator="type")],
    "ServerFrame": ServerFrame,
    "TurnEvent": TurnEventAnswer,
    "Session": SessionAnswer,
    "SessionList": SessionList,
    "Turn": TurnAnswer,
    "TurnList": TurnList,
    "HitList": HitList,
    "Deleted": DeletedAnswer,
    "Ticket": TicketAnswer,
    "Warmed": WarmedAnswer,
    "Parked": ParkedAnswer,
    "Tables": TablesAnswer,
    "Cache": CacheAnswer,
    "Verified": VerifiedAnswer,
    "Collected": CollectedAnswer,
    "Error": ErrorAnswer,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Known:
    """What is known of a call beyond its route: component names, the status, queries."""

    body: str | None = None
    answer: str | None = None
    status: int = 200
    stream: str | None = None
    query: tuple[tuple[str, Json], ...] = ()


_PAGE: Final = (
    ("limit", {"type": "integer", "minimum": 1, "maximum": 100, "default": 20}),
    ("after", {"type": "string"}),
    ("order", {"enum": ["asc", "desc"], "default": "desc"}),
)
_FILTERS: Final = (
    ("q", {"type": "string"}),
    ("pinned", {"type": "boolean"}),
    ("pinned_first", {"type": "boolean", "default": False}),
)
_CURSOR: Final = (
    ("stream", {"type": "boolean", "default": False}),
    ("starting_after", {"type": "integer", "minimum": -1, "default": -1}),
)
_SESSION: Final = "/v1/sessions/{session}"
_TURN: Final = _SESSION + "/turns/{turn}"

_KNOWN: Final[dict[tuple[str, str], _Known]] = {
    ("POST", "/v1/sessions"): _Known(body="SessionBody", answer="Session", status=201),
    ("GET", "/v1/sessions"): _Known(answer="SessionList", query=(*_PAGE, *_FILTERS)),
    ("GET", _SESSION): _Known(answer="Session"),
    ("PATCH", _SESSION): _Known(body="SessionPatch", answer="Session"),
    ("DELETE", _SESSION): _Known(answer="Deleted"),
    ("POST", _SESSION + "/restore"): _Known(body="EmptyBody", answer="Session"),
    ("POST", _SESSION + "/head"): _Known(body="HeadBody", answer="Session"),
    ("POST", "/v1/sessions/import"): _Known(body="SessionFile", answer="Session", status=201),
    ("GET", _SESSION + "/export"): _Known(
        query=(("format", {"enum": ["json", "markdown"], "default": "json"}),)
    ),
    ("GET", "/v1/search"): _Known(
        answer="HitList", query=(("q", {"type": "string", "minLength": 1}), *_PAGE[:2])
    ),
    ("POST", _SESSION + "/fork"): _Known(body="ForkBody", answer="Session", status=201),
    ("GET", _SESSION + "/turns"): _Known(
        answer="TurnList", query=(("all", {"type": "boolean", "default": False}),)
    ),
    ("POST", _SESSION + "/turns"): _Known(body="TurnBody", answer="Turn", stream="TurnEvent"),
    ("GET", _TURN): _Known(answer="Turn", stream="TurnEvent", query=_CURSOR),
    ("POST", _TURN + "/cancel"): _Known(body="EmptyBody", answer="Turn"),
    ("POST", _TURN + "/regenerate"): _Known(
        body="RegenerateBody", answer="Turn", stream="TurnEvent"
    ),
    ("POST", _TURN + "/continue"): _Known(body="ContinueBody", answer="Turn", stream="TurnEvent"),
    ("POST", _SESSION + "/warm"): _Known(body="WarmBody", answer="Warmed"),
    ("POST", _SESSION + "/park"): _Known(body="ParkBody", answer="Parked"),
    ("GET", _SESSION + "/kv"): _Known(answer="Tables"),
    ("GET", "/v1/cache"): _Known(answer="Cache"),
    ("POST", "/v1/cache/verify"): _Known(body="EmptyBody", answer="Verified"),
    ("POST", "/v1/cache/collect"): _Known(body="EmptyBody", answer="Collected"),
    ("POST", "/v1/chat/completions"): _Known(body="ChatBody"),
    ("POST", "/v1/ws-tickets"): _Known(body="EmptyBody", answer="Ticket", status=201),
}


def known_calls() -> frozenset[tuple[str, str]]:
    """The calls that `_KNOWN` describes."""
    return frozenset(_KNOWN)


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
    known = _KNOWN.get((route.method, path), _Known())
    operation: Json = {
        "operationId": re.sub(r"\W+", "_", f"{route.method.lower()}{path}").strip("_"),
        "summary": (route.handler.__doc__ or path).strip().partition("\n")[0],
        "responses": {**_answers(known, path), **_refusals(route.method, known, path)},
    }
    parameters = [_parameter(name, "path", {"type": "string"}) for name in _names_in(path)]
    parameters += [_parameter(name, "query", schema) for name, schema in known.query]
    if parameters:
        operation["parameters"] = parameters
    if known.body is not None:
        is_needed = any(f.is_required() for f in _MODELS[known.body].model_fields.values())
        operation["requestBody"] = {"required": is_needed, **_json(known.body)}
    if path not in _OPEN:
        operation["security"] = [{"key": []}]
    if path == "/v1/ws":
        client, server = _ref("ClientFrame"), _ref("ServerFrame")
        operation["x-frames"] = {"client": client, "server": server}
    return operation


def _answers(known: _Known, path: str) -> Json:
    if path == "/v1/ws":
        return {"101": {"description": "The websocket is open"}}
    answer: Json = {"description": "Done"}
    if known.answer is not None:
        answer |= _json(known.answer)
    if known.stream is not None:
        answer["content"]["text/event-stream"] = {"schema": _server_sent(known.stream)}
    return {str(known.status): answer}


def _refusals(method: str, known: _Known, path: str) -> Json:
    """The statuses of errors that the call may answer with."""
    statuses = {403, 500, 503}
    if path not in _OPEN:
        statuses |= {401, 429}
    if known.query or known.body or "{" in path:
        statuses.add(400)
    if "{" in path or known.body == "ChatBody":  # which may name a model
        statuses.add(404)
    if method != "GET":
        statuses |= {409, 413}
    if path == "/v1/ws":
        statuses |= {400, 426}
    answers = {str(status): _ERRORS for status in sorted(statuses)}
    if path == "/readyz":
        answers["503"] = {"description": "Not ready; the body says why"}
    return answers


def _server_sent(name: str) -> Json:
    """Each event of a stream; the last one's data is `[DONE]`."""
    data = {"type": "string", "contentMediaType": "application/json", "contentSchema": _ref(name)}
    event = {"event": {"type": "string"}, "data": data}
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
