"""`/v1/models`: the one model that is loaded, and the other names it answers to."""

from typing import Any

from aiohttp import web

from app.answer import json_answer
from app.config import AppConfig
from app.errors import RequestError
from app.keys import CONFIG, ENGINE, STARTED_AT
from app.representation import list_object
from model.messages import EngineInfo

_SHOWN_CHARS = 128


def routes() -> list[web.RouteDef]:
    """The routes of models; an id may have slashes."""
    return [web.get("/v1/models", list_models), web.get("/v1/models/{model:.+}", get)]


async def list_models(request: web.Request) -> web.Response:
    """List the model and its aliases."""
    return json_answer(list_object(_models(request)))


async def get(request: web.Request) -> web.Response:
    """Show one of them."""
    name = request.match_info["model"]
    for model in _models(request):
        if model["id"] == name:
            return json_answer(model)
    raise model_not_found(name, param=None)


def is_served(name: str, config: AppConfig, info: EngineInfo) -> bool:
    """Tell whether a name means the loaded model."""
    return name == info.model_id or name in config.model_aliases


def model_not_found(name: str, *, param: str | None) -> RequestError:
    """The error of a name that means nothing here."""
    message = f"there is no model {name[:_SHOWN_CHARS]!r} here; GET /v1/models lists what there is"
    return RequestError("model_not_found", message, param=param)


def _models(request: web.Request) -> list[dict[str, Any]]:
    config, info = request.app[CONFIG], request.app[ENGINE].info
    aliases = [name for name in config.model_aliases if name != info.model_id]
    names = [(info.model_id, "local"), *((name, f"alias:{info.model_id}") for name in aliases)]
    return [
        {
            "id": name,
            "object": "model",
            "created": request.app[STARTED_AT],
            "owned_by": owner,
            "max_model_len": info.max_context_tokens,
            "context_length": info.max_context_tokens,
        }
        for name, owner in names
    ]
