"""A model that remembers something besides keys and values does not get past the load."""

import pytest
import torch

from benchmarks.dense import build_model, tiny_llama
from model.attention.base import IMPLEMENTATION, register
from model.errors import ModelLoadError
from model.runner import ModelShape
from model.self_check import check_answers, relative_error
from tests.support.tiny_model import backends


@pytest.fixture
def model():
    register()
    return build_model(tiny_llama(), IMPLEMENTATION)


@pytest.mark.parametrize("backend", ["reference", "batched", "cpu"])
def test_a_model_of_keys_and_values_alone_passes_and_is_left_as_it_was(model, backend):
    check_answers(model, ModelShape.of(model), backends()[backend])

    assert model.config._attn_implementation == IMPLEMENTATION


def test_a_model_that_mixes_in_the_token_before_is_refused_by_name(model):
    def mix(module, inputs, output):
        return output + output.roll(1, dims=1)

    shape = ModelShape.of(model)
    model.model.layers[0].mlp.register_forward_hook(mix)

    with pytest.raises(ModelLoadError, match=r"'llama'.*besides keys and values"):
        check_answers(model, shape, backends()["reference"])


def test_a_model_whose_answers_are_not_numbers_is_refused(model):
    shape = ModelShape.of(model)
    model.lm_head.weight.fill_(torch.nan)

    with pytest.raises(ModelLoadError, match="nan%"):
        check_answers(model, shape, backends()["reference"])


def test_the_error_is_relative_to_the_spread_and_ignores_a_shift():
    truth = torch.tensor([[1.0, 3.0]])

    assert relative_error(truth, truth + 5).item() == 0
    assert relative_error(truth, torch.tensor([[0.0, 3.0]])).item() == pytest.approx(0.5)
