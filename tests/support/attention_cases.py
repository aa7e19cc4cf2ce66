"""What attention backends are tried with, and how near they must come."""

import torch
from hypothesis import settings
from hypothesis import strategies as st

from model.attention.base import AttentionSpec
from tests.support.paged_steps import Shape

# Of outputs that are averages of normally distributed values.
TOLERANCE = {torch.float32: 2e-5, torch.bfloat16: 4e-2}

sequences = st.lists(
    st.one_of(
        st.tuples(st.integers(0, 40), st.just(1)),
        st.tuples(st.integers(0, 40), st.integers(2, 25)),
    ),
    min_size=1,
    max_size=6,
).map(tuple)
shapes = st.builds(
    Shape,
    sequences=sequences,
    block_size=st.sampled_from([1, 2, 4, 16]),
    num_kv_heads=st.integers(1, 3),
    num_groups=st.integers(1, 4),
    head_size=st.sampled_from([1, 4, 6, 16]),
    dtype=st.sampled_from([torch.float32, torch.bfloat16]),
)
specs = st.builds(
    AttentionSpec,
    scaling=st.sampled_from([1.0, 0.25, 0.05]),
    window=st.one_of(st.none(), st.integers(1, 50)),
    softcap=st.one_of(st.none(), st.sampled_from([0.5, 20.0])),
)
thorough = settings(max_examples=80, derandomize=True, deadline=None)


def assert_close(actual, expected, dtype, tolerance=None):
    assert actual.dtype == dtype
    assert actual.shape == expected.shape
    assert not actual.isnan().any(), "what belongs to nobody reached an output"
    tolerance = tolerance or TOLERANCE[dtype]
    torch.testing.assert_close(actual.double(), expected.double(), atol=tolerance, rtol=tolerance)
