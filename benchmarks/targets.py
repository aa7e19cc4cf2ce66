"""Whom a workload is sent to: Splice's session API, or anybody's OpenAI chat completions."""

import json
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any, Protocol

import aiohttp

from splice import AsyncClient, AsyncSession, MetricsEvent, TextDelta


@dataclass(slots=True)
class TurnTimes:
    """One reply, in seconds on the client's clock; `token_s` are the arrivals of its pieces.

    `num_prompt` counts the whole prompt's tokens, `num_cached` those of them that were reused, and
    None where the server doesn't say.
    """

    sent_s: float
    token_s: list[float] = field(default_factory=list)
    text: str = ""
    num_prompt: int = 0
    num_tokens: int = 0
    num_cached: int | None = None

    @property
    def first_token_s(self) -> float:
        """From sending to the first piece."""
        return self.token_s[0] - self.sent_s

    @property
    def inter_token_s(self) -> float:
        """The mean between pieces, by tokens: several may come at once."""
        return (self.token_s[-1] - self.token_s[0]) / max(1, self.num_tokens - 1)


class Chat(Protocol):
    """One conversation with a target."""

    async def say(self, text: str, reply_tokens: int) -> TurnTimes:
        """Send a message and read the whole reply."""
        ...


class Target(Protocol):
    """A server under measurement."""

    async def begin(self, system: str) -> Chat:
        """A conversation with that system prompt."""
        ...

    async def close(self) -> None:
        """Let go of its connections."""
        ...


class SessionTarget:
    """Splice through its session API: only the new message is sent."""

    def __init__(self, url: str) -> None:
        self._client = AsyncClient(url)

    async def begin(self, system: str) -> Chat:
        """Open a session."""
        return _SessionChat(await self._client.sessions.create(instructions=system))

    async def close(self) -> None:
        """Close the client."""
        await self._client.close()


@dataclass(slots=True)
class _SessionChat:
    session: AsyncSession

    async def say(self, text: str, reply_tokens: int) -> TurnTimes:
        times = TurnTimes(time.perf_counter())
        stream = self.session.stream(
            text, max_output_tokens=reply_tokens, temperature=0.0, ignore_eos=True
        )
        async for event in stream:
            if isinstance(event, TextDelta):
                times.token_s.append(time.perf_counter())
                times.text += event.delta
            elif isinstance(event, MetricsEvent):
                times.num_prompt = event.metrics.input_tokens
                times.num_tokens = event.metrics.output_tokens
                times.num_cached = event.metrics.reused
        return times


class CompletionsTarget:
    """Anybody's `/v1/chat/completions`, streamed; the whole history is sent every time. `opening`
    goes before each system prompt, so that two targets on one server have no history in common."""

    def __init__(self, url: str, opening: str = "") -> None:
        self._url = url.rstrip("/")
        self._opening = opening
        # A connection a request, for all alike: some servers drop theirs behind a reply untold.
        self._http = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(force_close=True),
            timeout=aiohttp.ClientTimeout(total=None),
        )
        self._model: str | None = None

    async def begin(self, system: str) -> Chat:
        """A history with the system prompt."""
        if self._model is None:
            async with self._http.get(f"{self._url}/v1/models") as answer:
                self._model = (await answer.json())["data"][0]["id"]
        return _CompletionsChat(self, [{"role": "system", "content": self._opening + system}])

    async def close(self) -> None:
        """Close the connections."""
        await self._http.close()

    async def stream(
        self, messages: list[dict[str, str]], reply_tokens: int
    ) -> AsyncIterator[dict[str, Any]]:
        """The chunks of one reply. Raises RuntimeError with what the server says."""
        body = {
            "model": self._model,
            "messages": messages,
            "stream": True,
            "stream_options": {"include_usage": True},
            "max_tokens": reply_tokens,
            "temperature": 0.0,
            # Not OpenAI's: replies are of one length wherever it is known.
            "ignore_eos": True,
        }
        async with self._http.post(f"{self._url}/v1/chat/completions", json=body) as answer:
            if answer.status != 200:
                raise RuntimeError(f"{self._url}: {answer.status} {await answer.text()}")
            async for line in answer.content:
                data = line.decode().strip().removeprefix("data:").strip()
                if data.startswith("{"):
                    yield json.loads(data)


@dataclass(slots=True)
class _CompletionsChat:
    target: CompletionsTarget
    messages: list[dict[str, str]]

    async def say(self, text: str, reply_tokens: int) -> TurnTimes:
        self.messages.append({"role": "user", "content": text})
        times = TurnTimes(time.perf_counter())
        async for chunk in self.target.stream(self.messages, reply_tokens):
            for choice in chunk.get("choices", ()):
                if piece := (choice.get("delta") or {}).get("content"):
                    times.token_s.append(time.perf_counter())
                    times.text += piece
            if usage := chunk.get("usage"):
                times.num_prompt = usage["prompt_tokens"]
                times.num_tokens = usage["completion_tokens"]
                details = usage.get("prompt_tokens_details") or {}
                times.num_cached = details.get("cached_tokens")
        self.messages.append({"role": "assistant", "content": times.text})
        return times
