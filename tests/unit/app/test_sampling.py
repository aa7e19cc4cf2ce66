"""Sampling fields lie over the defaults, within OpenAI's ranges."""

import pytest
from pydantic import ValidationError

from app.protocol import Sampled
from app.sampling import SMALLEST_TOP_P
from sessions.types import SamplingParams

DEFAULTS = SamplingParams(temperature=0.7, top_p=0.9)


def test_what_is_absent_or_null_is_the_default():
    assert Sampled(temperature=None).to_params(DEFAULTS) == DEFAULTS


def test_what_is_sent_wins():
    params = Sampled.model_validate(
        {
            "temperature": 0,
            "stop": "END",
            "seed": 7,
            "max_output_tokens": 5,
            "logit_bias": {"12": -100, "3": 1.5},
            "ignore_eos": True,
        }
    ).to_params(DEFAULTS)

    assert params.temperature == 0
    assert params.top_p == 0.9
    assert params.stop == ("END",)
    assert params.seed == 7
    assert params.max_output_tokens == 5
    assert params.logit_bias == ((3, 1.5), (12, -100.0))
    assert params.ignore_eos


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("temperature", 2.1),
        ("temperature", -0.1),
        ("temperature", "1"),
        ("temperature", True),
        ("top_p", 1.5),
        ("presence_penalty", 2.5),
        ("frequency_penalty", -2.5),
        ("repetition_penalty", 0),
        ("seed", 2**63),
        ("seed", 1.5),
        ("stop", ["a", "b", "c", "d", "e"]),
        ("stop", ["a", ""]),
        ("stop", ""),
        ("stop", 3),
        ("max_output_tokens", -1),
        ("max_output_tokens", 1.0),
        ("logit_bias", {"12": 101}),
        ("logit_bias", {"word": 1}),
        ("logit_bias", {"\N{ARABIC-INDIC DIGIT THREE}": 1}),
        ("min_p", float("inf")),
    ],
)
def test_what_is_out_of_range_is_refused(name, value):
    with pytest.raises(ValidationError):
        Sampled.model_validate({name: value})


def test_a_zero_share_still_leaves_the_likeliest_token():
    assert Sampled(top_p=0).to_params(DEFAULTS).top_p == SMALLEST_TOP_P


def test_minus_one_turns_top_k_off():
    assert Sampled(top_k=-1).to_params(DEFAULTS).top_k == 0
