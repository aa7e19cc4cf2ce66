"""Every backend against plain attention over each sequence's own keys, whatever the shape; what
belongs to nobody is NaN and reaches nobody."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from model.attention.base import AttentionSpec
from model.attention.batched import BatchedBackend, BatchedPlan
from model.attention.reference import ReferenceBackend
from tests.support.attention_cases import assert_close, shapes, specs, thorough
from tests.support.paged_steps import CPU, PagedStep, Shape

BACKENDS = {"reference": ReferenceBackend(), "batched": BatchedBackend(CPU)}


@pytest.mark.parametrize("backend", BACKENDS.values(), ids=BACKENDS)
@given(shape=shapes, spec=specs, seed=st.integers(0, 1000))
@thorough
def test_a_backend_equals_plain_attention(backend, shape, spec, seed):
    step = PagedStep(shape, seed)

    output = backend.plan(step.batch).attend(step.query, step.kv, spec)

    assert_close(output, step.dense(spec), shape.dtype)


@given(shape=shapes, spec=specs, max_bytes=st.integers(1, 20_000))
@thorough
def test_groups_and_tiles_of_any_size_change_nothing(shape, spec, max_bytes):
    step = PagedStep(shape)

    output = BatchedPlan(step.batch, max_bytes).attend(step.query, step.kv, spec)

    assert_close(output, step.dense(spec), shape.dtype)


@pytest.mark.parametrize("backend", BACKENDS.values(), ids=BACKENDS)
def test_one_plan_serves_layers_of_several_kinds(backend):
    step = PagedStep(Shape(((9, 1), (3, 1), (20, 7), (0, 5))))
    plan = backend.plan(step.batch)
    layers = [
        AttentionSpec(0.3),
        AttentionSpec(0.3, window=4),
        AttentionSpec(0.1, softcap=2.0),
        AttentionSpec(0.3, window=6, softcap=2.0),
        AttentionSpec(0.3),
    ]

    for spec in layers:
        assert_close(plan.attend(step.query, step.kv, spec), step.dense(spec), torch.float32)


@pytest.mark.parametrize("backend", BACKENDS.values(), ids=BACKENDS)
def test_a_strided_layer_of_a_block_major_cache_is_read_as_it_lies(backend):
    step, spec = PagedStep(Shape(((9, 1), (5, 4)))), AttentionSpec(0.3)
    blocks = torch.full((step.kv.shape[0], 3, *step.kv.shape[1:]), torch.nan)
    blocks[:, 1] = step.kv
    assert not blocks[:, 1].is_contiguous()

    output = backend.plan(step.batch).attend(step.query, blocks[:, 1], spec)

    assert_close(output, step.dense(spec), torch.float32)


@pytest.mark.parametrize("backend", BACKENDS.values(), ids=BACKENDS)
def test_queries_come_as_a_transposed_view(backend):
    step, spec = PagedStep(Shape(((9, 1), (2, 1), (5, 4)))), AttentionSpec(0.3)
    query = step.query.transpose(0, 1).contiguous().transpose(0, 1)  # as transformers has it

    output = backend.plan(step.batch).attend(query, step.kv, spec)

    assert_close(output, step.dense(spec), torch.float32)


@pytest.mark.parametrize("backend", BACKENDS.values(), ids=BACKENDS)
def test_a_sequence_s_output_does_not_depend_on_its_batch_mates(backend):
    """To the bit in `exact` mode's backend, nearly in the other."""
    spec = AttentionSpec(0.3)
    together = PagedStep(Shape(((9, 1), (30, 1), (5, 4), (0, 9))))
    outputs = backend.plan(together.batch).attend(together.query, together.kv, spec)
    row = 0
    for i, (history, chunk) in enumerate(together.shape.sequences):
        alone = PagedStep(Shape(((history, chunk),)))
        table = alone.batch.tables[0]
        alone.kv[table] = together.kv[together.batch.tables[i]]
        query = together.query[row : row + chunk]

        output = backend.plan(alone.batch).attend(query, alone.kv, spec)

        if backend.name == "reference":
            assert torch.equal(output, outputs[row : row + chunk])
        torch.testing.assert_close(output, outputs[row : row + chunk])
        row += chunk


def test_decoding_groups_stay_below_their_bound():
    step = PagedStep(Shape(tuple((n, 1) for n in (3, 60, 5, 58, 4, 200))))
    block_bytes = step.kv[0].numel() * step.kv.dtype.itemsize
    plan = BatchedPlan(step.batch, 40 * block_bytes)

    plan.attend(step.query, step.kv, AttentionSpec(0.3))

    sizes = [tuple(group.tables.shape) for group in plan._groups]
    # Neighbours in length; what is larger than the bound goes alone.
    assert sizes == [(3, 2), (2, 16), (1, 51)]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_large_score_does_not_overflow(dtype):
    step = PagedStep(Shape(((30, 1), (20, 1), (10, 6)), head_size=4, dtype=dtype))
    spec = AttentionSpec(1.0)
    for backend in BACKENDS.values():
        output = backend.plan(step.batch).attend(step.query * 1000, step.kv, spec)
        assert output.isfinite().all()
