"""A client that keeps its history itself, and what it is answered, over the real engine core."""

import json
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from model.config import SamplingParams
from sessions.completion_events import CompletionFinished, CompletionRequest, CompletionStarted
from sessions.completions import Completions
from sessions.messages import InputMessage, ToolCall
from sessions.tools import Tool
from tests.support.chat import ANN
from tests.support.clock import FakeClock
from tests.support.core_engine import CoreEngine
from tests.support.templates import renderer_of, tokenizer_of


def split_to_letters(name: str, text: str) -> list[int]:
    """Ids that nobody would encode the text to: a token a character, but for added tokens."""
    tokenizer = tokenizer_of(name)
    added = sorted((t.content for t in tokenizer.added_tokens_decoder.values()), key=len)
    ids: list[int] = []
    while text:
        whole = next((word for word in reversed(added) if text.startswith(word)), text[:1])
        ids += tokenizer.encode(whole, add_special_tokens=False)
        text = text[len(whole) :]
    return ids


@dataclass
class Answer:
    """One turn: what came back, and what it cost."""

    started: CompletionStarted
    finished: CompletionFinished
    num_history: int
    num_prompt: int
    num_reused_rows: int

    @property
    def share(self) -> float:
        """Of the history's tokens, how many were not computed again."""
        return min(1.0, self.num_reused_rows / self.num_history)


@dataclass
class StatelessChat:
    """Sends everything each time, as text, and nothing that it was not sent."""

    name: str
    tools: tuple[Tool, ...] = ()
    messages: list[InputMessage] = field(default_factory=list)
    clock: FakeClock = field(default_factory=FakeClock)
    numbers: Any = field(default_factory=lambda: count(1))
    options: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.engine = CoreEngine(tokenizer_of(self.name))
        self.completions = Completions(engine=self.engine, clock=self.clock, **self.options)
        self.completions.use_renderer(renderer_of(self.name))
        self.log: list[int] = []

    async def ask(self, reply: str, *new: InputMessage, **fields: Any) -> Answer:
        """Send all of it and more; the model says `reply`."""
        self.messages += new
        self.clock.advance(100_000)  # another day
        number = next(self.numbers)
        ids = [*split_to_letters(self.name, reply), tokenizer_of(self.name).eos_token_id]
        self.engine.runner.replies[number] = ids
        before = self.engine.runner.num_rows
        asked = CompletionRequest(
            messages=tuple(self.messages),
            params=SamplingParams(seed=number, temperature=0.0),
            tools=self.tools,
            **fields,
        )
        events = [
            event async for event in self.completions.stream(ANN, asked, request_id=f"c{number}")
        ]
        prompt = list(self.engine.requests[-1].token_ids)
        num_rows = self.engine.runner.num_rows - before
        num_history, self.log = len(self.log), [*prompt, *ids]
        started, finished = events[0], events[-1]
        assert isinstance(started, CompletionStarted)
        assert isinstance(finished, CompletionFinished)
        assert started.claim.computed == num_rows - (len(ids) - 1)
        self._hear(finished, number)
        return Answer(
            started=started,
            finished=finished,
            num_history=num_history,
            num_prompt=len(prompt),
            num_reused_rows=len(prompt) - started.claim.computed,
        )

    def _hear(self, finished: CompletionFinished, number: int) -> None:
        """Keep what a client keeps: text and calls, through JSON, and no reasoning."""
        calls = tuple(
            ToolCall(
                id=f"call_{number}_{call.number}",
                name=call.name,
                arguments=json.dumps(json.loads(call.arguments), indent=1),
            )
            for call in finished.reply.calls
        )
        text = finished.reply.text.strip()
        self.messages.append(InputMessage(role="assistant", text=text, calls=calls))

    def results(self, text: str) -> tuple[InputMessage, ...]:
        """What the last reply's calls returned."""
        return tuple(
            InputMessage(role="tool", text=f"{text} {n}", call_id=call.id)
            for n, call in enumerate(self.messages[-1].calls)
        )
