"""What a loaded model's attention really is: seen by running it once, not read off its
configuration.

Configurations leave sizes out, name them in many ways, or speak of windows that the layers never
tell their attention function (Phi-3.5 MoE and Qwen2 MoE slide by their mask alone). So one short
run with an attention function that only takes notes gives each layer's heads and sizes, and the
window of the mask it was handed. That mask is the one which transformers' own attention obeys.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from transformers import AttentionInterface, PreTrainedModel
from transformers.masking_utils import AttentionMaskInterface

from model.errors import ModelLoadError
from model.support import max_context_tokens

OBSERVING = "splice_observing"
_NUM_TOKENS = 8
_CHANGED_MASK = "it hides positions by a rule of its own, which the paged attention can't follow"
# What transformers' code raises when it is not given what it needs (languages, images, …).
_FAILURES = (ValueError, TypeError, LookupError, AttributeError, RuntimeError)
_SEES_LATER = "its tokens attend to later ones, so a new token changes what is cached"
_UNKNOWN_OPTIONS = {
    "s_aux": "it has attention sinks, which the paged attention lacks",
    "sinks": "it has attention sinks, which the paged attention lacks",
    "position_bias": "its positions are biases on the scores, which the paged attention lacks",
    "alibi": "its positions are biases on the scores (ALiBi), which the paged attention lacks",
    "indices": "its attention picks single tokens (sparse attention)",
    "block_indices": "its attention picks blocks of tokens (sparse attention)",
}

MaskFunction = Callable[[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]


class CannotServeError(Exception):
    """Why a model can't be served, found while it ran; its type is put in front by `observe`."""


@dataclass(frozen=True, slots=True)
class LayerTraits:
    """One layer's attention: heads and their size, and how many last positions a token sees."""

    num_kv_heads: int
    head_size: int
    window: int | None


class _RuledMask(torch.Tensor):
    """A mask that remembers its rule; whatever is computed from it does not."""

    rule: MaskFunction


class _Notes:
    """What came by, by layer."""

    def __init__(self, num_positions: int) -> None:
        self.layers: dict[int, LayerTraits] = {}
        self._num_positions = num_positions
        self._windows: dict[MaskFunction, int | None] = {}

    def window(self, rule: MaskFunction) -> int | None:
        """See `window_of`; layers share their rules."""
        if rule not in self._windows:
            self._windows[rule] = window_of(rule, self._num_positions)
        return self._windows[rule]


def observe(model: PreTrainedModel) -> tuple[LayerTraits, ...]:
    """Each layer's traits, in order. Raises ModelLoadError with the reason when the layers aren't
    what a paged cache can hold; the model is left as it was."""
    _register()
    implementation = model.config._attn_implementation
    model.set_attn_implementation(OBSERVING)
    try:
        return _run(model)
    except CannotServeError as exc:
        raise ModelLoadError(
            f"models of type {model.config.model_type!r} can't be served: {exc}"
        ) from exc
    except _FAILURES as exc:
        raise ModelLoadError(
            f"models of type {model.config.model_type!r} can't be served: "
            f"their code fails on a short text: {exc}"
        ) from exc
    finally:
        model.set_attn_implementation(implementation)


@torch.inference_mode()
def _run(model: PreTrainedModel) -> tuple[LayerTraits, ...]:
    notes = _Notes(max_context_tokens(model.config))
    positions = torch.arange(_NUM_TOKENS, device=model.device)[None]
    model(
        input_ids=positions % model.config.get_text_config().vocab_size,
        position_ids=positions,
        use_cache=False,
        splice_step=notes,
    )
    layers = tuple(notes.layers[i] for i in sorted(notes.layers))
    num_layers = model.config.get_text_config().num_hidden_layers
    if set(notes.layers) != set(range(num_layers)):
        raise CannotServeError(
            f"{len(layers)} of its {num_layers} layers attend over keys and values by token"
        )
    if len({(layer.num_kv_heads, layer.head_size) for layer in layers}) > 1:
        raise CannotServeError("its layers have heads of different numbers or sizes")
    return layers


def _register() -> None:
    AttentionInterface.register(OBSERVING, _take_notes)
    AttentionMaskInterface.register(OBSERVING, _ruled_mask)


def _take_notes(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    **options: Any,  # noqa: ANN401 (whatever models pass along)
) -> tuple[torch.Tensor, None]:
    """transformers' attention signature; the output is zero, for nobody reads the logits."""
    notes, layer = options.get("splice_step"), getattr(module, "layer_idx", None)
    if not isinstance(notes, _Notes):
        raise CannotServeError("its layers don't hand on to attention what they are given for it")
    if layer is None:
        raise CannotServeError("its attention doesn't say which layer it is in")
    if layer in notes.layers:
        raise CannotServeError("a layer attends more than once for each token")
    if key.shape != value.shape or query.shape[-1] != key.shape[-1]:
        raise CannotServeError("its keys and values have different sizes")
    for name, reason in _UNKNOWN_OPTIONS.items():
        if options.get(name) is not None:
            raise CannotServeError(reason)
    notes.layers[layer] = LayerTraits(
        num_kv_heads=key.shape[1],
        head_size=key.shape[-1],
        window=_window(notes, module, attention_mask, options),
    )
    return torch.zeros_like(query).transpose(1, 2), None


def _window(
    notes: _Notes, module: torch.nn.Module, mask: torch.Tensor | None, options: dict[str, Any]
) -> int | None:
    if mask is None:  # made without transformers' masks: attention is told, or is plainly causal
        if not options.get("is_causal", getattr(module, "is_causal", True)):
            raise CannotServeError(_SEES_LATER)
        window: int | None = options.get("sliding_window")
        return window
    if not isinstance(mask, _RuledMask) or not hasattr(mask, "rule"):
        raise CannotServeError(_CHANGED_MASK)
    return notes.window(mask.rule)


def _ruled_mask(
    batch_size: int,
    q_length: int,
    kv_length: int,
    mask_function: MaskFunction,
    device: torch.device | str = "cpu",
    **_: Any,  # noqa: ANN401 (whatever transformers passes along)
) -> torch.Tensor:
    """transformers' signature of a mask's maker."""
    mask = torch.zeros(batch_size, 1, q_length, kv_length, device=device).as_subclass(_RuledMask)
    mask.rule = mask_function
    return mask


def window_of(rule: MaskFunction, num_positions: int) -> int | None:
    """How many last positions the rule lets a token see; None when that is all of them. Raises
    CannotServeError for a rule that isn't causal, or no window (such as chunks)."""
    # Neighbours well behind every window: a window is as long for both, a chunk is not.
    windows = {_window_at(rule, 2 * num_positions + i) for i in (0, 1)}
    if len(windows) > 1:
        raise CannotServeError(_CHANGED_MASK)
    return windows.pop()


def _window_at(rule: MaskFunction, position: int) -> int | None:
    zero, columns = torch.tensor(0), torch.arange(position + 2)
    try:
        visible = rule(zero, zero, torch.tensor(position), columns).broadcast_to(columns.shape)
    except (IndexError, RuntimeError) as exc:  # it looks its answers up by token
        raise CannotServeError(_CHANGED_MASK) from exc
    if visible[position + 1]:
        raise CannotServeError(_SEES_LATER)
    num_visible = int(visible.sum())
    if num_visible == 0 or not visible[position + 1 - num_visible : position + 1].all():
        raise CannotServeError(_CHANGED_MASK)
    return None if num_visible > position else num_visible
