"""Packed weights times many rows with activations of 8 bits, and when layers take that product."""

import copy

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from model import quantized_linear
from model.native.operators import levels
from model.packed_weights import GROUP, Codes, pack, quantize
from model.quantized_linear import MAX_FLOAT_ROWS, MAX_ROWS, product_of, quantize_layer
from tests.support.native_kernels import native_ops, threads

every_width = pytest.mark.parametrize("bits", [4, 8])
every_dtype = pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)


@pytest.fixture(scope="module", autouse=True)
def _compiled():
    native_ops()


def products(inputs, codes: Codes, bias=None, number=1):
    """What each level makes of it."""
    packed, ops = pack(codes), native_ops()
    num_outputs = codes.codes.shape[0]
    for level in range(len(levels(ops))):
        parameters = [packed] if bias is None else [packed, bias]
        with threads(number):
            output = ops.linears_packed(inputs, parameters, [num_outputs], codes.bits, 0, level)
        yield output


def truth(inputs, codes: Codes):
    return inputs.double() @ codes.weights()[:, : inputs.shape[1]].double().t()


def allowed_error(codes: Codes, inputs, expected):
    """Half a step of an activation's 8 bits a product, float32's sums, the result's dtype."""
    num_inputs = inputs.shape[1]
    padded = nn.functional.pad(inputs.double(), (0, -num_inputs % GROUP))
    steps = padded.view(len(inputs), -1, GROUP).abs().amax(-1) / 254
    steps = steps.repeat_interleave(GROUP, 1)
    sizes = codes.weights().double().abs()
    scaled = (codes.codes * codes.scales.double().repeat_interleave(GROUP, 1)).abs()
    offset = 128 * codes.scales.double().repeat_interleave(GROUP, 1)
    sums = padded.abs() @ (sizes + scaled + offset).t()
    place = 2**-8 if inputs.dtype is torch.bfloat16 else 2**-23
    return steps @ sizes.t() * 1.01 + 1e-6 * sums + place * expected.abs() + 1e-30


@every_width
@every_dtype
@given(
    num_rows=st.integers(1, 70),
    num_inputs=st.sampled_from([1, 31, 32, 33, 64, 100, 576]),
    num_outputs=st.sampled_from([1, 15, 16, 17, 33, 100, 700]),
    has_bias=st.booleans(),
    number=st.integers(1, 2),
)
@settings(max_examples=40, derandomize=True, deadline=None)
def test_every_level_is_as_near_as_its_numbers_are(
    bits, dtype, num_rows, num_inputs, num_outputs, has_bias, number
):
    codes = quantize(torch.randn(num_outputs, num_inputs), bits)
    inputs = torch.randn(num_rows, num_inputs).to(dtype)
    bias = torch.randn(num_outputs).to(dtype) if has_bias else None
    expected = truth(inputs, codes)
    expected = expected if bias is None else expected + bias.double()

    for output in products(inputs, codes, bias, number):
        error = (output.double() - expected).abs()
        assert (error <= allowed_error(codes, inputs, expected)).all()


@every_width
@pytest.mark.parametrize("num_rows", [300, 1100])
def test_threads_and_parts_of_many_rows_change_no_number(bits, num_rows):
    codes = quantize(torch.randn(240, 96), bits)
    inputs = torch.randn(num_rows, 96).bfloat16()
    inputs[::7, 5] = 40.0
    apart = zip(*(products(x, codes) for x in inputs.split(50)), strict=True)

    for one, two, parts in zip(
        products(inputs, codes), products(inputs, codes, number=2), apart, strict=True
    ):
        assert torch.equal(one, two)
        assert torch.equal(one, torch.cat(parts))
        error = (one.double() - truth(inputs, codes)).norm() / truth(inputs, codes).norm()
        assert error < 0.01


@every_width
def test_a_large_activation_does_not_blur_its_neighbours(bits):
    codes = quantize(torch.randn(64, 128), bits)
    inputs = torch.randn(30, 128)
    inputs[:, 50] = 30.0
    without = inputs.clone()
    without[:, 50] = 0.0
    size = truth(without, codes).norm()

    for output in products(inputs, codes):
        assert (output.double() - truth(inputs, codes)).norm() / size < 0.01


