"""An engine core around a tiny random model, stepped to the end of what it is given."""

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import count

import torch
from transformers import PreTrainedConfig

from benchmarks.dense import VOCAB_SIZE, build_model
from model.attention.base import IMPLEMENTATION, AttentionBackend, register
from model.attention.batched import BatchedBackend
from model.attention.cpu import CpuBackend
from model.attention.reference import ReferenceBackend
from model.cache_manager import CacheManager
from model.config import EngineConfig, SamplingParams
from model.core import EngineCore, Output
from model.kv_cache import KVCache
from model.messages import (
    ClaimReport,
    GenerationFinished,
    GenerationRequest,
    GenerationStarted,
)
from model.ports import CoreLimits
from model.prefix_index import BlockHasher
from model.runner import ModelRunner, ModelShape
from tests.support.native_kernels import native_ops
from tests.support.shadow_runner import ShadowRunner


class LetterTokenizer:
    """Id i is the i-th letter of a made-up alphabet; encoding is one id a letter."""

    def decode(self, token_ids: list[int]) -> str:
        return "".join(chr(0x100 + i) for i in token_ids)

    def encode(self, text: str) -> list[int]:
        return [ord(c) - 0x100 for c in text]


@dataclass
class Reply:
    """What one generation came to."""

    claim: ClaimReport | None = None
    finished: GenerationFinished | None = None
    text: str = ""
    sampled: list[int] = field(default_factory=list)
    error: Exception | None = None


class Harness:
    """An engine core, stepped to the end of what it is given, books checked after every step."""

    def __init__(
        self,
        config: PreTrainedConfig,
        *,
        num_blocks: int = 64,
        block_size: int = 4,
        token_budget: int = 16,
        max_running: int = 16,
        max_waiting: int = 1024,
        backend: AttentionBackend | None = None,
        tokenizer: object | None = None,
        shadow: bool = False,
    ) -> None:
        register()
        model = build_model(config, IMPLEMENTATION)
        shape = ModelShape.of(model)
        kv_shape = shape.kv_shape(block_size, torch.float32)
        cache = KVCache(kv_shape, num_blocks, model.device)
        cache.poison()
        self.runner: ModelRunner | ShadowRunner
        if shadow:  # for what is about blocks alone, a hundred times faster
            self.runner = ShadowRunner(block_size, shape.vocab_size)
        else:
            self.runner = ModelRunner(model, shape.windows, cache, backend or ReferenceBackend())
        ticks = count()
        self.core = EngineCore(
            EngineConfig(
                token_budget=token_budget,
                max_itl_s=math.inf,  # its clock knows nothing of how long a step takes
                max_running=max_running,
                max_waiting=max_waiting,
                block_size=block_size,
                check_books=True,
            ),
            CoreLimits(
                max_context_tokens=min(shape.max_positions, (num_blocks - 1) * block_size),
                vocab_size=shape.vocab_size,
                eos_token_ids=frozenset(),
                block_bytes=kv_shape.block_bytes,
            ),
            CacheManager(
                num_blocks, BlockHasher("tiny", "float32", block_size), poison_blocks=True
            ),
            self.runner,
            tokenizer or LetterTokenizer(),
            clock=lambda: float(next(ticks)),
        )
        self.replies: dict[str, Reply] = {}

    def submit(self, request: GenerationRequest) -> None:
        outputs = self.core.submit(request)
        self.replies[request.request_id] = Reply()
        self.take(outputs)

    def step(self) -> None:
        self.take(self.core.step())

    def take(self, outputs: Sequence[Output]) -> None:
        for output in outputs:
            reply = self.replies[output.request_id]
            event = output.event
            if isinstance(event, Exception):
                reply.error = event
            elif isinstance(event, GenerationStarted):
                reply.claim = event.claim
            elif isinstance(event, GenerationFinished):
                reply.finished = event
                # What was delivered before a crash is not said again.
                assert event.text.endswith(reply.text)
            else:
                reply.text += event.text
                reply.sampled += event.token_ids

    def run(self) -> None:
        while self.core.has_work:
            self.step()

    def generate(self, request: GenerationRequest) -> Reply:
        self.submit(request)
        self.run()
        return self.replies[request.request_id]


def random_ids(seed: int, num_tokens: int) -> list[int]:
    """Reproducible, and of another seed different."""
    return [random.Random(f"{seed}/{i}").randrange(VOCAB_SIZE) for i in range(num_tokens)]


def make_request(
    request_id: str,
    token_ids: Sequence[int],
    *,
    max_output_tokens: int | None = 6,
    conversation_id: str | None = "conv",
    params: SamplingParams | None = None,
    **fields: object,
) -> GenerationRequest:
    return GenerationRequest(
        request_id=request_id,
        token_ids=tuple(token_ids),
        params=params or SamplingParams(temperature=0.0, max_output_tokens=max_output_tokens),
        conversation_id=conversation_id,
        **fields,  # type: ignore[arg-type]
    )


def backends() -> dict[str, AttentionBackend]:
    return {
        "reference": ReferenceBackend(),
        "batched": BatchedBackend(torch.device("cpu")),
        "cpu": CpuBackend(native_ops()),
    }
