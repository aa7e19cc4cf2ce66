"""What is seen of a model's attention by letting it run once."""

import pytest
import torch
from transformers import LlamaConfig
from transformers.masking_utils import (
    and_masks,
    bidirectional_mask_function,
    causal_mask_function,
    chunked_overlay,
    or_masks,
    sliding_window_overlay,
)

from benchmarks.dense import build_model
from benchmarks.tiny_configs import NUM_LAYERS, WINDOW, tiny_config
from model.attention.base import IMPLEMENTATION, register
from model.attention.observe import CannotServeError, LayerTraits, observe, window_of
from model.errors import ModelLoadError

PLAIN = LayerTraits(num_kv_heads=2, head_size=8, window=None)


def sliding(window):
    return and_masks(sliding_window_overlay(window), causal_mask_function)


def llama():
    register()
    return build_model(tiny_config("llama"), IMPLEMENTATION)


@pytest.mark.parametrize(
    ("rule", "window"),
    [
        (causal_mask_function, None),
        (sliding(1), 1),
        (sliding(11), 11),
        (sliding(512), 512),
        (sliding(2000), None),
    ],
    ids=["causal", "itself alone", "eleven", "the whole context", "more than can be seen"],
)
def test_a_windows_length_is_read_off_the_rule_of_the_mask(rule, window):
    assert window_of(rule, 512) == window


@pytest.mark.parametrize(
    ("rule", "words"),
    [
        (bidirectional_mask_function, "later ones"),
        (or_masks(causal_mask_function, lambda b, h, q, k: k == q + 1), "later ones"),
        (and_masks(causal_mask_function, chunked_overlay(8, torch.zeros(1))), "rule of its own"),
        (and_masks(causal_mask_function, lambda b, h, q, k: k % 2 == q % 2), "rule of its own"),
        (and_masks(causal_mask_function, lambda b, h, q, k: k < 0), "rule of its own"),
        (lambda b, h, q, k: torch.ones(4, dtype=torch.bool)[k], "rule of its own"),
    ],
    ids=["both ways", "one ahead", "chunks", "every other", "nothing", "looked up"],
)
def test_a_rule_that_is_no_causal_window_is_refused(rule, words):
    with pytest.raises(CannotServeError, match=words):
        window_of(rule, 512)


def test_heads_and_sizes_are_what_the_layers_use_whatever_the_configuration_says():
    model = llama()
    model.config.num_key_value_heads, model.config.head_dim = 77, 99

    assert observe(model) == (PLAIN,) * NUM_LAYERS
    assert model.config._attn_implementation == IMPLEMENTATION


def test_a_window_in_the_mask_alone_is_seen():
    register()
    settings = {"sliding_window": WINDOW, "num_local_experts": 4, "num_experts_per_tok": 2}
    model = build_model(tiny_config("phimoe", **settings), IMPLEMENTATION)

    assert [layer.window for layer in observe(model)] == [WINDOW] * NUM_LAYERS


@pytest.mark.parametrize(
    ("option", "words"),
    [("s_aux", "sinks"), ("position_bias", "biases on the scores"), ("block_indices", "sparse")],
)
def test_attention_that_is_told_more_than_can_be_followed_is_refused(option, words):
    model = llama()
    attention = model.model.layers[1].self_attn
    forward = attention.forward
    attention.forward = lambda *args, **kwargs: forward(*args, **kwargs, **{option: torch.zeros(1)})

    with pytest.raises(ModelLoadError, match=f"'llama' can't be served.*{words}"):
        observe(model)
    assert model.config._attn_implementation == IMPLEMENTATION


def test_layers_that_differ_in_size_are_refused():
    model = llama()
    attention = model.model.layers[2].self_attn
    for projection in (attention.k_proj, attention.v_proj):
        projection.weight = torch.nn.Parameter(projection.weight[:8], requires_grad=False)

    with pytest.raises(ModelLoadError, match="different numbers or sizes"):
        observe(model)


def test_a_layer_without_attention_is_refused():
    model = llama()
    model.model.layers[0].self_attn.forward = lambda hidden_states, **_: (hidden_states, None)

    with pytest.raises(ModelLoadError, match=f"{NUM_LAYERS - 1} of its {NUM_LAYERS} layers"):
        observe(model)


def test_a_mask_that_a_layer_changes_is_refused():
    model = llama()
    attention = model.model.layers[0].self_attn
    forward = attention.forward

    def changed(*args, attention_mask=None, **kwargs):
        return forward(*args, attention_mask=attention_mask + 1, **kwargs)

    attention.forward = changed

    with pytest.raises(ModelLoadError, match="rule of its own"):
        observe(model)


def test_a_layer_that_is_run_twice_is_refused():
    config = LlamaConfig(**{**tiny_config("llama").to_dict(), "num_hidden_layers": 2})
    register()
    model = build_model(config, IMPLEMENTATION)
    model.model.layers[1] = model.model.layers[0]

    with pytest.raises(ModelLoadError, match="more than once"):
        observe(model)


def test_a_model_that_needs_more_than_a_text_is_refused():
    model = llama()

    def forward(*_, **__):
        raise ValueError("which language?")

    model.model.forward = forward

    with pytest.raises(ModelLoadError, match="fails on a short text: which language"):
        observe(model)
