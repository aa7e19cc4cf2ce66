"""The compiled step, whole: traced, compiled in its own process, loaded, and as right as
the model's own modules."""

import faulthandler
import logging
import shutil
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from benchmarks.compiled_step import Served
from benchmarks.dense import build_model, tiny_llama, tiny_qwen3
from model import quantization
from model.attention.base import IMPLEMENTATION, register
from model.attention.cpu import CpuBackend
from model.batch import BatchRow
from model.compiled import commission as ordering
from model.compiled.commission import commission
from model.config import CompileMode, Device, EngineConfig
from model.few_rows import speed_up
from model.kv_cache import KVCache
from model.messages import CompiledState
from model.native.build import library_path
from model.quantization import Plan, quantize_model
from model.quantized_linear import products_of
from model.runner import ModelRunner, ModelShape
from model.self_check import relative_error
from tests.support.deciding_mlp import DecidingMlp
from tests.support.live_server import MODELS
from tests.support.native_kernels import native_ops

pytestmark = pytest.mark.timeout(300)

BLOCK_SIZE, NUM_BLOCKS, MAX_ROWS = 4, 40, 24
# Bfloat16 keeps eight bits, and the compiled step rounds less often than the modules do.
TOLERANCE = {torch.bfloat16: 0.04, torch.float32: 1e-4}


class Fixture:
    """A tiny model, its runner without and with a compiled step, and a cache for each."""

    def __init__(self, config, dtype, folder: Path, bits: int | None = None) -> None:
        native_ops()
        shutil.copy(library_path(EngineConfig().native_dir), folder)
        register()
        self.model = build_model(config, IMPLEMENTATION).to(dtype)
        self.backend = CpuBackend(native_ops())
        if bits is not None:
            plan = Plan(ops=self.backend.ops, packed_file=None, bits=bits)
            quantize_model(self.model, plan, lambda _: None)
        speed_up(self.model, self.backend.ops)
        self.shape = ModelShape.of(self.model)
        self.kv = self.shape.kv_shape(BLOCK_SIZE, self.backend.kv_dtype(dtype))
        self.config = EngineConfig(
            native_dir=folder,
            compile=CompileMode.FIRST,
            block_size=BLOCK_SIZE,
        )

    def commission(self):
        windows = self.shape.windows
        return commission(self.config, self.model, windows, self.kv, self.backend, "identity")

    def runner(self, source=None) -> ModelRunner:
        cache = KVCache(self.kv, NUM_BLOCKS, self.model.device)
        generator = torch.Generator().manual_seed(0)
        cache.tensor.copy_(torch.randn(cache.tensor.shape, generator=generator))
        return ModelRunner(self.model, self.shape.windows, cache, self.backend, source)


def decoding(starts) -> list[BatchRow]:
    """A row for each start, in scattered blocks of its own."""
    ids = torch.randperm(NUM_BLOCKS, generator=torch.Generator().manual_seed(1)).tolist()
    rows = []
    for i, start in enumerate(starts):
        need = start // BLOCK_SIZE + 1
        mine, ids = ids[:need], ids[need:]
        rows.append(BatchRow([3 + i], start, mine, has_logits=True))
    return rows


@pytest.fixture(scope="module", autouse=True)
def _faults():
    """Are pytest's again, when this process has no step any more."""
    yield
    faulthandler.enable(sys.__stderr__)


