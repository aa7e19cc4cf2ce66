"""Drawing a token: each parameter against another implementation, and how often each comes."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from model import sampler
from model.config import SamplingParams
from model.sampler import Draw, uniform

GREEDY = SamplingParams(temperature=0.0)


def draw(params, *, seed=0, position=0, prompt=(), reply=()) -> Draw:
    return Draw(params, seed, position, [*prompt, *reply], len(prompt))


def sample(logits, draws) -> list[int]:
    return [sampled.token_id for sampled in sampler.sample(logits, draws)]


def sample_one(logits, params, **fields) -> int:
    return sample(torch.tensor([logits], dtype=torch.float32), [draw(params, **fields)])[0]


# The field's definitions, written down once more, plainly and in numpy.


def penalised(logits, params, prompt, reply):
    logits = np.array(logits, dtype=np.float64)
    for token_id in {*prompt, *reply}:
        factor = params.repetition_penalty
        logits[token_id] *= 1 / factor if logits[token_id] > 0 else factor
    for token_id in set(reply):
        logits[token_id] -= params.presence_penalty
        logits[token_id] -= params.frequency_penalty * list(reply).count(token_id)
    for token_id, bias in params.logit_bias:
        logits[token_id] += bias
    return logits


def distribution(logits, params, prompt=(), reply=()):
    """The probability of each token."""
    logits = penalised(logits, params, prompt, reply)
    if params.temperature == 0:
        return np.eye(len(logits))[int(np.argmax(logits))]
    scaled = (logits - logits.max()) / params.temperature
    probabilities = np.exp(scaled) / np.exp(scaled).sum()
    order = np.argsort(-probabilities, kind="stable")
    kept = order[: params.top_k or None]
    mass, total, nucleus = 0.0, probabilities[kept].sum(), []
    for token_id in kept:
        if mass / total >= params.top_p and nucleus:
            break
        nucleus.append(token_id)
        mass += probabilities[token_id]
    floor = params.min_p * probabilities.max()
    final = [t for t in nucleus if probabilities[t] >= floor]
    answer = np.zeros_like(probabilities)
    answer[final] = probabilities[final]
    return answer / answer.sum()


def assert_drawn_from(expected, tokens):
    """Pearson's chi-square test, at one in ten thousand."""
    num_draws = len(tokens)
    counts = np.bincount(tokens, minlength=len(expected))
    assert not counts[expected == 0].any(), "a token came that never may"
    # Rare tokens share a cell, for the test wants about five draws in each.
    is_rare = expected * num_draws < 5
    expected = np.append(expected[~is_rare], expected[is_rare].sum()) * num_draws
    counts = np.append(counts[~is_rare], counts[is_rare].sum())
    counts, expected = counts[expected > 0], expected[expected > 0]
    statistic = ((counts - expected) ** 2 / expected).sum()
    freedom = len(expected) - 1
    # Wilson and Hilferty's approximation of the quantile; 3.72 is the normal one.
    spread = 2 / (9 * freedom) if freedom else 1.0
    limit = freedom * (1 - spread + 3.72 * math.sqrt(spread)) ** 3 if freedom else 1e-9
    assert statistic <= limit, f"{statistic:.1f} > {limit:.1f}"


def draw_many(logits, params, *, num=4000, seed=5, prompt=(), reply=()):
    rows = torch.tensor(logits, dtype=torch.float32).repeat(num, 1)
    draws = [draw(params, seed=seed, position=i, prompt=prompt, reply=reply) for i in range(num)]
    return sample(rows, draws)


def random_logits(seed, num_tokens=40, spread=2.0):
    return (np.random.default_rng(seed).standard_normal(num_tokens) * spread).tolist()


@pytest.mark.parametrize(
    "params",
    [
        SamplingParams(),
        SamplingParams(temperature=0.3),
        SamplingParams(temperature=2.0),
        SamplingParams(top_k=5),
        SamplingParams(top_k=1000),
        SamplingParams(top_p=0.7),
        SamplingParams(top_p=0.05),
        SamplingParams(min_p=0.2),
        SamplingParams(top_k=12, top_p=0.6, min_p=0.1, temperature=1.5),
        SamplingParams(repetition_penalty=1.7),
        SamplingParams(repetition_penalty=0.6),
        SamplingParams(presence_penalty=1.5),
        SamplingParams(frequency_penalty=0.7),
        SamplingParams(frequency_penalty=-0.4, presence_penalty=-0.5, top_p=0.9),
        SamplingParams(logit_bias=((3, 4.0), (7, -100.0))),
    ],
    ids=str,
)
def test_draws_have_the_frequencies_of_the_definition(params):
    logits, prompt, reply = random_logits(1), [1, 2, 2, 8], [2, 5, 5, 5, 9]

    tokens = draw_many(logits, params, prompt=prompt, reply=reply)

    assert_drawn_from(distribution(logits, params, prompt, reply), tokens)


