"""The compiled kernels against plain attention: each level that this CPU has, on one thread and on
two; what belongs to nobody is NaN and reaches nobody."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from model.attention.base import AttentionSpec
from model.attention.cpu import CpuBackend
from model.attention.reference import ReferenceBackend
from model.batch import Batch, BatchRow
from model.kv_cache import KVCache, KVShape
from model.native.operators import levels
from tests.support.attention_cases import TOLERANCE, assert_close, shapes, specs, thorough
from tests.support.native_kernels import native_ops, threads
from tests.support.paged_steps import CPU, PagedStep, Shape

PLAIN = AttentionSpec(0.3)

# Around the tiles' edges: 64 positions, 64 rows, vectors of 4 to 16 lanes, splits of 128; heads
# that are taken together and of which some are left (two of five at once, of 128 floats).
edges = st.sampled_from([0, 1, 15, 17, 63, 64, 65, 127, 130, 300])
large_shapes = st.builds(
    Shape,
    sequences=st.lists(
        st.tuples(edges, st.one_of(st.just(1), st.sampled_from([2, 16, 21, 22, 70]))),
        min_size=1,
        max_size=3,
    ).map(tuple),
    block_size=st.sampled_from([1, 3, 16, 32, 48]),
    num_kv_heads=st.sampled_from([1, 2, 3, 5]),
    num_groups=st.sampled_from([1, 3, 5, 8]),
    head_size=st.sampled_from([1, 3, 15, 31, 64, 65, 80, 128]),
    dtype=st.sampled_from([torch.float32, torch.bfloat16]),
)
# What levels err by whose products are of bfloat16, or of whole numbers of twelve bits.
ROUNDED = {"avx512_bf16": TOLERANCE[torch.bfloat16], "avx512_vnni": 2e-2}
# Float32 queries over keys and values in bfloat16.
mixed_shapes = st.one_of(shapes, large_shapes).map(
    lambda shape: replace(shape, dtype=torch.float32, kv_dtype=torch.bfloat16)
)
DTYPES = [
    (torch.float32, None),
    (torch.bfloat16, None),
    (torch.float32, torch.bfloat16),
]


@pytest.fixture(scope="module", autouse=True)
def _compiled():
    """So that the first example's time isn't the compiler's."""
    native_ops()


def outputs(step, spec):
    """Of every level, on one thread and on two."""
    for level in levels(native_ops()):
        yield from outputs_of(level, step, spec)


def outputs_of(level, step, spec):
    ops = native_ops()
    for number in (1, 2):
        with threads(number):
            yield CpuBackend(ops, level).plan(step.batch).attend(step.query, step.kv, spec)


@pytest.mark.parametrize("cases", [shapes, large_shapes], ids=["small", "large"])
def test_every_level_equals_plain_attention(cases):
    @given(shape=cases, spec=specs, seed=st.integers(0, 1000))
    @thorough
    def holds(shape, spec, seed):
        step = PagedStep(shape, seed)
        expected = step.dense(spec)
        for output in outputs(step, spec):
            assert_close(output, expected, shape.dtype)

    holds()


@given(shape=mixed_shapes, spec=specs, seed=st.integers(0, 1000))
@thorough
def test_queries_may_be_wider_than_keys_and_values(shape, spec, seed):
    step = PagedStep(shape, seed)
    expected = step.dense(spec)
    for level in levels(native_ops()):
        tolerance = ROUNDED.get(level, TOLERANCE[torch.float32])
        for output in outputs_of(level, step, spec):
            assert_close(output, expected, torch.float32, tolerance)


def test_queries_may_not_be_narrower_than_keys_and_values():
    step = PagedStep(Shape(((9, 1),), dtype=torch.bfloat16, kv_dtype=torch.float32))

    with pytest.raises(RuntimeError, match="want keys and values in it"):
        CpuBackend(native_ops()).plan(step.batch).attend(step.query, step.kv, PLAIN)


def test_narrower_rows_are_refused_before_any_is_stored():
    step = PagedStep(Shape(((9, 1),), dtype=torch.bfloat16, kv_dtype=torch.float32))
    plan = CpuBackend(native_ops()).plan(step.batch)
    blocks = torch.zeros(len(step.kv), 1, *step.kv.shape[1:])
    rows = torch.ones(1, 2, 8, dtype=torch.bfloat16)
    lists = (torch.stack(step.batch.places), plan.tables, plan.sequences)

    with pytest.raises(RuntimeError, match="want a cache in it"):
        native_ops().attend_step(blocks, step.query, rows, rows, *lists, 0, 0.3, 0, 0.0, -1)
    assert not blocks.any()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_keys_and_values_are_kept_in_16_bits(dtype):
    assert CpuBackend(native_ops()).kv_dtype(dtype) is torch.bfloat16


def test_the_levels_ascend_and_the_last_is_taken_by_itself():
    ops = native_ops()
    step = PagedStep(Shape(((40, 1), (9, 6)), head_size=32, dtype=torch.bfloat16))
    names = levels(ops)

    best, last = (
        CpuBackend(ops, level).plan(step.batch).attend(step.query, step.kv, PLAIN)
        for level in (None, names[-1])
    )

    assert names[0] == "portable"
    assert len(set(names)) == len(names)
    assert torch.equal(best, last)


def test_a_level_that_is_not_there_is_refused():
    with pytest.raises(ValueError, match="not in"):
        CpuBackend(native_ops(), "abacus")


