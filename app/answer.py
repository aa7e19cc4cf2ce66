"""Answers that are written at once: JSON, always by the same writer."""

from collections.abc import Mapping
from typing import Any

import orjson
from aiohttp import web


def json_answer(
    body: dict[str, Any], *, status: int = 200, headers: Mapping[str, str] | None = None
) -> web.Response:
    """Answer with JSON."""
    return web.Response(
        status=status,
        body=orjson.dumps(body),
        content_type="application/json",
        headers=headers,
    )
