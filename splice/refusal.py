"""What the server says when it refuses: an answer's status and headers, or an event of a stream."""

import contextlib
from collections.abc import Mapping
from typing import Any

import aiohttp

from splice.errors import APIStatusError, error_class
from splice.json_value import Json

_USUALLY_RETRYABLE = (408, 429, 502, 503, 504)


async def read_refusal(response: aiohttp.ClientResponse) -> APIStatusError:
    """The error that an answer of status 400 or above stands for."""
    try:
        body: object = await response.json(content_type=None)
    except ValueError:
        body = None
    headers = response.headers
    refusal = _refusal(response.status, body, response.reason, headers.get("x-request-id"))
    said = headers.get("x-should-retry")
    refusal.retryable = said == "true" if said is not None else refusal.retryable
    refusal.retry_after_s = _asked_delay_s(headers)
    return refusal


def refusal_in_stream(event: Json, request_id: str | None) -> APIStatusError:
    """The error that an `error` event stands for, in a stream that had begun well."""
    status = event.get("status")
    return _refusal(status if isinstance(status, int) else 500, event, None, request_id)


def _refusal(
    status: int, body: object, reason: str | None, request_id: str | None
) -> APIStatusError:
    error = body.get("error") if isinstance(body, Mapping) else None
    facts: Mapping[str, Any] = error if isinstance(error, Mapping) else {}
    return error_class(status)(
        str(facts.get("message") or reason or "refused"),
        status=status,
        code=facts.get("code"),
        param=facts.get("param"),
        request_id=request_id,
        retryable=status in _USUALLY_RETRYABLE,
    )


def _asked_delay_s(headers: Mapping[str, str]) -> float | None:
    """When to come back; a date, which HTTP allows as well, says nothing here."""
    for name, unit_s in (("retry-after-ms", 0.001), ("Retry-After", 1.0)):
        with contextlib.suppress(ValueError):
            return max(0.0, float(headers.get(name, "")) * unit_s)
    return None
