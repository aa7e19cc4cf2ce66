"""Defaults of sampling: the operator's over the model's."""

from app.config import SamplingDefaults
from model.config import SamplingParams

MODEL = SamplingParams(temperature=0.2, top_p=0.9, top_k=40)


def test_what_the_operator_leaves_open_is_the_models():
    assert SamplingDefaults().over(MODEL) == MODEL


def test_what_the_operator_sets_wins():
    defaults = SamplingDefaults(temperature=0.0, top_p=0.5, max_output_tokens=7).over(MODEL)
    assert defaults == SamplingParams(temperature=0.0, top_p=0.5, top_k=40, max_output_tokens=7)
