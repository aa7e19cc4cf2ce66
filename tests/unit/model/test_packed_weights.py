"""Weights in 4 and 8 bits: how near they are, and that packing loses nothing."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from model import packed_weights
from model.packed_weights import (
    GROUP,
    bits_of,
    group_bytes,
    pack,
    quantize,
    quantize_packed,
    unpack,
)

sizes = st.integers(1, 130)
every_width = pytest.mark.parametrize("bits", [4, 8])


def random_weight(num_outputs, num_inputs, seed=0):
    return torch.randn(num_outputs, num_inputs, generator=torch.Generator().manual_seed(seed))


@every_width
@given(num_outputs=sizes, num_inputs=sizes, seed=st.integers(0, 99))
@settings(max_examples=40, derandomize=True, deadline=None)
def test_what_was_packed_comes_back(bits, num_outputs, num_inputs, seed):
    codes = quantize(random_weight(num_outputs, num_inputs, seed), bits)

    packed = pack(codes)

    num_groups = -(-num_inputs // GROUP)
    assert packed.shape == (-(-num_outputs // 16), num_groups, group_bytes(bits))
    assert bits_of(packed) == bits == codes.bits
    back = unpack(packed, bits, num_outputs)
    assert torch.equal(back.codes, codes.codes)
    assert torch.equal(back.scales, codes.scales)
    assert (back.minima is None) == (codes.minima is None)
    if codes.minima is not None:
        assert torch.equal(back.minima, codes.minima)


@every_width
@given(num_outputs=sizes, num_inputs=sizes, seed=st.integers(0, 99))
@settings(max_examples=40, derandomize=True, deadline=None)
def test_a_weight_is_within_half_a_step_of_itself(bits, num_outputs, num_inputs, seed):
    weight = random_weight(num_outputs, num_inputs, seed).bfloat16()

    codes = quantize(weight, bits)

    # Half a step, and what rounding scale and minimum to float16 moves the ends by.
    scales = codes.scales.float().repeat_interleave(GROUP, 1)[:, :num_inputs]
    error = (codes.weights()[:, :num_inputs] - weight.float()).abs()
    assert (error <= scales * 0.51 + weight.abs().amax() * 2**-10).all()


@every_width
@pytest.mark.parametrize("num_outputs", [1, 32, 40, 70])
def test_some_rows_after_the_others_are_as_all_at_once(bits, num_outputs, monkeypatch):
    monkeypatch.setattr(packed_weights, "_ROWS_AT_ONCE", 32)
    weight = random_weight(num_outputs, 50).bfloat16()

    assert torch.equal(quantize_packed(weight, bits), pack(quantize(weight, bits)))


@every_width
def test_a_group_of_one_number_is_that_number(bits):
    for number in (0.0, 1.0, -0.5, 1e-9):
        weights = quantize(torch.full((3, GROUP), number), bits).weights()
        torch.testing.assert_close(weights, torch.full_like(weights, number), rtol=1e-3, atol=1e-8)


def test_eight_bits_know_zero_and_the_largest():
    weight = torch.tensor([[0.0, 127.0, -127.0, 1.0] * 8])

    assert torch.equal(quantize(weight, 8).weights(), weight)


def test_four_bits_are_of_less_than_half_the_bytes_of_sixteen():
    assert group_bytes(4) * 8 / (16 * GROUP) == 5
    assert group_bytes(8) * 8 / (16 * GROUP) == 8.5


def test_other_tensors_are_no_packed_weights():
    with pytest.raises(ValueError, match="no packed weight"):
        bits_of(torch.zeros(2, 3, 100))
