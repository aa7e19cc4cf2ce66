"""Requests with their retries, and streams of events that survive a lost connection.

Only what may safely be sent twice is sent twice: reads, deletions, turns, which the server
recognises by their `client_turn_id`, and what carries an idempotency key. Anything else is sent
again only when the server says (429, 503) that it did nothing.
"""

import asyncio
import contextlib
import random
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

import aiohttp

from splice.endpoint import Endpoint
from splice.errors import APIStatusError, ConnectionLostError
from splice.events import TERMINAL, Event, SseParser, TurnEvent, parse_event
from splice.json_value import Json
from splice.refusal import read_refusal, refusal_in_stream

KEY_HEADER = "Idempotency-Key"

_CONNECT_S = 5.0
# A stream is never silent for long: the server sends comments while nothing else happens.
_STREAM_SILENCE_S = 60.0
_FIRST_DELAY_S = 0.5
_LONGEST_DELAY_S = 8.0
_LONGEST_ASKED_DELAY_S = 60.0
_DID_NOTHING = (429, 503)
_BROKEN = (aiohttp.ClientError, asyncio.TimeoutError, ConnectionError)


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One call. `is_repeatable` says that sending it twice does no more than sending it once, be
    it because the server knows it again by its `idempotency_key`."""

    method: str
    path: str
    body: Json | None = None
    query: Mapping[str, str] | None = None
    is_repeatable: bool = True
    idempotency_key: str | None = None

    @property
    def headers(self) -> dict[str, str]:
        """What it carries beside the endpoint's own."""
        key = self.idempotency_key
        return {} if key is None else {KEY_HEADER: key}


@dataclass(slots=True, kw_only=True)
class _Progress:
    """How far the reading of one turn has come."""

    last: int
    turn_id: str = ""
    is_ended: bool = False

    def note(self, event: Event) -> None:
        self.last = event.sequence_number
        if isinstance(event, TurnEvent):
            self.turn_id = event.turn.id
            self.is_ended = event.is_end

    def is_old(self, raw: Json) -> bool:
        """Whether an event came before. An end is taken whatever its number: a server that was
        killed may have kept less of a reply than it had shown, and ends behind what was kept."""
        number: int = raw.get("sequence_number", self.last + 1)
        return number <= self.last and raw["type"] not in TERMINAL


class Transport:
    """One connection pool to one server."""

    def __init__(
        self, endpoint: Endpoint, *, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    ) -> None:
        self.endpoint = endpoint
        self._sleep = sleep
        self._http: aiohttp.ClientSession | None = None

    async def close(self) -> None:
        """Close every connection; the transport can't be used afterwards."""
        if self._http is not None:
            await self._http.close()

    async def call(self, request: Request) -> Any:  # noqa: ANN401 (any JSON)
        """The answer's JSON. Raises APIStatusError and ConnectionLostError."""
        response = await self._answered(request)
        try:
            return await response.json()
        except (aiohttp.ContentTypeError, ValueError) as exc:
            message = f"{self.endpoint.base_url} answers, but is no Splice: {exc}"
            raise ConnectionLostError(message) from exc

    async def text(self, request: Request) -> str:
        """The answer's text. Raises as `call` does."""
        return await (await self._answered(request)).text()

    async def _answered(self, request: Request) -> aiohttp.ClientResponse:
        """The answer, read whole, as soon as there is one that is no refusal."""
        attempt = 0
        while True:
            try:
                async with self._open(request, self.endpoint.timeout_s) as response:
                    await response.read()
                    return response
            except APIStatusError as exc:
                is_safe = request.is_repeatable or exc.status in _DID_NOTHING
                if attempt >= self.endpoint.max_retries or not (exc.retryable and is_safe):
                    raise
                await self._pause(attempt, exc.retry_after_s)
            except _BROKEN as exc:
                # A connection that was never made carried nothing.
                is_safe = request.is_repeatable or isinstance(exc, aiohttp.ClientConnectorError)
                if attempt >= self.endpoint.max_retries or not is_safe:
                    raise self._lost(exc) from exc
                await self._pause(attempt)
            attempt += 1

    async def events(
        self, start: Request, resume: Callable[[str, int], Request], last: int = -1
    ) -> AsyncGenerator[Event, None]:
        """The events of one turn after the number `last`, each once and in order, up to its end.

        `start` must be repeatable; once the turn is known, a broken stream goes on with
        `resume(turn_id, last sequence number)`. Retries count anew when an event has arrived.
        """
        progress = _Progress(last=last)
        failures = 0
        while not progress.is_ended:
            before = progress.last
            request = resume(progress.turn_id, before) if progress.turn_id else start
            problem: Exception = ConnectionLostError("the stream ended before the turn did")
            delay_s = None
            try:
                async with contextlib.aclosing(self._arriving(request, progress)) as arriving:
                    async for event in arriving:
                        yield event
            except APIStatusError as exc:
                if not exc.retryable:
                    raise
                problem, delay_s = exc, exc.retry_after_s
            except _BROKEN as exc:
                problem = self._lost(exc)
            if progress.is_ended:
                return
            failures = 1 if progress.last > before else failures + 1
            if failures > self.endpoint.max_retries:
                raise problem
            await self._pause(failures - 1, delay_s)

    async def _arriving(
        self, request: Request, progress: "_Progress"
    ) -> AsyncGenerator[Event, None]:
        """What one connection brings that is new; ends early where something was lost."""
        parser = SseParser()
        async with self._open(request, _STREAM_SILENCE_S) as response:
            async for chunk in response.content.iter_any():
                for raw in parser.feed(chunk):
                    if raw.get("type") == "error":
                        raise refusal_in_stream(raw, response.headers.get("x-request-id"))
                    if progress.is_old(raw):
                        continue
                    event = parse_event(raw, progress.last)
                    if event.sequence_number > progress.last + 1:
                        return
                    progress.note(event)
                    yield event

    @contextlib.asynccontextmanager
    async def _open(
        self, request: Request, silence_s: float
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        if self._http is None:
            # Made here because aiohttp wants a running loop. Each stream takes a connection as long
            # as it lasts: with a limit many of them would keep out the call that stops one.
            self._http = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0), headers=self.endpoint.sent_headers
            )
        async with self._http.request(
            request.method,
            self.endpoint.base_url + request.path,
            json=request.body,
            params=request.query,
            headers=request.headers,
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_S, sock_read=silence_s),
        ) as response:
            if response.status >= 400:
                raise await read_refusal(response)
            yield response

    async def _pause(self, attempt: int, asked_s: float | None = None) -> None:
        if asked_s is not None:
            delay_s = min(asked_s, _LONGEST_ASKED_DELAY_S)
        else:
            delay_s = min(_LONGEST_DELAY_S, _FIRST_DELAY_S * 2**attempt)
        # Spread, so that clients that were refused together don't come back together.
        await self._sleep(delay_s * random.uniform(1.0, 1.25))

    def _lost(self, exc: BaseException) -> ConnectionLostError:
        base_url = self.endpoint.base_url
        return ConnectionLostError(f"no answer from {base_url}: {exc or type(exc).__name__}")
