"""The traced step: what is one call in it, and what it doesn't hold."""

from collections import Counter
from functools import partial
from pathlib import Path

import pytest
import torch

from benchmarks.dense import build_model, tiny_llama
from benchmarks.tiny_configs import tiny_config
from model import quantization
from model.attention.base import IMPLEMENTATION, register
from model.compiled.graph import trace
from model.compiled.order import MAX_ROWS as MOST_ROWS
from model.compiled.order import BuildOrder
from model.few_rows import speed_up
from model.packed_weights import bits_of
from model.quantization import Plan, quantize_model
from model.quantized_linear import MAX_ROWS, Product, row_limit
from model.runner import ModelShape
from tests.support.native_kernels import native_ops

pytestmark = [
    pytest.mark.timeout(300),
    pytest.mark.filterwarnings("ignore::FutureWarning"),  # torch's own, of its pytrees
]


def traced(config, bits=None):
    register()
    ops = native_ops()
    model = build_model(config, IMPLEMENTATION).to(torch.bfloat16)
    if bits is not None:
        quantize_model(model, Plan(ops=ops, packed_file=None, bits=bits), lambda _: None)
    speed_up(model, ops)
    shape = ModelShape.of(model)
    order = BuildOrder(
        blueprint=b"",
        native_dir=Path(),
        windows=shape.windows,
        kv=shape.kv_shape(4, torch.bfloat16),
        embedding_size=model.config.hidden_size,
        dtype=torch.bfloat16,
        max_rows=row_limit(model) or MOST_ROWS,
        compiler="",
    )
    return trace(order, model, ops), config.num_hidden_layers


def product(packed, _dtype, ops, *, takes_bytes):
    return Product(ops, bits_of(packed), MAX_ROWS, takes_bytes)


def row_range(program):
    """From how many rows to how many the graph is right."""
    (rows,) = {program.graph_signature.user_inputs[0]} & {n.name for n in program.graph.nodes}
    size = next(n for n in program.graph.nodes if n.name == rows).meta["val"].shape[0]
    found = program.range_constraints[size.node.expr]
    return int(found.lower), int(found.upper)


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
        (len(node.args[1]), len(node.args[2]))
        for node in program.graph.nodes
        if "linears" in str(node.target)
    ]
    # Only query, key and value have biases.
    assert joined[:4] == [(6, 3), (1, 1), (2, 2), (1, 1)]


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("takes_bytes", [False, True])
def test_packed_weights_are_products_of_their_own_for_the_rows_that_take_them(
    monkeypatch, bits, takes_bytes
):
    monkeypatch.setattr(quantization, "product_of", partial(product, takes_bytes=takes_bytes))
    program, num_layers = traced(tiny_llama(), bits=bits)

    assert calls(program) == {"attend_step": num_layers, "linears_packed": 4 * num_layers + 1}
    assert row_range(program)[1] == (MOST_ROWS if takes_bytes else MAX_ROWS)