probabilities = st.floats(0.01, 1.0)
any_params = st.builds(
    SamplingParams,
    temperature=st.sampled_from([0.0, 0.05, 0.7, 1.0, 1.9]),
    top_p=st.one_of(st.just(1.0), probabilities),
    top_k=st.integers(0, 40),
    min_p=st.one_of(st.just(0.0), probabilities),
    presence_penalty=st.floats(-2, 2),
    frequency_penalty=st.floats(-2, 2),
    repetition_penalty=st.floats(0.1, 10),
    logit_bias=st.lists(
        st.tuples(st.integers(0, 29), st.floats(-100, 100)), max_size=4, unique_by=lambda b: b[0]
    ).map(tuple),
)
token_lists = st.lists(st.integers(0, 29), max_size=12)


@given(any_params, st.integers(0, 10_000), token_lists, token_lists)
@settings(max_examples=300, derandomize=True, deadline=None)
def test_every_token_drawn_is_one_that_the_definition_allows(params, seed, prompt, reply):
    logits = random_logits(seed, 30)
    expected = distribution(logits, params, prompt, reply)

    tokens = draw_many(logits, params, num=8, seed=seed, prompt=prompt, reply=reply)

    # Two tokens may stand so close at a limit that rounding decides; then either is right.
    smallest = expected[expected > 0].min()
    nearly = penalised(logits, params, prompt, reply)
    for token_id in tokens:
        if expected[token_id] == 0:
            beside = [t for t in range(30) if abs(nearly[t] - nearly[token_id]) < 1e-5]
            assert max(expected[beside]) > 0 or smallest < 1e-6


# Greedy


def test_without_temperature_the_largest_logit_is_taken():
    rows = torch.tensor([[0.0, 2.0, 1.0], [3.0, 2.0, 1.0]])

    assert sample(rows, [draw(GREEDY), draw(GREEDY, seed=9)]) == [1, 0]


def test_no_filter_changes_a_greedy_choice():
    logits = random_logits(3)
    for params in (replace(GREEDY, top_k=3), replace(GREEDY, top_p=0.1), replace(GREEDY, min_p=1)):
        assert sample_one(logits, params) == int(np.argmax(logits))


@pytest.mark.parametrize("temperature", [1e-4, 1e-30, 1e-300, 5e-324])
def test_however_small_the_temperature_the_largest_logit_is_taken(temperature):
    logits = [*random_logits(3), 60.0]

    assert sample_one(logits, SamplingParams(temperature=temperature)) == 40


def test_one_candidate_is_a_greedy_choice():
    logits = random_logits(4)
    for params in (SamplingParams(top_k=1), SamplingParams(top_p=1e-9), SamplingParams(min_p=1.0)):
        assert set(draw_many(logits, params, num=50)) == {int(np.argmax(logits))}


def test_equals_at_the_top_are_drawn_alike():
    logits = [1.0, 5.0, 5.0, 5.0]

    assert_drawn_from(np.array([0, 1, 1, 1]) / 3, draw_many(logits, SamplingParams(min_p=1.0)))
    assert set(draw_many(logits, SamplingParams(top_k=2), num=200)) < {1, 2, 3}
    # Half the mass is reached within the second of three.
    assert len(set(draw_many(logits, SamplingParams(top_p=0.5), num=200))) == 2
    assert sample_one(logits, GREEDY) in {1, 2, 3}


# Penalties and bias


def test_presence_and_frequency_count_the_reply_alone_and_repetition_the_prompt_too():
    logits = [1.0, 0.9]

    assert sample_one(logits, replace(GREEDY, presence_penalty=0.5), prompt=[0]) == 0
    assert sample_one(logits, replace(GREEDY, frequency_penalty=0.5), prompt=[0]) == 0
    assert sample_one(logits, replace(GREEDY, repetition_penalty=1.5), prompt=[0]) == 1
    assert sample_one(logits, replace(GREEDY, presence_penalty=0.5), prompt=[0], reply=[0]) == 1


def test_frequency_grows_with_each_repetition_and_presence_does_not():
    assert sample_one([1.0, 0.0], replace(GREEDY, frequency_penalty=0.3), reply=[0] * 3) == 0
    assert sample_one([1.0, 0.0], replace(GREEDY, frequency_penalty=0.3), reply=[0] * 4) == 1
    assert sample_one([1.0, 0.0], replace(GREEDY, presence_penalty=0.9), reply=[0] * 9) == 0


def test_repetition_moves_positive_and_negative_logits_down_alike():
    params = replace(GREEDY, repetition_penalty=2.0)

    assert sample_one([1.0, 0.6], params, prompt=[0]) == 1
    assert sample_one([-1.0, -1.5], params, prompt=[0]) == 1


def test_a_bias_of_a_hundred_forces_a_token_and_of_minus_a_hundred_forbids_it():
    logits = random_logits(5)
    best = int(np.argmax(logits))
    for temperature in (0.0, 1.0, 2.0):
        forced = SamplingParams(temperature=temperature, logit_bias=((17, 100.0),))
        forbidden = SamplingParams(temperature=temperature, logit_bias=((best, -100.0),))
        assert set(draw_many(logits, forced, num=200)) == {17}
        assert best not in draw_many(logits, forbidden, num=200)


