"""Completions as handlers see them: they replay what they are told."""

import asyncio
from contextlib import aclosing
from dataclasses import dataclass, field

from model.messages import (
    FinishReason,
    GenerationDelta,
    GenerationEvent,
    GenerationFinished,
    GenerationStarted,
)
from sessions.call_formats import HERMES
from sessions.completion_events import parse_generation
from sessions.reasoning import THINK
from sessions.reply_parser import ReplyParser, ReplyShape
from sessions.token_text import TokenText
from tests.support.fake_manager import CLAIM


@dataclass
class FakeCompletions:
    """Replays `script`; an exception in it is raised; `gate`, when set, holds before each delta."""

    script: list[GenerationEvent | Exception] = field(default_factory=list)
    gate: asyncio.Semaphore | None = None
    calls: list[tuple] = field(default_factory=list)
    began: asyncio.Event = field(default_factory=asyncio.Event)
    was_closed: asyncio.Event = field(default_factory=asyncio.Event)

    async def stream(self, owner, asked, *, request_id):
        self.calls.append((owner, asked, request_id))
        parser = ReplyParser(ReplyShape(form=HERMES, tags=THINK), asked.choice.of(asked.tools))
        async with aclosing(self._parsed(parser)) as events:
            async for event in events:
                yield event

    async def stream_raw(self, owner, prompt, params, *, request_id):
        self.calls.append((owner, prompt, params, request_id))
        parser = ReplyParser(ReplyShape(form=HERMES, tags=THINK), reasons=False)
        async with aclosing(self._parsed(parser)) as events:
            async for event in events:
                yield event

    async def raw_text(self, token_ids):
        return "".join(f"<{token_id}>" for token_id in token_ids)

    def _parsed(self, parser):
        spell = lambda ids: [TokenText(f"<{i}>", f"<{i}>".encode()) for i in ids]  # noqa: E731
        return parse_generation(self._replay(), parser, lambda _ids: "", spell)

    async def _replay(self):
        self.began.set()
        try:
            for event in self.script:
                if isinstance(event, Exception):
                    raise event
                if self.gate is not None and not isinstance(event, GenerationStarted):
                    await self.gate.acquire()
                yield event
        finally:
            self.was_closed.set()


def make_script(*texts: str, reason: FinishReason = FinishReason.STOP) -> list:
    """A whole generation that says these texts."""
    deltas = [GenerationDelta(token_ids=(index,), text=text) for index, text in enumerate(texts)]
    finished = GenerationFinished(
        reason=reason,
        token_ids=tuple(range(len(texts))),
        text="".join(texts),
        num_rows_computed=8 + len(texts),
    )
    return [GenerationStarted(claim=CLAIM), *deltas, finished]
