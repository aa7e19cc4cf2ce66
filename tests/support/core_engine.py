"""The real engine core in the event loop: real tables, claims and rows, and replies as told.

What a slot of its cache holds stands for the whole prefix (`ShadowRunner`), and every token that is
sampled is held against the same prefix without a cache: a reply is only given if all blocks behind
it held exactly the right tokens.
"""

import asyncio
import math
from collections import defaultdict, deque
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from functools import reduce
from itertools import count

import torch
from transformers import PreTrainedTokenizerFast

from model.batch import BatchRow
from model.block_supply import BlockEdit
from model.cache_manager import CacheManager
from model.config import EngineConfig
from model.core import EngineCore, Output
from model.engine import Engine, EngineState
from model.errors import ModelError
from model.grammar import Grammar, constraint_of
from model.messages import (
    EngineInfo,
    GenerationEvent,
    GenerationFinished,
    GenerationRequest,
    Residency,
    SampledLogprobs,
    TableView,
    TokenLogprob,
)
from model.ports import CoreLimits
from model.prefix_index import BlockHasher
from model.sampler import Draw, Sampled
from tests.support.fake_engine import INFO
from tests.support.shadow_runner import ShadowRunner, extend

BLOCK_SIZE, NUM_BLOCKS = 4, 1024


class ScriptedRunner(ShadowRunner):
    """Says the reply that was scripted under a generation's seed."""

    def __init__(self, vocab_size: int) -> None:
        super().__init__(BLOCK_SIZE, vocab_size)
        self.replies: dict[int, Sequence[int]] = {}
        self.num_copies = 0

    def forward(self, rows: Sequence[BatchRow], edits: Sequence[BlockEdit]) -> torch.Tensor:
        self.num_copies += sum(edit.source is not None for edit in edits)
        return super().forward(rows, edits)

    def sample(self, logits: torch.Tensor, draws: Sequence[Draw]) -> list[Sampled]:
        for row, draw in zip(logits, draws, strict=True):
            prefix = reduce(extend, draw.token_ids, 0)
            assert int(row.argmax()) == prefix % self._vocab_size, "the cache holds other tokens"
        return [_sampled(self._next(draw), draw.params.num_logprobs) for draw in draws]

    def _next(self, draw: Draw) -> int:
        reply = self.replies.get(draw.seed, (0,))
        return reply[len(draw.token_ids) - draw.num_prompt_tokens]


def _sampled(token_id: int, num_logprobs: int | None) -> Sampled:
    """A draw that was half likely, beside one that could not be."""
    if num_logprobs is None:
        return Sampled(token_id)
    likeliest = (TokenLogprob(token_id, -0.5), TokenLogprob(0, -float("inf")))[:num_logprobs]
    return Sampled(token_id, SampledLogprobs(TokenLogprob(token_id, -0.5), likeliest))


class _Words:
    """The tokenizer as the core sees it."""

    def __init__(self, tokenizer: PreTrainedTokenizerFast) -> None:
        self._tokenizer = tokenizer

    def decode(self, token_ids: list[int]) -> str:
        return self._tokenizer.decode(
            token_ids, skip_special_tokens=True, clean_up_tokenization_spaces=False
        )

    def encode(self, text: str) -> list[int]:
        return self._tokenizer.encode(text, add_special_tokens=False)


class CoreEngine(Engine):
    """Stepped by whoever waits for an event of its own. `may_step` holds prefixes that are computed
    ahead, for tests in which people are quicker."""

    def __init__(
        self,
        tokenizer: PreTrainedTokenizerFast,
        *,
        token_budget: int = 4096,
        fingerprint: str = "f",
        num_blocks: int = NUM_BLOCKS,
    ) -> None:
        ticks = count()
        vocab_size, eos_id = len(tokenizer), tokenizer.eos_token_id
        self.runner = ScriptedRunner(vocab_size)
        self.core = EngineCore(
            EngineConfig(
                token_budget=token_budget,
                max_itl_s=math.inf,  # its clock knows nothing of how long a step takes
                block_size=BLOCK_SIZE,
                check_books=True,
            ),
            CoreLimits(
                max_context_tokens=(num_blocks - 1) * BLOCK_SIZE,
                vocab_size=vocab_size,
                eos_token_ids=frozenset({eos_id}),
                block_bytes=1,
            ),
            CacheManager(
                num_blocks, BlockHasher(fingerprint, "none", BLOCK_SIZE), poison_blocks=True
            ),
            self.runner,
            _Words(tokenizer),
            clock=lambda: float(next(ticks)),
        )
        self.requests: list[GenerationRequest] = []
        self.may_step = asyncio.Event()
        self.may_step.set()
        self._info = replace(
            INFO,
            fingerprint=fingerprint,
            vocab_size=vocab_size,
            eos_token_ids=(eos_id,),
            max_context_tokens=(num_blocks - 1) * BLOCK_SIZE,
        )
        self._inboxes: dict[str, deque[GenerationEvent | ModelError]] = {}
        self._begun: dict[str, asyncio.Event] = defaultdict(asyncio.Event)
        self._over: dict[str, asyncio.Event] = defaultdict(asyncio.Event)

    @property
    def info(self) -> EngineInfo:
        return self._info

    @property
    def state(self) -> EngineState:
        return EngineState.READY

    async def begun(self, request_id: str) -> None:
        """Return when the generation has been submitted."""
        await self._begun[request_id].wait()

    async def over(self, request_id: str) -> None:
        """Return when whoever asked for the generation has heard of its end."""
        await self._over[request_id].wait()

    async def generate(self, request: GenerationRequest) -> AsyncIterator[GenerationEvent]:  # type: ignore[override] - a generator is what the real one gives too
        self.requests.append(request)
        inbox = self._inboxes[request.request_id] = deque()
        try:
            self._deliver(self.core.submit(request))
            self._begun[request.request_id].set()
            while True:
                while not inbox:
                    await self._step(request)
                event = inbox.popleft()
                if isinstance(event, ModelError):
                    raise event
                yield event
                if isinstance(event, GenerationFinished):
                    return
        finally:
            del self._inboxes[request.request_id]
            self._deliver(self.core.cancel(request.request_id))
            self._over[request.request_id].set()

    async def _step(self, request: GenerationRequest) -> None:
        await asyncio.sleep(0)
        if request.params.max_output_tokens == 0 and not self.may_step.is_set():
            return
        self._deliver(self.core.step())

    def _deliver(self, outputs: Sequence[Output]) -> None:
        for output in outputs:
            if output.request_id in self._inboxes:
                self._inboxes[output.request_id].append(output.event)

    async def check_grammar(self, grammar: Grammar) -> None:
        constraint_of(grammar, self.core.grammars)

    async def cancel(self, request_id: str) -> None:
        self._deliver(self.core.cancel(request_id))

    async def release(self, conversation_id: str) -> None:
        self.core.release(conversation_id)

    async def evict(self, conversation_id: str | None = None) -> int:
        return self.core.evict(conversation_id)

    async def residency(self) -> tuple[Residency, ...]:
        return self.core.residency()

    async def tables(self, conversation_id: str) -> tuple[TableView, ...]:
        return self.core.tables(conversation_id)
