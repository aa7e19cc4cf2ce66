"""Linear layers at a few rows: the compiled product against torch's."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from model.few_rows import MAX_ROWS, speed_up
from model.native.operators import levels
from tests.support.native_kernels import native_ops, threads

sizes = st.sampled_from([1, 2, 3, 15, 16, 31, 33, 64, 100, 576])


@pytest.fixture(scope="module", autouse=True)
def _compiled():
    native_ops()


def layer_of(num_inputs, num_outputs, *, bias=False):
    return nn.Linear(num_inputs, num_outputs, bias=bias, dtype=torch.bfloat16).requires_grad_(False)


@given(
    num_rows=st.integers(1, 9),
    num_inputs=sizes,
    num_outputs=sizes,
    has_bias=st.booleans(),
    number=st.integers(1, 2),
)
@settings(max_examples=60, derandomize=True, deadline=None)
def test_every_level_is_as_near_as_bfloat16_is(num_rows, num_inputs, num_outputs, has_bias, number):
    layer = layer_of(num_inputs, num_outputs, bias=has_bias)
    inputs = torch.randn(num_rows, num_inputs).bfloat16()
    expected = layer.double()(inputs.double())
    layer.bfloat16()
    ops = native_ops()
    for level in range(len(levels(ops))):
        output = torch.full((num_rows, num_outputs), torch.nan, dtype=torch.bfloat16)

        with threads(number):
            ops.linear(output, inputs, layer.weight, layer.bias, level)

        # Half a unit of bfloat16's last place, and what summing in float32 loses.
        torch.testing.assert_close(output.double(), expected, rtol=2**-8, atol=1e-4)


def test_weights_of_many_parts_are_shared_out_among_threads():
    layer, inputs = layer_of(576, 3001), torch.randn(3, 576).bfloat16()
    output = torch.empty(3, 3001, dtype=torch.bfloat16)

    with threads(2):
        native_ops().linear(output, inputs, layer.weight, None, -1)

    torch.testing.assert_close(output, layer(inputs))


class Noting:
    """The operator, and how often it was called."""

    def __init__(self):
        self.rows = []

    def linear(self, output, inputs, weight, bias, level):
        self.rows.append(inputs.numel() // weight.shape[1])
        native_ops().linear(output, inputs, weight, bias, level)


@pytest.mark.parametrize("bias", [False, True])
def test_a_few_rows_go_to_the_kernel_and_more_to_torch(bias):
    layer, ops = layer_of(48, 20, bias=bias), Noting()
    plain = layer_of(48, 20, bias=bias)
    plain.load_state_dict(layer.state_dict())
    assert speed_up(nn.Sequential(layer), ops) == 1

    for shape in ((48,), (1, 1, 48), (1, MAX_ROWS, 48), (1, MAX_ROWS + 1, 48)):
        inputs = torch.randn(shape).bfloat16()
        torch.testing.assert_close(layer(inputs), plain(inputs), rtol=2**-7, atol=1e-3)
    across = torch.randn(48, 2).bfloat16().t()
    torch.testing.assert_close(layer(across), plain(across), rtol=2**-7, atol=1e-3)

    assert ops.rows == [1, 1, MAX_ROWS, 2]


def test_only_plain_bfloat16_layers_are_meant():
    class Own(nn.Linear):
        pass

    model = nn.Sequential(
        nn.Linear(4, 4), Own(4, 4, dtype=torch.bfloat16), nn.Embedding(4, 4), layer_of(4, 4)
    )

    assert speed_up(model, native_ops()) == 1
    assert "forward" in vars(model[3])
    assert not any("forward" in vars(layer) for layer in model[:3])


@pytest.mark.parametrize("max_rows", [1, 8])
@pytest.mark.parametrize("has_bias", [False, True])
def test_layers_of_the_same_input_are_one_call_with_their_outputs_side_by_side(max_rows, has_bias):
    layers = [layer_of(48, n, bias=has_bias) for n in (20, 3, 33)]
    inputs = torch.randn(1, 5, 96).bfloat16()[..., 20:68]  # that are not contiguous
    biases = [layer.bias for layer in layers] if has_bias else []

    weights = [layer.weight for layer in layers]
    joined = native_ops().linears(inputs, [*weights, *biases], [20, 3, 33], max_rows, -1)

    expected = torch.cat([layer(inputs) for layer in layers], dim=-1)
    torch.testing.assert_close(joined, expected, rtol=2**-7, atol=1e-3)
    assert joined.is_contiguous()


def test_one_layer_in_one_call_is_what_it_is_alone():
    layer, inputs = layer_of(576, 3001, bias=True), torch.randn(3, 576).bfloat16()
    alone = torch.empty(3, 3001, dtype=torch.bfloat16)
    native_ops().linear(alone, inputs, layer.weight, layer.bias, -1)

    joined = native_ops().linears(inputs, [layer.weight, layer.bias], [3001], MAX_ROWS, -1)

    assert torch.equal(joined, alone)
    many = native_ops().linears(inputs, [layer.weight, layer.bias], [3001], 2, -1)
    assert torch.equal(many, layer(inputs))