@pytest.fixture(scope="module", autouse=True)
def _few_rows():
    """Are all that a step takes."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(ordering, "MAX_ROWS", MAX_ROWS)
        yield


@pytest.fixture(scope="module")
def llama(tmp_path_factory):
    """A compiled step of a tiny Llama in bfloat16, and whose it is."""
    made = Fixture(tiny_llama(), torch.bfloat16, tmp_path_factory.mktemp("native"))
    source = made.commission()
    assert source.stats().state is CompiledState.READY, source.stats().reason
    return made, source


@pytest.mark.parametrize("starts", [(9,), (0, 3), (30, 1, 8), range(12)])
def test_its_logits_are_the_modules_and_so_is_what_it_stores(llama, starts):
    made, source = llama
    plain, compiled = made.runner(), made.runner(source)
    before = source.stats().num_steps
    for _ in range(2):  # the second reads what the first stored
        expected = plain.forward(decoding(starts), [])
        logits = compiled.forward(decoding(starts), [])

    assert logits.dtype is torch.float32
    assert logits.shape == expected.shape
    assert float(relative_error(expected, logits).max()) < TOLERANCE[torch.bfloat16]
    difference = plain.blocks.tensor.double() - compiled.blocks.tensor.double()
    assert float(difference.abs().max()) < 0.1
    assert source.stats().num_steps - before == 2


def test_rows_are_counted_and_only_wanted_logits_come_back(llama):
    made, source = llama
    runner = made.runner(source)
    rows = decoding((5, 6, 7))
    rows[1] = BatchRow(rows[1].token_ids, rows[1].start, rows[1].block_ids, has_logits=False)
    whole = runner.forward(decoding((5, 6, 7)), [])
    some = runner.forward(rows, [])

    assert torch.equal(some, whole[[0, 2]])
    assert runner.num_rows == 6


def test_more_rows_than_it_was_made_for_go_to_the_modules(llama):
    made, source = llama
    runner, before = made.runner(source), source.stats().num_steps
    runner.forward(decoding([0] * (MAX_ROWS + 1)), [])

    assert source.stats().num_steps == before


@pytest.mark.parametrize("wants", [(True, True, True), (False, True, False), (False,) * 3])
def test_chunks_and_replies_are_one_batch_in_it(llama, wants):
    made, source = llama
    plain, compiled = made.runner(), made.runner(source)
    before = source.stats().num_steps
    # A chunk that goes on within a block, a prompt's first, and a reply's next token.
    rows = [
        BatchRow([5, 6, 7, 8, 9], 6, [4, 9, 2], has_logits=wants[0]),
        BatchRow([3, 2, 1], 0, [7], has_logits=wants[1]),
        BatchRow([4], 9, [11, 30, 8], has_logits=wants[2]),
    ]
    expected, logits = plain.forward(rows, []), compiled.forward(rows, [])

    assert logits.shape == expected.shape == (sum(wants), made.model.config.vocab_size)
    if any(wants):
        assert float(relative_error(expected, logits).max()) < TOLERANCE[torch.bfloat16]
    difference = plain.blocks.tensor.double() - compiled.blocks.tensor.double()
    assert float(difference.abs().max()) < 0.1
    assert source.stats().num_steps - before == 1


def test_weights_are_used_where_they_are(llama):
    made, source = llama
    runner = made.runner(source)
    before = runner.forward(decoding((4, 7)), [])
    weight = made.model.model.layers[0].mlp.down_proj.weight
    kept = weight.clone()
    try:
        weight.zero_()
        changed = runner.forward(decoding((4, 7)), [])
    finally:
        weight.copy_(kept)

    assert not torch.equal(before, changed)
    assert torch.equal(before, runner.forward(decoding((4, 7)), []))


@pytest.mark.full
def test_a_damaged_step_is_compiled_again_and_not_loaded(llama, tmp_path, caplog):
    made, _ = llama
    folder = tmp_path / "native"
    shutil.copytree(made.config.native_dir, folder)
    (step,) = folder.glob("step-*/")
    library = max(step.rglob("*.so"), key=lambda p: p.stat().st_size)
    library.write_bytes(library.read_bytes()[:-4096])
    made = Fixture(tiny_llama(), torch.bfloat16, folder)
    source = made.commission()

    assert source.stats().state is CompiledState.READY, source.stats().reason
    assert "damaged" in caplog.text


@pytest.mark.full
def test_in_float32_and_with_normalised_queries(tmp_path):
    made = Fixture(tiny_qwen3(), torch.float32, tmp_path)
    source = made.commission()
    assert source.stats().state is CompiledState.READY, source.stats().reason
    expected = made.runner().forward(decoding((3, 17)), [])
    logits = made.runner(source).forward(decoding((3, 17)), [])

    assert float(relative_error(expected, logits).max()) < TOLERANCE[torch.float32]


@pytest.mark.full
@pytest.mark.parametrize("keeps", [True, False])
def test_packed_weights_are_multiplied_by_it_too(tmp_path, monkeypatch, keeps):
    monkeypatch.setattr(quantization, "_KEPT_SHARE", 0.5 if keeps else 0.0)
    made = Fixture(tiny_llama(), torch.bfloat16, tmp_path, bits=4)
    source = made.commission()
    assert source.stats().state is CompiledState.READY, source.stats().reason
    expected = made.runner().forward(decoding((3, 17)), [])
    logits = made.runner(source).forward(decoding((3, 17)), [])

    assert float(relative_error(expected, logits).max()) < TOLERANCE[torch.bfloat16]
    assert source.stats().num_steps == 1

    # So many rows have activations of 8 bits, or are the modules' where bytes aren't multiplied.
    chunk = [BatchRow(list(range(3, 23)), 0, [8, 1, 30, 4, 17], has_logits=True)]
    expected = made.runner().forward(chunk, [])
    logits = made.runner(source).forward(chunk, [])
    assert float(relative_error(expected, logits).max()) < TOLERANCE[torch.bfloat16]
    takes_bytes = all(product.takes_bytes for product in products_of(made.model))
    assert source.stats().num_steps == 1 + takes_bytes


@pytest.mark.full
@pytest.mark.timeout(1800)
def test_the_embedded_model_has_one_as_fast_serves_it(tmp_path):
    shutil.copy(library_path(EngineConfig().native_dir), tmp_path)
    config = EngineConfig(native_dir=tmp_path, compile=CompileMode.FIRST, device=Device.CPU)
    served = Served.load(MODELS, torch.get_num_threads(), config)

    assert served.compiled.stats().state is CompiledState.READY, served.compiled.stats().reason
    layers = [m for m in served.model.modules() if isinstance(m, torch.nn.Linear)]
    assert all(hasattr(layer, "packed") for layer in layers)


class FailingStep:
    """Stores half of what it should, and fails."""

    def run(self, embeddings, batch, plan, cache):
        cache.tensor[batch.places[0]] = 0.5
        raise RuntimeError("no room")


class FailingSource:
    """Has it until it is given up."""

    def __init__(self):
        self.step, self.reasons = FailingStep(), []

    def step_for(self, batch):
        return None if self.reasons else self.step

    def give_up(self, reason):
        self.reasons.append(reason)


def test_a_step_that_fails_is_computed_by_the_modules_and_so_are_those_behind_it(tmp_path):
    made, source = Fixture(tiny_llama(), torch.float32, tmp_path), FailingSource()
    plain, failing = made.runner(), made.runner(source)
    # Each in a block of its own, of which nothing has been stored.
    rows = [BatchRow([3 + i], 0, [i], has_logits=True) for i in range(3)]
    behind = [replace(row, start=1) for row in rows]
    for step in (rows, behind):
        assert torch.equal(failing.forward(step, []), plain.forward(step, []))

    assert source.reasons == ["no room"]


def test_a_model_that_cannot_be_captured_says_why_and_is_served_without(tmp_path, caplog):
    made = Fixture(tiny_llama(), torch.bfloat16, tmp_path)
    layer = made.model.model.layers[1]
    layer.mlp = DecidingMlp(layer.mlp)
    source = made.commission()

    assert source.stats().state is CompiledState.UNAVAILABLE
    assert "data-dependent" in source.stats().reason
    (record,) = [r for r in caplog.records if r.levelno == logging.WARNING]
    assert source.stats().reason in record.getMessage()
    assert made.runner(source).forward(decoding((3, 17)), []).isfinite().all()
    assert not list(tmp_path.glob("step-*/"))
