"""How transformers' model code reaches a backend, and that the cache is written on the way."""

from types import SimpleNamespace

import pytest
import torch
from transformers import AttentionInterface, Gemma2Config, MistralConfig
from transformers.models.llama.modeling_llama import eager_attention_forward

from benchmarks.dense import VOCAB_SIZE, DenseOracle, build_model
from model.attention.base import IMPLEMENTATION, Step, paged_attention, register
from model.attention.reference import ReferenceBackend
from model.batch import Batch, BatchRow
from model.block_table import num_blocks_for
from model.kv_cache import KVCache, KVShape
from model.runner import ModelRunner, ModelShape
from tests.support.paged_steps import CPU
from tests.support.tiny_model import backends

SMALL = {
    "vocab_size": VOCAB_SIZE,
    "hidden_size": 48,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 256,
    "bos_token_id": None,
    "eos_token_id": None,
    "pad_token_id": None,
}


def step_of(rows, *, num_layers=1, heads=2, head_size=8) -> Step:
    shape = KVShape(
        num_layers=num_layers,
        block_size=4,
        num_kv_heads=heads,
        head_size=head_size,
        dtype=torch.float32,
    )
    cache = KVCache(shape, 8, CPU)
    cache._blocks.fill_(torch.nan)
    batch = Batch.build(rows, 4, CPU)
    return Step(cache, batch, ReferenceBackend().plan(batch), (None,) * num_layers)


def test_keys_and_values_are_stored_before_they_are_attended_to():
    step = step_of([BatchRow([0] * 5, 0, [6, 1], True)], num_layers=2)
    query, key, value = torch.randn(1, 6, 5, 8), torch.randn(1, 2, 5, 8), torch.randn(1, 2, 5, 8)

    output, weights = paged_attention(
        SimpleNamespace(layer_idx=1), query, key, value, None, splice_step=step
    )

    assert output.shape == (1, 5, 6, 8)
    assert weights is None
    stored = step.cache.layer(1)
    torch.testing.assert_close(stored[6, 0], key[0].transpose(0, 1)[:4])
    torch.testing.assert_close(stored[1, 1, 0], value[0, :, 4])
    assert stored[1, :, 1:].isnan().all()
    assert step.cache.layer(0).isnan().all()


@pytest.mark.parametrize("scaling", [None, 0.125, 1.0])
def test_it_equals_transformers_own_eager_attention(scaling):
    step = step_of([BatchRow([0] * 7, 0, [6, 1], True)])
    query, key, value = torch.randn(1, 6, 7, 8), torch.randn(1, 2, 7, 8), torch.randn(1, 2, 7, 8)
    module = SimpleNamespace(layer_idx=0, num_key_value_groups=3, training=False)
    mask = torch.full((7, 7), -torch.inf).triu(1)[None, None]

    output, _ = paged_attention(module, query, key, value, None, scaling=scaling, splice_step=step)

    eager, _ = eager_attention_forward(
        module, query, key, value, mask, scaling=8**-0.5 if scaling is None else scaling
    )
    torch.testing.assert_close(output, eager)


def test_registering_again_is_harmless():
    register()
    register()

    assert AttentionInterface()[IMPLEMENTATION] is paged_attention


@pytest.mark.parametrize("backend", ["reference", "batched", "cpu"])
@pytest.mark.parametrize(
    "config",
    [
        MistralConfig(**SMALL, sliding_window=5),
        Gemma2Config(
            **SMALL,
            sliding_window=6,
            attn_logit_softcapping=2.0,
            query_pre_attn_scalar=4,
            layer_types=["sliding_attention", "full_attention"],
        ),
    ],
    ids=["sliding windows", "windows and soft caps"],
)
def test_a_model_computed_in_chunks_has_the_logits_of_its_dense_self(config, backend):
    token_ids = [(7 * i) % VOCAB_SIZE for i in range(30)]
    register()
    model = build_model(config, IMPLEMENTATION)
    shape = ModelShape.of(model)
    cache = KVCache(shape.kv_shape(4, torch.float32), 12, CPU)
    cache._blocks.fill_(torch.nan)
    runner = ModelRunner(model, shape.windows, cache, backends()[backend])
    block_ids = [11, 3, 7, 0, 5, 9, 2, 8][: num_blocks_for(30, 4)]
    expected = DenseOracle(config).logits(token_ids)

    start = 0
    for num_tokens in (1, 9, 1, 1, 13, 1, 4):
        row = BatchRow(token_ids[start : start + num_tokens], start, block_ids, True)
        logits = runner.forward([row], [])
        start += num_tokens
        torch.testing.assert_close(logits[0], expected[start - 1], atol=2e-4, rtol=1e-3)
    assert start == 30