def test_a_bias_adds_to_a_penalty():
    params = replace(GREEDY, logit_bias=((0, 1.0),), presence_penalty=2.0)

    assert sample_one([1.0, 0.5], params, reply=[0]) == 1
    assert sample_one([2.0, 0.5], params, reply=[0]) == 0


# More candidates than are looked at first


@pytest.mark.parametrize("params", [SamplingParams(top_p=0.9), SamplingParams(min_p=0.5)])
def test_a_flat_distribution_has_more_candidates_than_are_looked_at_first(params):
    logits = (np.random.default_rng(6).standard_normal(5000) * 0.05).tolist()
    expected = distribution(logits, params)
    assert (expected > 0).sum() > 4000

    tokens = draw_many(logits, params, num=3000)

    assert len(set(tokens)) > 1500
    assert not any(expected[t] == 0 for t in tokens)
    ranks = np.argsort(np.argsort(logits))[tokens]
    assert 0.5 < ranks.mean() / 2500 < 1.5


@pytest.mark.parametrize("num_tokens", [1023, 1024, 1025, 1026])
def test_the_nucleus_is_right_around_the_number_looked_at_first(num_tokens):
    """All but the last of so many equal tokens make up the nucleus."""
    logits = [1.0] * num_tokens + [-50.0] * 10
    params = SamplingParams(top_p=(num_tokens - 1.5) / num_tokens)

    tokens = draw_many(logits, params, num=6000)

    assert max(tokens) < num_tokens
    assert len(set(tokens)) == pytest.approx(num_tokens * (1 - math.exp(-6000 / num_tokens)), 0.02)


def test_min_p_cuts_where_top_p_alone_would_want_everything():
    logits = [5.0, *random_logits(7, 4999, 0.05)]
    params = SamplingParams(top_p=0.999, min_p=0.5)

    assert set(draw_many(logits, params, num=100)) == {0}


# The draw


@given(st.integers(-(2**63), 2**64 - 1), st.integers(0, 2**32))
@settings(max_examples=100, derandomize=True, deadline=None)
def test_a_uniform_number_depends_on_its_arguments_alone_and_stays_below_one(seed, position):
    number = uniform(seed, position)

    assert 0.0 <= number < 1.0
    assert uniform(seed, position) == number


def test_uniform_numbers_are_uniform_over_positions_and_over_seeds():
    for numbers in (
        [uniform(1, i) for i in range(5000)],
        [uniform(i, 1) for i in range(5000)],
    ):
        cells = np.histogram(numbers, bins=20, range=(0, 1))[0]
        assert ((cells - 250) ** 2 / 250).sum() < 55  # chi-square, 19 degrees, beyond 1 in 10,000
        neighbours = np.corrcoef(numbers[:-1], numbers[1:])[0, 1]
        assert abs(neighbours) < 0.06


def test_a_draw_is_the_same_whatever_else_is_in_the_batch():
    params = [
        SamplingParams(),
        SamplingParams(top_p=0.8),
        SamplingParams(top_k=4, presence_penalty=1.0),
        GREEDY,
    ]
    rows = [random_logits(i) for i in range(4)]
    draws = [draw(p, seed=i, position=9, reply=[i]) for i, p in enumerate(params)]
    alone = [sample(torch.tensor([row]), [d])[0] for row, d in zip(rows, draws, strict=True)]

    for order in ([3, 1, 0, 2], [2, 0, 3, 1], [0, 0, 3, 3, 1]):
        together = sample(torch.tensor([rows[i] for i in order]), [draws[i] for i in order])
        assert together == [alone[i] for i in order]


@pytest.mark.parametrize("logit", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize(
    "filters", [{}, {"top_p": 0.9}, {"top_k": 2}, {"min_p": 0.1}, {"top_p": 0.9, "min_p": 0.1}]
)
def test_logits_that_are_no_numbers_spoil_no_other_row(logit, filters):
    params = SamplingParams(**filters)
    right = [1.0, 2.0, 9.0, 0.5]
    logits = torch.tensor([[logit] * 4, right, [0.0, logit, logit, 1.0]])

    drawn = sample(logits, [draw(params, seed=i) for i in range(3)])

    assert drawn[1] == sample_one(right, params, seed=1)
    assert all(token_id in range(4) for token_id in drawn)


def test_another_seed_or_position_gives_another_draw():
    logits = [0.0] * 1000

    tokens = {sample_one(logits, SamplingParams(), seed=s, position=p) for s, p in [(1, 1), (1, 2)]}
    assert len(tokens | {sample_one(logits, SamplingParams(), seed=2, position=1)}) == 3


def test_forbidden_tokens_at_the_ends_are_never_drawn():
    logits = [-math.inf, 0.0, -math.inf, 0.0, -math.inf]
    for params in (SamplingParams(), SamplingParams(top_p=0.99), SamplingParams(top_k=5)):
        assert set(draw_many(logits, params, num=300)) == {1, 3}
