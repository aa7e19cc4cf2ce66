"""Which models are served, and why the others are not."""

import pytest
import torch
from transformers import (
    BloomConfig,
    DeepseekV3Config,
    Emu3Config,
    FalconConfig,
    Gemma3Config,
    Llama4TextConfig,
    LlamaConfig,
    MambaConfig,
    PreTrainedConfig,
    Qwen3Config,
    Qwen3NextConfig,
    T5Config,
)

from model.errors import ModelLoadError
from model.support import max_context_tokens, refuse_unsupported, refuse_unsupported_weights


def rope(kind, **more):
    return LlamaConfig(
        max_position_embeddings=4096,
        rope_parameters={"rope_type": kind, "rope_theta": 1e4, "factor": 2.0, **more},
    )


@pytest.mark.parametrize("config", [LlamaConfig(), Qwen3Config(), rope("linear")], ids=repr)
def test_plain_decoders_are_served(config):
    assert refuse_unsupported(config) is None


@pytest.mark.parametrize(
    ("config", "words"),
    [
        (T5Config(), "encoder with a decoder"),
        (MambaConfig(), "layers of kind linear_attention"),
        (Llama4TextConfig(), "layers of kind chunked_attention"),
        (FalconConfig(alibi=True), "ALiBi"),
        (DeepseekV3Config(), "latent attention"),
        (Qwen3NextConfig(), "linear_attention"),
        (Gemma3Config(), "text alone"),
        (Emu3Config(), "several models.*text alone"),
        (rope("dynamic"), "dynamic RoPE"),
        (BloomConfig(), "max_position_embeddings|attention interface"),
        (PreTrainedConfig(max_position_embeddings=8), "no text-generating model"),
    ],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)
def test_what_the_cache_cannot_hold_is_refused_by_name(config, words):
    with pytest.raises(ModelLoadError, match=words) as caught:
        refuse_unsupported(config)

    assert repr(config.model_type) in str(caught.value)


def test_attention_sinks_are_refused_when_the_modules_show_them():
    module = torch.nn.Module()
    module.sinks = torch.nn.Parameter(torch.zeros(2))

    with pytest.raises(ModelLoadError, match="attention sinks"):
        refuse_unsupported_weights(module, "gpt_oss")


def test_the_context_is_what_the_model_has_positions_for():
    assert max_context_tokens(LlamaConfig(max_position_embeddings=777)) == 777


def test_longrope_ends_before_its_factors_change():
    factors = [1.0] * 64
    config = rope(
        "longrope",
        short_factor=factors,
        long_factor=factors,
        original_max_position_embeddings=1024,
    )

    assert max_context_tokens(config) == 1024
