"""The traced decode step: what is one call in it, and what it doesn't hold."""

from collections import Counter
from pathlib import Path

import pytest
import torch

from benchmarks.dense import build_model, tiny_llama
from benchmarks.tiny_configs import tiny_config
from model.attention.base import IMPLEMENTATION, register
from model.compiled.graph import trace
from model.compiled.order import BuildOrder
from model.few_rows import speed_up
from model.runner import ModelShape
from tests.support.native_kernels import native_ops

pytestmark = [
    pytest.mark.timeout(300),
    pytest.mark.filterwarnings("ignore::FutureWarning"),  # torch's own, of its pytrees
]


def traced(config, max_rows=12):
    register()
    ops = native_ops()
    model = build_model(config, IMPLEMENTATION).to(torch.bfloat16)
    speed_up(model, ops)
    shape = ModelShape.of(model)
    order = BuildOrder(
        blueprint=b"",
        native_dir=Path(),
        windows=shape.windows,
        kv=shape.kv_shape(4, torch.bfloat16),
        embedding_size=model.config.hidden_size,
        max_rows=max_rows,
        compiler="",
    )
    return trace(order, model, ops), config.num_hidden_layers


def calls(program):
    return Counter(
        str(node.target).split(".")[1]
        for node in program.graph.nodes
        if node.op == "call_function" and str(node.target).startswith("splice_")
    )


def test_a_layer_is_one_attention_and_four_products():
    program, num_layers = traced(tiny_llama())

    # Query, key and value; output; gate and up; down. The head is one more.
    assert calls(program) == {"attend_step": num_layers, "linears": 4 * num_layers + 1}
    assert not any("aten.embedding" in str(node.target) for node in program.graph.nodes)


def test_layers_with_biases_are_joined_with_theirs():
    program, num_layers = traced(tiny_config("qwen2"))

    assert calls(program) == {"attend_step": num_layers, "linears": 4 * num_layers + 1}
    joined = [
        (len(node.args[1]), node.args[2])
        for node in program.graph.nodes
        if "linears" in str(node.target)
    ]
    # Only query, key and value have biases.
    assert joined[:4] == [(6, 3), (1, 1), (2, 2), (1, 1)]
