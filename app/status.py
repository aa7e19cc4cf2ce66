"""How the server is: alive, ready, counted, and what its cache holds."""

import asyncio
from contextlib import suppress
from typing import Final

from aiohttp import web

from app.answer import json_answer
from app.errors import DOMAIN_ERRORS
from app.keys import CONFIG, ENGINE, MANAGER, METRICS, READINESS, SWEEPER
from app.parsing import read_body
from app.protocol import EmptyBody
from app.tier_representation import cache_object
from model.messages import EngineStats
from sessions.errors import SessionsError

STORE_ANSWERS_WITHIN_S: Final = 1.0


def routes() -> list[web.RouteDef]:
    """The status routes."""
    return [
        web.get("/healthz", healthz),
        web.get("/health", healthz),  # as other servers call it
        web.get("/readyz", readyz),
        web.get("/version", version),
        web.get("/metrics", metrics),
        web.get("/v1/cache", cache),
        web.post("/v1/cache/verify", verify),
        web.post("/v1/cache/collect", collect),
    ]


async def healthz(request: web.Request) -> web.Response:
    """Answer as long as the event loop runs."""
    return json_answer({"status": "ok"})


async def version(request: web.Request) -> web.Response:
    """Say which version of the server this is."""
    return json_answer({"version": request.app[CONFIG].version})


async def readyz(request: web.Request) -> web.Response:
    """Say whether replies can be begun; 503 with the state and its reason while not."""
    readiness, state = request.app[READINESS], request.app[ENGINE].state
    is_ready, report = readiness.is_ready(state), readiness.report(state)
    if is_ready and (trouble := await _trouble_with_the_store(request)) is not None:
        is_ready, report = False, {"state": "store_unavailable", "detail": trouble}
    body = {"status": "ready" if is_ready else "unready", **report}
    headers = {} if is_ready else {"Retry-After": "1"}
    return json_answer(body, status=200 if is_ready else 503, headers=headers)


async def _trouble_with_the_store(request: web.Request) -> str | None:
    """Why no turn could be stored now; a probe must have its answer soon."""
    try:
        async with asyncio.timeout(STORE_ANSWERS_WITHIN_S):
            await request.app[MANAGER].catalog.check_store()
    except TimeoutError:
        return "the database does not answer"
    except SessionsError:
        return "the database can't be read"
    return None


async def metrics(request: web.Request) -> web.Response:
    """Write Prometheus' text; without the engine's part while the engine is away."""
    engine = request.app[ENGINE]
    stats: EngineStats | None = None
    is_ready = request.app[READINESS].is_ready(engine.state)
    if engine.state == "ready":
        with suppress(*DOMAIN_ERRORS):
            stats = await engine.stats()
    body = request.app[METRICS].render(
        num_active=request.app[MANAGER].num_active,
        is_ready=is_ready,
        engine=stats,
        warming=request.app[MANAGER].presence.ledger.stats(),
    )
    content_type = "text/plain; version=0.0.4; charset=utf-8"
    return web.Response(body=body, headers={"Content-Type": content_type})


async def cache(request: web.Request) -> web.Response:
    """Show the block pool."""
    engine = request.app[ENGINE]
    return json_answer(cache_object(engine.info, await engine.stats()))


async def verify(request: web.Request) -> web.Response:
    """Read all that the tiers have, and drop what is damaged; answered when it is done."""
    await read_body(request, EmptyBody)
    num_lost = await request.app[ENGINE].verify()
    return json_answer({"object": "cache.verified", "num_lost": num_lost})


async def collect(request: web.Request) -> web.Response:
    """Remove what no session has any more, and what other models left behind."""
    await read_body(request, EmptyBody)
    num_released = await request.app[SWEEPER].reconcile()
    num_folders = await request.app[ENGINE].collect()
    return json_answer(
        {"object": "cache.collected", "num_released": num_released, "num_folders": num_folders}
    )
