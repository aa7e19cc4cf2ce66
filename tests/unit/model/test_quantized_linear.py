"""Linear layers with packed weights: the kernels, and which product is taken when."""

import copy

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from model.native.operators import levels
from model.packed_weights import GROUP, Codes, pack, quantize
from model.quantized_linear import MAX_FLOAT_ROWS, Product, product_of, quantize_layer
from tests.support.native_kernels import native_ops, threads

LIMIT = MAX_FLOAT_ROWS
every_width = pytest.mark.parametrize("bits", [4, 8])
every_dtype = pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)


@pytest.fixture(scope="module", autouse=True)
def _compiled():
    native_ops()


def multiply_few(inputs, packed, sizes, bits, level, biases=(None,)):
    """With activations of 16 bits, however many rows there are."""
    parameters = [*packed, *(bias for bias in biases if bias is not None)]
    return native_ops().linears_packed(inputs, parameters, sizes, bits, len(inputs), level)


def allowed_error(codes: Codes, inputs, expected):
    """Half a step of an activation's 16 bits a product, float32's sums, the result's dtype."""
    num_inputs = inputs.shape[1]
    padded = nn.functional.pad(inputs.double(), (0, -num_inputs % GROUP))
    steps = padded.view(len(inputs), -1, GROUP).abs().amax(-1) / 65534
    steps = steps.repeat_interleave(GROUP, 1)
    sizes = codes.weights().double().abs()
    scaled = (codes.codes * codes.scales.double().repeat_interleave(GROUP, 1)).abs()
    sums = padded.abs() @ (sizes + scaled).t()
    place = 2**-8 if inputs.dtype is torch.bfloat16 else 2**-23
    return steps @ sizes.t() * 1.01 + 1e-6 * sums + place * expected.abs() + 1e-30


@every_width
@every_dtype
@given(
    num_rows=st.integers(1, 19),
    num_inputs=st.sampled_from([1, 31, 32, 33, 64, 100, 576]),
    num_outputs=st.sampled_from([1, 15, 16, 17, 100, 700]),
    has_bias=st.booleans(),
    number=st.integers(1, 2),
)
@settings(max_examples=40, derandomize=True, deadline=None)
def test_every_level_is_as_near_as_its_numbers_are(
    bits, dtype, num_rows, num_inputs, num_outputs, has_bias, number
):
    codes = quantize(torch.randn(num_outputs, num_inputs), bits)
    packed, ops = pack(codes), native_ops()
    inputs = torch.randn(num_rows, num_inputs).to(dtype)
    bias = torch.randn(num_outputs).to(dtype) if has_bias else None
    expected = inputs.double() @ codes.weights()[:, :num_inputs].double().t()
    expected = expected if bias is None else expected + bias.double()
    for level in range(len(levels(ops))):
        with threads(number):
            output = multiply_few(inputs, [packed], [num_outputs], bits, level, [bias])

        error = (output.double() - expected).abs()
        assert (error <= allowed_error(codes, inputs, expected)).all(), levels(ops)[level]


@every_width
@every_dtype
def test_extreme_codes_and_inputs_do_not_overflow(bits, dtype):
    extreme = torch.tensor([15 if bits == 4 else -128]).to(torch.uint8 if bits == 4 else torch.int8)
    ones = torch.ones(16, 18, dtype=torch.float16)
    codes = Codes(extreme.expand(16, 576), ones, -ones if bits == 4 else None)
    inputs, ops = torch.full((4, 576), -1e20, dtype=dtype), native_ops()
    for level in range(len(levels(ops))):
        output = multiply_few(inputs, [pack(codes)], [16], bits, level)
        expected = inputs.double() @ codes.weights().double().t()
        torch.testing.assert_close(output.double(), expected, rtol=2**-7, atol=0)


@every_width
@every_dtype
def test_what_is_no_number_spoils_its_own_row_and_no_other(bits, dtype):
    packed, ops = pack(quantize(torch.randn(20, 64), bits)), native_ops()
    inputs = torch.randn(3, 64).to(dtype)
    inputs[1, 40] = torch.nan
    for level in range(len(levels(ops))):
        output = multiply_few(inputs, [packed], [20], bits, level)
        assert output.isnan().all(-1).tolist() == [False, True, False]
        assert output[::2].isfinite().all()


@every_width
def test_a_scale_that_float16_barely_holds_is_multiplied_as_it_is(bits):
    codes = quantize(torch.randn(16, 64) * 1e-5, bits)
    inputs, ops = torch.randn(2, 64), native_ops()
    assert codes.scales.max() < 2**-14  # subnormal
    for level in range(len(levels(ops))):
        output = multiply_few(inputs, [pack(codes)], [16], bits, level)
        torch.testing.assert_close(output, inputs @ codes.weights().t(), rtol=1e-3, atol=1e-8)


