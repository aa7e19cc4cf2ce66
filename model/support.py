"""Which models the paged cache can serve, and the reason for each that it can't.

The cache holds keys and values by token. So a model must attend causally over plain keys and
values, through transformers' attention interface, with positions that don't depend on who else is
in the batch.
"""

from collections.abc import Iterator
from typing import Any

import torch
from transformers import AutoModelForCausalLM, PreTrainedConfig

from model.errors import ModelLoadError

_SERVED_LAYERS = {"full_attention", "sliding_attention"}
_OTHER_SENSES = ("vision_config", "audio_config", "video_config", "speech_config")


def refuse_unsupported(config: PreTrainedConfig) -> None:
    """Raise ModelLoadError with the reason when this configuration can't be served."""
    for reason in _reasons(config):
        raise ModelLoadError(f"models of type {config.model_type!r} can't be served: {reason}")


def refuse_unsupported_weights(model: torch.nn.Module, model_type: str) -> None:
    """Raise ModelLoadError for what only the modules show."""
    if any(name.rpartition(".")[2] == "sinks" for name, _ in model.named_parameters()):
        raise ModelLoadError(
            f"models of type {model_type!r} can't be served: "
            "they have attention sinks, which the paged attention lacks"
        )


def max_context_tokens(config: PreTrainedConfig) -> int:
    """The most positions the model may see.

    With `longrope` that is the length before its factors change: which ones apply is decided by
    the largest position in the batch, so beyond it a sequence would depend on its batch mates.
    """
    text = config.get_text_config(decoder=True)
    limit = int(text.max_position_embeddings)
    for rope in _ropes(text):
        if _rope_type(rope) == "longrope":
            original = rope.get("original_max_position_embeddings") or getattr(
                text, "original_max_position_embeddings", None
            )
            limit = min(limit, int(original or limit))
    return limit


def _reasons(config: PreTrainedConfig) -> Iterator[str]:
    if any(getattr(config, name, None) is not None for name in _OTHER_SENSES):
        yield "it takes images or audio, and this server takes text alone"
    if getattr(config, "is_encoder_decoder", False):
        yield "it is an encoder with a decoder, and only decoders have a cache by token"
    elif config.get_text_config(decoder=True) is not config:
        yield "it is made of several models, and this server takes text alone"
    if getattr(config, "kv_lora_rank", None):
        yield "its latent attention (MLA) keeps compressed keys and values in a layout of its own"
    layers = {str(kind) for kind in getattr(config, "layer_types", None) or ()}
    if layers - _SERVED_LAYERS:
        kinds = ", ".join(sorted(layers - _SERVED_LAYERS))
        yield f"it has layers of kind {kinds}, which don't attend over blocks of keys and values"
    if getattr(config, "use_bidirectional_attention", False):
        yield "its tokens attend to later ones, so a new token changes what is cached"
    if getattr(config, "alibi", False):
        yield "its positions are biases on the scores (ALiBi), which the paged attention lacks"
    if any(_rope_type(rope) == "dynamic" for rope in _ropes(config)):
        yield "its dynamic RoPE makes a token's position depend on the rest of the batch"
    yield from _class_reasons(config)
    if not isinstance(getattr(config, "max_position_embeddings", None), int):
        yield "it does not say how many positions it has (max_position_embeddings)"


def _class_reasons(config: PreTrainedConfig) -> Iterator[str]:
    try:
        cls: Any = AutoModelForCausalLM._model_mapping[type(config)]
    except KeyError:
        yield "transformers has no text-generating model for it"
        return
    if getattr(cls, "_is_stateful", False):
        yield "it keeps a recurrent state (a state-space model), which can't be cut into blocks"
    if not getattr(cls, "_supports_attention_backend", False):
        yield "its code in transformers doesn't go through the attention interface"


def _ropes(config: PreTrainedConfig) -> Iterator[dict[str, Any]]:
    """The rotary settings: one, or one for each kind of layer."""
    rope = getattr(config, "rope_parameters", None) or getattr(config, "rope_scaling", None)
    if not isinstance(rope, dict):
        return
    nested = [value for value in rope.values() if isinstance(value, dict)]
    yield from nested or [rope]


def _rope_type(rope: dict[str, Any]) -> str | None:
    kind = rope.get("rope_type") or rope.get("type")
    return str(kind) if kind is not None else None