@every_width
@every_dtype
@pytest.mark.parametrize("spoilt", [torch.nan, torch.inf, -torch.inf])
def test_what_is_no_number_spoils_its_own_row_and_no_other(bits, dtype, spoilt):
    codes = quantize(torch.randn(20, 64), bits)
    inputs = torch.randn(19, 64).to(dtype)
    plain = list(products(inputs, codes))
    inputs[1, 40] = spoilt
    others = [i for i in range(19) if i != 1]

    for output, before in zip(products(inputs, codes), plain, strict=True):
        assert not output[1].isfinite().any()
        assert torch.equal(output[others], before[others])


@every_width
@every_dtype
@pytest.mark.parametrize("size", [0.0, 1e-38, 1e-20, 1e20, 1e30])
def test_no_size_of_the_inputs_overflows(bits, dtype, size):
    codes = quantize(torch.randn(33, 64), bits)
    inputs = (torch.randn(18, 64).clamp(-3, 3) * size).to(dtype)
    expected = truth(inputs, codes)

    for output in products(inputs, codes):
        error = (output.double() - expected).abs()
        assert (error <= allowed_error(codes, inputs, expected) + 1e-28).all()


@every_width
def test_extreme_codes_do_not_overflow(bits):
    extreme = torch.tensor([15 if bits == 4 else -128]).to(torch.uint8 if bits == 4 else torch.int8)
    ones = torch.ones(16, 18, dtype=torch.float16)
    codes = Codes(extreme.expand(16, 576), ones, -ones if bits == 4 else None)
    inputs = torch.full((20, 576), -3.0)

    for output in products(inputs, codes):
        torch.testing.assert_close(output.double(), truth(inputs, codes), rtol=1e-5, atol=0)


# Layers


class Noting:
    """The operators, and which were called."""

    def __init__(self, *, multiplies_bytes):
        self.called = []
        self._multiplies_bytes = multiplies_bytes

    def linears_packed(self, inputs, parameters, sizes, bits, max_rows, level):
        is_few = inputs.numel() <= max_rows * inputs.shape[-1]
        self.called.append("few" if is_few else "many")
        return native_ops().linears_packed(inputs, parameters, sizes, bits, max_rows, level)

    def unpack(self, *arguments):
        self.called.append("unpack")
        native_ops().unpack(*arguments)

    def multiplies_bytes(self, bits, level):
        assert (bits in (4, 8), level) == (True, -1)
        return self._multiplies_bytes


def test_only_levels_with_products_of_bytes_say_so():
    ops = native_ops()
    names = levels(ops)

    four, eight = ([ops.multiplies_bytes(b, i) for i in range(len(names))] for b in (4, 8))
    assert four == [name != "portable" for name in names]
    assert eight == [name in ("avx512_vnni", "avx512_bf16") for name in names]
    assert (ops.multiplies_bytes(4, -1), ops.multiplies_bytes(8, -1)) == (four[-1], eight[-1])


@every_width
@every_dtype
@pytest.mark.parametrize("multiplies_bytes", [True, False])
@pytest.mark.parametrize("has_amx", [True, False])
def test_many_rows_take_bytes_where_they_are_fastest_and_near_enough(
    monkeypatch, bits, dtype, multiplies_bytes, has_amx
):
    monkeypatch.setattr(quantized_linear, "_has_amx", lambda: has_amx)
    takes_bytes = multiplies_bytes and (dtype is torch.float32 or not has_amx)
    limit = MAX_ROWS if takes_bytes or dtype is torch.bfloat16 else MAX_FLOAT_ROWS
    codes = quantize(torch.randn(20, 64), bits)
    layer = nn.Linear(64, 20, bias=bits == 4, dtype=dtype).requires_grad_(False)
    layer.weight.copy_(codes.weights())
    plain, ops = copy.deepcopy(layer), Noting(multiplies_bytes=multiplies_bytes)

    packed = pack(codes)
    quantize_layer(layer, packed, product_of(packed, dtype, ops), keeps_weight=False)

    for shape in ((1, limit, 64), (1, limit + 1, 64), (2, limit, 64)):
        inputs = torch.randn(shape).to(dtype)
        torch.testing.assert_close(layer(inputs), plain(inputs), rtol=2e-2, atol=0.3)
    across = torch.randn(64, 2 * limit).to(dtype).t()
    torch.testing.assert_close(layer(across), plain(across), rtol=2e-2, atol=0.3)
    assert ops.called == ["few", *(["many" if takes_bytes else "unpack"] * 3)]