@every_width
@every_dtype
@pytest.mark.parametrize("has_bias", [False, True])
@pytest.mark.parametrize("num_rows", [1, 17, 600])
@pytest.mark.parametrize("max_rows", [0, 16])
def test_layers_of_the_same_input_are_one_call_with_their_outputs_side_by_side(
    bits, dtype, has_bias, num_rows, max_rows
):
    sizes = [20, 3, 48, 700]
    packed = [pack(quantize(torch.randn(size, 100), bits)) for size in sizes]
    biases = [torch.randn(size).to(dtype) for size in sizes] if has_bias else []
    inputs = torch.randn(2, num_rows, 160).to(dtype)[..., 30:130]  # that are not contiguous
    ops = native_ops()
    for level in range(len(levels(ops))):

        def multiply(layers, num, level=level):
            return ops.linears_packed(inputs, layers, num, bits, max_rows, level)

        with threads(2):
            joined = multiply([*packed, *biases], sizes)
        pairs = zip(packed, biases, strict=True) if has_bias else ((p,) for p in packed)
        alone = [multiply(list(pair), [n]) for pair, n in zip(pairs, sizes, strict=True)]
        assert torch.equal(joined, torch.cat(alone, dim=-1)), levels(ops)[level]


@every_width
@every_dtype
@given(num_inputs=st.integers(1, 100), num_outputs=st.integers(1, 100), number=st.integers(1, 2))
@settings(max_examples=20, derandomize=True, deadline=None)
def test_weights_are_unpacked_as_they_are(bits, dtype, num_inputs, num_outputs, number):
    codes = quantize(torch.randn(num_outputs, num_inputs), bits)
    packed, ops = pack(codes), native_ops()
    for level in range(len(levels(ops))):
        whole = torch.full((codes.codes.shape[1], packed.shape[0] * 16), torch.nan, dtype=dtype)
        with threads(number):
            ops.unpack(whole, packed, bits, level)
        torch.testing.assert_close(whole[:, :num_outputs].t(), codes.weights().to(dtype))


# Layers


class Noting:
    """The operators, and with how many rows they were called."""

    def __init__(self):
        self.rows = []
        self.num_unpacked = 0

    def linears_packed(self, inputs, *arguments):
        self.rows.append(inputs.numel() // inputs.shape[-1])
        return native_ops().linears_packed(inputs, *arguments)

    def unpack(self, output, packed, bits, level):
        self.num_unpacked += 1
        native_ops().unpack(output, packed, bits, level)

    def multiplies_bytes(self, bits, level):
        return False


def layer_with(codes: Codes, *, bias, dtype):
    """A layer whose own weights are what the codes stand for."""
    num_outputs, num_inputs = codes.codes.shape
    layer = nn.Linear(num_inputs, num_outputs, bias=bias, dtype=dtype).requires_grad_(False)
    layer.weight.copy_(codes.weights())
    return layer


@every_width
@pytest.mark.parametrize("keeps_weight", [True, False])
@pytest.mark.parametrize("bias", [True, False])
def test_a_few_rows_take_packed_weights_and_more_the_layers_own(bits, keeps_weight, bias):
    codes, ops = quantize(torch.randn(20, 64), bits), Noting()
    layer = layer_with(codes, bias=bias, dtype=torch.float32)
    plain = copy.deepcopy(layer)

    packed = pack(codes)
    quantize_layer(layer, packed, product_of(packed, torch.float32, ops), keeps_weight=keeps_weight)

    for shape in ((64,), (1, 1, 64), (1, LIMIT, 64), (1, LIMIT + 1, 64), (2, LIMIT, 64)):
        inputs = torch.randn(shape)
        torch.testing.assert_close(layer(inputs), plain(inputs), rtol=1e-3, atol=1e-3)
    across = torch.randn(64, 2).t()
    torch.testing.assert_close(layer(across), plain(across), rtol=1e-3, atol=1e-3)
    assert ops.rows == [1, 1, LIMIT, 2]
    assert ops.num_unpacked == (0 if keeps_weight else 2)
    assert layer.weight.numel() == (plain.weight.numel() if keeps_weight else 0)
    assert layer.weight.dtype is torch.float32


@every_width
def test_a_program_can_capture_the_layer(bits):
    codes = quantize(torch.randn(20, 64), bits)
    layer = layer_with(codes, bias=True, dtype=torch.float32)
    product = Product(native_ops(), bits, LIMIT, takes_bytes=False)
    quantize_layer(layer, pack(codes), product, keeps_weight=True)
    rows = torch.export.Dim("rows", min=2, max=LIMIT)

    captured = torch.export.export(
        nn.Sequential(layer), (torch.randn(3, 64),), dynamic_shapes=({0: rows},)
    )

    assert "linears_packed" in captured.graph_module.code
    for num_rows in (2, LIMIT):
        inputs = torch.randn(num_rows, 64)
        torch.testing.assert_close(captured.module()(inputs), layer(inputs))
