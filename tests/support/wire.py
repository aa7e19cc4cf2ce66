"""A real server as a program sees it: plain HTTP, its streams, its counters."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
from prometheus_client.parser import text_string_to_metric_families

from splice.events import SseParser

Json = dict[str, Any]


class Wire:
    """One client of one server."""

    def __init__(self, http: aiohttp.ClientSession) -> None:
        self.http = http

    async def call(self, method: str, path: str, body: Json | None = None) -> Json:
        """The answer, which must be a success."""
        async with self.http.request(method, path, json=body) as answer:
            document: Json = await answer.json()
            assert answer.status < 300, document
            return document

    async def new_session(self, **fields: Any) -> str:
        """The id of a new session."""
        return str((await self.call("POST", "/v1/sessions", fields))["id"])

    async def say(self, session: str, text: str, **fields: Any) -> Json:
        """A turn, waited for to its end."""
        return await self.call("POST", f"/v1/sessions/{session}/turns", {"input": text, **fields})

    async def table(self, session: str, turn: str) -> Json:
        """The block table that a turn has parked."""
        tables = (await self.call("GET", f"/v1/sessions/{session}/kv"))["tables"]
        (table,) = [table for table in tables if table["response_id"] == turn]
        return dict(table)

    async def count(self, name: str) -> int:
        """A counter or gauge without labels, as `/metrics` has it now."""
        async with self.http.get("/metrics") as answer:
            families = text_string_to_metric_families(await answer.text())
        samples = [s for family in families for s in family.samples if s.name == name]
        assert len(samples) == 1, f"{name}: {samples}"
        return int(samples[0].value)


@asynccontextmanager
async def wired(url: str) -> AsyncIterator[Wire]:
    """A client of the server at an address."""
    async with aiohttp.ClientSession(url) as http:
        yield Wire(http)


def reply_of(turn: Json) -> str:
    """A turn's reply as text; empty when there is none."""
    return "".join(part["text"] for item in turn["output"] for part in item["content"])


async def events_of(answer: aiohttp.ClientResponse) -> AsyncIterator[Json]:
    """The events of an answer that streams."""
    parser = SseParser()
    async for chunk in answer.content.iter_any():
        for event in parser.feed(chunk):
            yield event
