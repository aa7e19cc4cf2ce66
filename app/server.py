"""The web application from its collaborators: routes, guards, headers. No engine, no store."""

from dataclasses import dataclass

from aiohttp import web

from app import openapi, rest, status, tickets, transfer, turns
from app.config import AppConfig
from app.connections import CONNECTIONS, Connections
from app.keys import (
    COMPLETIONS,
    CONFIG,
    ENGINE,
    KEY_RING,
    MANAGER,
    METRICS,
    READINESS,
    STARTED_AT,
    TRACING,
    EngineView,
)
from app.metrics import AppMetrics
from app.middleware import MIDDLEWARES, set_headers
from app.openai import chat, conversations, legacy, models, responses
from app.page import Page
from app.place import below
from app.rate import RATE_LIMIT, RateLimit
from app.readiness import Readiness
from app.tickets import TICKETS, Tickets
from app.tracing import NOT_TRACED, Tracing
from app.websocket import websocket
from sessions.completions import Completions
from sessions.key_ring import KeyRing
from sessions.manager import SessionManager


@dataclass(frozen=True, slots=True, kw_only=True)
class Collaborators:
    """What the handlers work with; whoever builds them also closes them."""

    manager: SessionManager
    completions: Completions
    engine: EngineView
    readiness: Readiness
    key_ring: KeyRing
    tracing: Tracing = NOT_TRACED


def build_server(config: AppConfig, collaborators: Collaborators) -> web.Application:
    """Put the front end together."""
    app = web.Application(middlewares=MIDDLEWARES, client_max_size=config.max_body_bytes)
    app[CONFIG] = config
    app[MANAGER] = collaborators.manager
    app[COMPLETIONS] = collaborators.completions
    app[ENGINE] = collaborators.engine
    app[READINESS] = collaborators.readiness
    app[KEY_RING] = collaborators.key_ring
    app[TICKETS] = Tickets(config.clock)
    app[RATE_LIMIT] = RateLimit(config.owner_requests_per_minute, config.clock)
    app[TRACING] = collaborators.tracing
    app[METRICS] = AppMetrics()
    app[CONNECTIONS] = Connections()
    app[STARTED_AT] = int(config.clock().timestamp())
    app.on_response_prepare.append(set_headers)
    routes = api_routes()
    app[openapi.DOCUMENT] = openapi.document(
        routes, base_path=config.base_path, version=config.version
    )
    app.add_routes(below(config.base_path, [*routes, *Page(config.page_dir).routes()]))
    return app


def api_routes() -> list[web.RouteDef]:
    """Every route but the page's."""
    return [
        *status.routes(),
        *transfer.routes(),
        *rest.routes(),
        *turns.routes(),
        *tickets.routes(),
        *models.routes(),
        *chat.routes(),
        *responses.routes(),
        *conversations.routes(),
        *legacy.routes(),
        web.get("/v1/ws", websocket),
        web.get(openapi.PATH, openapi.openapi),
    ]


async def say_goodbye(app: web.Application) -> None:
    """Close every websocket, after what is queued for it. aiohttp waits for them."""
    app[CONNECTIONS].close_all()
