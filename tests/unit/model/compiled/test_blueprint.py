"""A model without its weights: what goes along and what stays."""

import threading
from functools import partial

import pytest
import torch
from torch import nn

from model.compiled.blueprint import BlueprintError, build, draw
from model.few_rows import speed_up
from tests.support.native_kernels import native_ops


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.large = nn.Linear(1024, 512, dtype=torch.bfloat16).requires_grad_(False)
        self.tied = nn.Linear(1024, 512, dtype=torch.bfloat16)
        self.tied.weight = self.large.weight
        self.register_buffer("frequencies", torch.arange(6.0).reshape(2, 3).t(), persistent=False)
        self.kinds = {"a": partial(max, 3)}


def test_large_weights_leave_their_form_alone_and_small_tensors_their_values():
    model = Model()

    drawn = draw(model)
    again = build(drawn)

    assert len(drawn) < 20_000
    assert again.large.weight.shape == (512, 1024)
    assert again.large.weight.dtype is torch.bfloat16
    assert isinstance(again.large.weight, nn.Parameter)
    assert not again.large.weight.requires_grad
    assert torch.equal(again.frequencies, model.frequencies)
    assert again.frequencies.stride() == model.frequencies.stride()
    assert torch.equal(again.large.bias, model.large.bias)
    assert again.kinds["a"](2) == 3


def test_weights_that_are_one_stay_one():
    again = build(draw(Model()))

    assert again.tied.weight is again.large.weight


def test_layers_that_call_the_kernels_still_do():
    model = Model()
    assert speed_up(model, native_ops()) == 2

    again = build(draw(model))

    inputs = torch.randn(1, 1024).bfloat16()
    with torch.no_grad():
        again.large.weight.copy_(model.large.weight)
    assert torch.equal(again.large(inputs), model.large(inputs))


def test_a_model_that_holds_what_no_other_process_can_have_says_so():
    model = Model()
    model.lock = threading.Lock()

    with pytest.raises(BlueprintError, match="lock"):
        draw(model)