def test_one_plan_serves_layers_of_several_kinds():
    step = PagedStep(Shape(((9, 1), (300, 1), (20, 7), (0, 5)), head_size=64))
    plan = CpuBackend(native_ops()).plan(step.batch)
    kinds = [
        PLAIN,
        AttentionSpec(0.3, window=4),
        AttentionSpec(0.1, softcap=2.0),
        AttentionSpec(0.3, window=6, softcap=2.0),
        PLAIN,
    ]

    for spec in kinds:
        assert_close(plan.attend(step.query, step.kv, spec), step.dense(spec), torch.float32)


def test_a_strided_layer_of_a_block_major_cache_is_read_as_it_lies():
    step = PagedStep(Shape(((9, 1), (5, 4))))
    blocks = torch.full((step.kv.shape[0], 3, *step.kv.shape[1:]), torch.nan)
    blocks[:, 1] = step.kv

    output = CpuBackend(native_ops()).plan(step.batch).attend(step.query, blocks[:, 1], PLAIN)

    assert_close(output, step.dense(PLAIN), torch.float32)


@pytest.mark.parametrize("order", [(1, 0, 2), (2, 1, 0)], ids=["heads first", "sizes first"])
def test_queries_come_in_any_order_of_memory(order):
    step = PagedStep(Shape(((9, 1), (2, 1), (5, 4))))
    query = step.query.permute(order).contiguous().permute(order)

    output = CpuBackend(native_ops()).plan(step.batch).attend(query, step.kv, PLAIN)

    assert_close(output, step.dense(PLAIN), torch.float32)


def test_sequences_may_share_blocks():
    kv = torch.randn(4, 2, 4, 2, 8)
    kv[3] = torch.nan
    rows = [BatchRow([0], 9, [2, 0, 1], True), BatchRow([0] * 2, 5, [2, 0], True)]
    batch, query = Batch.build(rows, 4, CPU), torch.randn(3, 6, 8)

    output = CpuBackend(native_ops()).plan(batch).attend(query, kv, PLAIN)

    expected = ReferenceBackend().plan(batch).attend(query, kv, PLAIN)
    torch.testing.assert_close(output, expected)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_large_score_does_not_overflow(dtype):
    step = PagedStep(Shape(((30, 1), (20, 1), (10, 6)), head_size=4, dtype=dtype))
    step.query *= 1000

    for output in outputs(step, AttentionSpec(1.0)):
        assert_close(output, step.dense(AttentionSpec(1.0)), dtype)


@pytest.mark.parametrize(("dtype", "kv_dtype"), DTYPES, ids=str)
@pytest.mark.parametrize(("part", "number"), [(0, torch.nan), (1, torch.nan), (1, torch.inf)])
def test_what_is_no_number_is_none_for_whoever_sees_it_and_for_nobody_else(
    dtype, kv_dtype, part, number
):
    shape = Shape(((70, 3), (200, 1), (5, 4)), head_size=40, dtype=dtype, kv_dtype=kv_dtype)
    step = PagedStep(shape)
    (step.keys, step.values)[part][0][20, 1, 7] = number
    block, offset = step.tables[0][20 // shape.block_size], 20 % shape.block_size
    step.kv[block, part, offset, 1, 7] = number

    dense = step.dense(PLAIN)
    seen = ~dense.isfinite().all(-1)
    assert seen.any()
    assert not seen.all()
    for output in outputs(step, PLAIN):
        assert torch.equal(~output.isfinite().all(-1), seen)


def test_more_rows_than_a_tile_has_share_one_key_value_head():
    step = PagedStep(Shape(((20, 3), (5, 1)), num_kv_heads=1, num_groups=71, head_size=16))

    for output in outputs(step, PLAIN):
        assert_close(output, step.dense(PLAIN), torch.float32)


@given(shape=st.one_of(shapes, mixed_shapes), spec=specs, layer=st.integers(0, 2))
@settings(max_examples=60, derandomize=True, deadline=None)
def test_storing_and_attending_in_one_call_is_one_after_the_other(shape, spec, layer):
    step = PagedStep(shape)
    plan = CpuBackend(native_ops()).plan(step.batch)
    cache = KVCache(
        KVShape(
            num_layers=3,
            block_size=shape.block_size,
            num_kv_heads=shape.num_kv_heads,
            head_size=shape.head_size,
            dtype=step.kv.dtype,
        ),
        len(step.kv),
        torch.device("cpu"),
    )
    cache.poison()
    cache.layer(layer).copy_(step.kv)
    num_rows = len(step.batch.token_ids)
    # Heads outside of rows, as models have them.
    key, value = (
        torch.randn(shape.num_kv_heads, num_rows, shape.head_size).to(shape.dtype).transpose(0, 1)
        for _ in range(2)
    )
    options = (spec.scaling, spec.window or 0, spec.softcap or 0.0, -1)
    places = torch.stack(step.batch.places)
    lists = (places, plan.tables, plan.sequences)
    whole = cache.tensor.clone()

    output = native_ops().attend_step(whole, step.query, key, value, *lists, layer, *options)

    cache.write(layer, step.batch.places, key, value)
    assert torch.equal(whole.nan_to_num(7), cache.tensor.nan_to_num(7))
    expected = plan.attend(step.query, cache.layer(layer), spec)
    assert_close(output, expected, shape.dtype)
