"""Tiny random models, and the dense oracle that answers are held against."""

import copy
from collections.abc import Sequence

import torch
from transformers import (
    AutoModelForCausalLM,
    LlamaConfig,
    PreTrainedConfig,
    PreTrainedModel,
    Qwen3Config,
)

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


def tiny_llama(vocab_size: int = VOCAB_SIZE) -> PreTrainedConfig:
    """Grouped heads, no biases."""
    return LlamaConfig(**{**_SMALL, "vocab_size": vocab_size}, head_dim=8)


def tiny_qwen3() -> PreTrainedConfig:
    """Normalised queries and keys, and heads that don't add up to the hidden size."""
    return Qwen3Config(**_SMALL, head_dim=12)


def build_model(
    config: PreTrainedConfig, attention: str, device: torch.device | None = None
) -> PreTrainedModel:
    """A float32 model; the same random weights for each call with the same configuration."""
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
    return model.to(device or "cpu").eval().requires_grad_(requires_grad=False)


class DenseOracle:
    """Greedy decoding by a plain forward over the whole token list: transformers' own eager
    attention, float32. `near_ties` counts places where the top two logits were too close to tell,
    and where another token is therefore no error."""

    MARGIN = 1e-4

    def __init__(
        self, model: PreTrainedModel | PreTrainedConfig, device: torch.device | None = None
    ) -> None:
        """A configuration stands for the random model that `build_model` makes of it."""
        is_model = isinstance(model, PreTrainedModel)
        self._model = model if is_model else build_model(model, "eager", device)
        self.near_ties = 0

    @torch.inference_mode()
    def logits(self, token_ids: Sequence[int]) -> torch.Tensor:
        """Of every position, `[T, V]`, on the CPU."""
        ids = torch.tensor([list(token_ids)], device=self._model.device)
        logits: torch.Tensor = self._model(ids, use_cache=False).logits[0].cpu()
        return logits

    def assert_greedy(self, prompt: Sequence[int], reply: Sequence[int]) -> None:
        """Each id of the reply is the arg-max behind what stands before it, or AssertionError."""
        logits = self.logits([*prompt, *reply])
        for i, token_id in enumerate(reply):
            top = logits[len(prompt) + i - 1].topk(2)
            if top.values[0] - top.values[1] < self.MARGIN:
                self.near_ties += 1
                assert token_id in top.indices, f"token {i} of the reply is neither of two near"
            else:
                assert token_id == int(top.indices[0]), f"token {i} of the reply differs"
