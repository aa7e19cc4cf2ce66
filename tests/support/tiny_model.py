"""Tiny random models, an engine core around one, and the dense oracle to hold it against."""

import copy
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import count

import torch
from transformers import (
    AutoModelForCausalLM,
    LlamaConfig,
    PreTrainedConfig,
    PreTrainedModel,
    Qwen3Config,
)

from model.attention.base import IMPLEMENTATION, AttentionBackend, register
from model.attention.batched import BatchedBackend
from model.attention.reference import ReferenceBackend
from model.cache_manager import CacheManager
from model.config import EngineConfig, SamplingParams
from model.core import CoreLimits, EngineCore, Output
from model.kv_cache import KVCache
from model.messages import (
    ClaimReport,
    GenerationFinished,
    GenerationRequest,
    GenerationStarted,
)
from model.prefix_index import BlockHasher
from model.runner import ModelRunner, ModelShape

VOCAB_SIZE = 97
_SMALL = {
    "vocab_size": VOCAB_SIZE,
    "hidden_size": 48,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
    "bos_token_id": None,
    "eos_token_id": None,
    "pad_token_id": None,
}


def tiny_llama() -> PreTrainedConfig:
    return LlamaConfig(**_SMALL, head_dim=8)


def tiny_qwen3() -> PreTrainedConfig:
    return Qwen3Config(**_SMALL, head_dim=12)


def build_model(config: PreTrainedConfig, attention: str) -> PreTrainedModel:
    """The same random weights for each call with the same configuration."""
    register()
    torch.manual_seed(7)
    # A copy, because transformers writes the attention's name into the configuration it is given.
    model = AutoModelForCausalLM.from_config(
        copy.deepcopy(config), attn_implementation=attention, dtype=torch.float32
    )
    with torch.no_grad():  # larger than the usual start, so that the top logits are far apart
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.mul_(4)
    assert model.config._attn_implementation == attention
    return model.eval().requires_grad_(False)


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
        backend: AttentionBackend | None = None,
        tokenizer: object | None = None,
    ) -> None:
        model = build_model(config, IMPLEMENTATION)
        shape = ModelShape.of(model)
        kv_shape = shape.kv_shape(block_size, torch.float32)
        self.runner = ModelRunner(
            model, KVCache(kv_shape, num_blocks, model.device), backend or ReferenceBackend()
        )
        ticks = count()
        self.core = EngineCore(
            EngineConfig(
                token_budget=token_budget,
                max_running=max_running,
                block_size=block_size,
                check_books=True,
            ),
            CoreLimits(
                max_context_tokens=min(shape.max_positions, (num_blocks - 1) * block_size),
                vocab_size=shape.vocab_size,
                eos_token_ids=frozenset(),
                block_bytes=kv_shape.block_bytes,
            ),
            CacheManager(num_blocks, BlockHasher("tiny", "float32", block_size)),
            self.runner,
            tokenizer or LetterTokenizer(),
            clock=lambda: float(next(ticks)),
        )
        self.replies: dict[str, Reply] = {}

    def submit(self, request: GenerationRequest) -> None:
        self.core.submit(request)
        self.replies[request.request_id] = Reply()

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
                assert reply.text == event.text
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


class DenseOracle:
    """Greedy decoding by a plain forward over the whole token list, the eager attention of
    transformers, float32. `near_ties` counts places where the top two logits were too close to
    tell, and where another token is therefore no error."""

    MARGIN = 1e-4

    def __init__(self, config: PreTrainedConfig) -> None:
        self._model = build_model(config, "eager")
        self.near_ties = 0

    @torch.inference_mode()
    def logits(self, token_ids: Sequence[int]) -> torch.Tensor:
        """Of every position, `[T, V]`."""
        return self._model(torch.tensor([list(token_ids)]), use_cache=False).logits[0]

    def assert_greedy(self, prompt: Sequence[int], reply: Sequence[int]) -> None:
        """Each id of the reply is the arg-max behind what stands before it."""
        logits = self.logits([*prompt, *reply])
        for i, token_id in enumerate(reply):
            row = logits[len(prompt) + i - 1]
            top = row.topk(2)
            if top.values[0] - top.values[1] < self.MARGIN:
                self.near_ties += 1
                assert token_id in top.indices
            else:
                assert token_id == int(top.indices[0]), f"token {i} of the reply differs"


def backends() -> dict[str, AttentionBackend]:
    return {
        "reference": ReferenceBackend(),
        "batched": BatchedBackend(torch.device("cpu")),
    }
