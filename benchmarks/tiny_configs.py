"""Tiny configurations of the architectures that are checked, four layers each.

Whatever makes an architecture special is switched on and small enough to bite: windows of eleven
tokens, soft caps of a few units, multipliers far from one, a `longrope` whose limit is near.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from transformers import CONFIG_MAPPING, PreTrainedConfig

from benchmarks.dense import VOCAB_SIZE

WINDOW = 11
NUM_LAYERS = 4
_LONG_ROPE_LIMIT = 400
_SLIDES = {"sliding_window": WINDOW}
_ALTERNATING = [["sliding_attention", "full_attention"][i % 2] for i in range(NUM_LAYERS)]
_SIZES: dict[str, Any] = {
    "vocab_size": VOCAB_SIZE,
    "hidden_size": 48,
    "intermediate_size": 64,
    "num_hidden_layers": NUM_LAYERS,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 512,
    "bos_token_id": 0,
    "eos_token_id": 0,
    "pad_token_id": 0,
}
_NO_GROUPS = {"num_key_value_heads": 6}
_EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32}
_LONG_ROPE = {
    "max_position_embeddings": 512,
    "original_max_position_embeddings": _LONG_ROPE_LIMIT,
    "rope_parameters": {
        "rope_type": "longrope",
        "rope_theta": 10_000.0,
        "short_factor": [1.0, 1.1, 1.2, 1.3],
        "long_factor": [1.0, 2.0, 4.0, 8.0],
        "original_max_position_embeddings": _LONG_ROPE_LIMIT,
    },
}


@dataclass(frozen=True, slots=True)
class Architecture:
    """A `model_type` of transformers, tried with these settings; `note` says what is special."""

    name: str
    model_type: str
    settings: dict[str, Any] = field(default_factory=dict)
    note: str = ""

    def config(self) -> PreTrainedConfig:
        """A new configuration. transformers writes into those it is given."""
        return tiny_config(self.model_type, **self.settings)


def tiny_config(model_type: str, **settings: object) -> PreTrainedConfig:
    """The small sizes that this type has under their usual names, and the settings."""
    cls: Callable[..., PreTrainedConfig] = CONFIG_MAPPING[model_type]
    default = cls()
    names = {*default.to_dict(), *(default.attribute_map or {})}
    sizes = {name: size for name, size in _SIZES.items() if name in names}
    return cls(**{**sizes, **settings})


SERVED = (
    Architecture("Llama 2, 3", "llama", {}, "grouped heads; also SmolLM2, Yi, Vicuna"),
    Architecture("Qwen 2, 2.5", "qwen2", {}, "biases on queries, keys and values"),
    Architecture(
        "Qwen 2 with a window",
        "qwen2",
        {**_SLIDES, "use_sliding_window": True, "max_window_layers": 2},
        "the later layers slide",
    ),
    Architecture(
        "Qwen 2 MoE",
        "qwen2_moe",
        {
            **_SLIDES,
            **_EXPERTS,
            "use_sliding_window": True,
            "max_window_layers": 4,
            "shared_expert_intermediate_size": 32,
        },
        "experts; the window is in the mask alone",
    ),
    Architecture("Qwen 3", "qwen3", {"head_dim": 12}, "normalised queries and keys"),
    Architecture("Qwen 3 MoE", "qwen3_moe", _EXPERTS, "experts"),
    Architecture("Mistral", "mistral", _SLIDES, "every layer slides"),
    Architecture(
        "Ministral 3",
        "ministral3",
        {
            "rope_parameters": {
                "rope_type": "yarn",
                "rope_theta": 10_000.0,
                "factor": 16.0,
                "original_max_position_embeddings": 32,
                "llama_4_scaling_beta": 0.5,
            }
        },
        "YaRN; queries scaled by position",
    ),
    Architecture(
        "Mixtral",
        "mixtral",
        {**_SLIDES, "num_local_experts": 4, "num_experts_per_tok": 2},
        "experts",
    ),
    Architecture("Gemma", "gemma", {"num_key_value_heads": 1}, "one key-value head"),
    Architecture(
        "Gemma 2",
        "gemma2",
        {
            **_SLIDES,
            "layer_types": _ALTERNATING,
            "query_pre_attn_scalar": 24,
            "attn_logit_softcapping": 2.0,
            "final_logit_softcapping": 3.0,
        },
        "soft caps of scores and logits, a scaling of its own",
    ),
    Architecture(
        "Gemma 3 (text)",
        "gemma3_text",
        {
            **_SLIDES,
            "layer_types": _ALTERNATING,
            "query_pre_attn_scalar": 24,
            "final_logit_softcapping": 3.0,
        },
        "a RoPE for each kind of layer, a scaling of its own",
    ),
    Architecture("Phi-1, Phi-2", "phi", _NO_GROUPS, "rotates half of each head"),
    Architecture(
        "Phi-3, Phi-4",
        "phi3",
        _LONG_ROPE,
        "`longrope`: the context ends where its factors would change",
    ),
    Architecture("Phi-3 with a window", "phi3", _SLIDES, "every layer slides"),
    Architecture(
        "Phi-3.5 MoE",
        "phimoe",
        {**_SLIDES, "num_local_experts": 4, "num_experts_per_tok": 2},
        "experts; the window is in the mask alone",
    ),
    Architecture("OLMo", "olmo", {}, "layer norms without weights"),
    Architecture("OLMo 2", "olmo2", {}, "norms behind attention and feed-forward"),
    Architecture("OLMo 3", "olmo3", {**_SLIDES, "layer_types": _ALTERNATING}, "as OLMo 2"),
    Architecture("GPT-2", "gpt2", {}, "learned positions"),
    Architecture("GPT-NeoX, Pythia", "gpt_neox", {}, "rotates a quarter of each head"),
    Architecture("StarCoder", "gpt_bigcode", {}, "one key-value head, learned positions"),
    Architecture("StarCoder 2", "starcoder2", _SLIDES, "every layer slides"),
    Architecture("OPT", "opt", {"ffn_dim": 64, "word_embed_proj_dim": 48}, "learned positions"),
    Architecture(
        "Granite",
        "granite",
        {
            "attention_multiplier": 0.2,
            "embedding_multiplier": 3.0,
            "residual_multiplier": 0.5,
            "logits_scaling": 2.0,
        },
        "multipliers on embedding, scores, residuals and logits",
    ),
    Architecture("GLM 4 (first)", "glm", {}, "rotates half of each head"),
    Architecture("GLM 4 (0414)", "glm4", {}, "rotates half of each head, norms on both sides"),
    Architecture("Command R", "cohere", {"logit_scale": 2.0}, "parallel residual, scaled logits"),
    Architecture(
        "Command R7B, A",
        "cohere2",
        {**_SLIDES, "layer_types": _ALTERNATING, "logit_scale": 2.0},
        "the full layers have no positions",
    ),
    Architecture("SmolLM3", "smollm3", {}, "every fourth layer has no positions"),
    Architecture(
        "EXAONE 4", "exaone4", {**_SLIDES, "layer_types": _ALTERNATING}, "as SmolLM3, and slides"
    ),
    Architecture("Seed-OSS", "seed_oss", {}, "biases on queries, keys and values"),
    Architecture("JetMoE", "jetmoe", {"kv_channels": 8}, "experts in the attention itself"),
)

REFUSED = (
    Architecture("T5, FLAN-T5", "t5"),
    Architecture("BART", "bart"),
    Architecture("Mamba", "mamba"),
    Architecture("Mamba 2", "mamba2", {"num_heads": 12}),
    Architecture("RWKV", "rwkv"),
    Architecture("xLSTM", "xlstm"),
    Architecture("RecurrentGemma", "recurrent_gemma"),
    Architecture("Jamba", "jamba"),
    Architecture("Qwen3-Next", "qwen3_next"),
    Architecture("LFM2", "lfm2", {"layer_types": ["conv", "full_attention"] * 2}),
    Architecture("MiniMax", "minimax"),
    Architecture("DeepSeek V2", "deepseek_v2"),
    Architecture("DeepSeek V3, R1", "deepseek_v3"),
    Architecture("GPT-OSS", "gpt_oss"),
    Architecture("Llama 4 (text)", "llama4_text"),
    Architecture("Gemma 3 with images", "gemma3"),
    Architecture("Falcon", "falcon", {"alibi": False}),
    Architecture("Falcon with ALiBi", "falcon", {"alibi": True}),
    Architecture("BLOOM", "bloom"),
    Architecture("MPT", "mpt"),
    Architecture("StableLM", "stablelm"),
    Architecture("Nemotron, Minitron", "nemotron"),
    Architecture("DiffLlama", "diffllama"),
    Architecture("Doge", "doge"),
    Architecture("BERT", "bert"),
    Architecture(
        "Llama with dynamic RoPE",
        "llama",
        {"rope_parameters": {"rope_type": "dynamic", "rope_theta": 1e4, "factor": 2.0}},
    ),
)
