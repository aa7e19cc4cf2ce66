"""One step of a tiny model: rows in, logits out, and every row counted."""

import torch
from transformers import Qwen2Config

from benchmarks.dense import VOCAB_SIZE, DenseOracle, build_model, tiny_llama, tiny_qwen3
from model.attention.base import IMPLEMENTATION, register
from model.attention.reference import ReferenceBackend
from model.batch import BatchRow
from model.block_supply import BlockEdit
from model.config import SamplingParams
from model.kv_cache import KVCache
from model.runner import ModelRunner, ModelShape
from model.sampler import Draw

IDS = [(11 * i) % VOCAB_SIZE for i in range(20)]


def make_runner(config=None) -> ModelRunner:
    register()
    model = build_model(config or tiny_llama(), IMPLEMENTATION)
    shape = ModelShape.of(model)
    cache = KVCache(shape.kv_shape(4, torch.float32), 16, model.device)
    cache._blocks.fill_(torch.nan)
    return ModelRunner(model, shape.windows, cache, ReferenceBackend())


def test_the_shape_is_read_from_the_configuration():
    shape = ModelShape.of(build_model(tiny_qwen3(), "eager"))

    assert (shape.num_layers, shape.num_kv_heads, shape.head_size) == (2, 2, 12)
    assert (shape.vocab_size, shape.max_positions) == (VOCAB_SIZE, 512)
    assert shape.kv_shape(4, torch.bfloat16).block_bytes == 2 * 2 * 4 * 2 * 12 * 2


def test_heads_without_a_size_of_their_own_share_the_hidden_size():
    config = Qwen2Config(
        vocab_size=VOCAB_SIZE,
        hidden_size=48,
        intermediate_size=64,
        num_hidden_layers=1,
        num_attention_heads=6,
        num_key_value_heads=3,
    )

    shape = ModelShape.of(build_model(config, "eager"))

    assert (shape.num_kv_heads, shape.head_size) == (3, 8)


def test_logits_come_behind_the_rows_that_want_them_and_in_their_order():
    runner, oracle = make_runner(), DenseOracle(tiny_llama())
    rows = [
        BatchRow(IDS[:7], 0, [3, 5], has_logits=True),
        BatchRow(IDS[5:9], 0, [9], has_logits=False),
        BatchRow(IDS[10:13], 0, [1], has_logits=True),
    ]

    logits = runner.forward(rows, [])

    assert logits.shape == (2, VOCAB_SIZE)
    assert logits.dtype == torch.float32
    torch.testing.assert_close(logits[0], oracle.logits(IDS[:7])[-1], atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(logits[1], oracle.logits(IDS[10:13])[-1], atol=1e-4, rtol=1e-4)


def test_a_step_without_logits_still_writes_its_keys():
    runner, oracle = make_runner(), DenseOracle(tiny_llama())

    nothing = runner.forward([BatchRow(IDS[:6], 0, [2, 8], has_logits=False)], [])
    logits = runner.forward([BatchRow(IDS[6:8], 6, [2, 8], has_logits=True)], [])

    assert nothing.shape == (0, VOCAB_SIZE)
    torch.testing.assert_close(logits[0], oracle.logits(IDS[:8])[-1], atol=1e-4, rtol=1e-4)


def test_blocks_are_copied_before_the_step_writes():
    runner, oracle = make_runner(), DenseOracle(tiny_llama())
    runner.forward([BatchRow(IDS[:6], 0, [2, 8], has_logits=True)], [])
    forked = [*IDS[:6], 50]

    rows = [
        BatchRow([IDS[6]], 6, [2, 8], has_logits=True),
        BatchRow([50], 6, [2, 4], has_logits=True),
    ]
    logits = runner.forward(rows, [BlockEdit(8, 4)])

    torch.testing.assert_close(logits[0], oracle.logits(IDS[:7])[-1], atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(logits[1], oracle.logits(forked)[-1], atol=1e-4, rtol=1e-4)


def test_every_row_that_enters_the_embedding_is_counted():
    runner = make_runner()
    runner.forward([BatchRow(IDS[:6], 0, [0, 1], True), BatchRow(IDS[:3], 0, [2], False)], [])
    assert runner.num_rows == 9

    runner._model.get_input_embeddings()(torch.tensor([[1, 2]]))

    assert runner.num_rows == 11


def test_no_step_remembers_gradients():
    runner = make_runner()

    logits = runner.forward([BatchRow(IDS[:3], 0, [0], True)], [])

    assert logits.is_inference()
    draw = Draw(SamplingParams(presence_penalty=1.0), 3, 3, IDS[:3], 1)
    assert 0 <= runner.sample(logits, [draw])[0].token_id < VOCAB_SIZE
