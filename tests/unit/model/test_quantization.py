"""What becomes of a model's weights: `auto`'s choices, what is refused, and what is done."""

from dataclasses import replace
from unittest.mock import Mock

import pytest
import torch
from transformers import AutoModelForCausalLM, GPT2Config

from model import quantization
from model.assembly import assemble
from model.config import Device, EngineConfig, Mode, Quantization
from model.errors import ModelLoadError
from model.gguf import PACKED
from model.messages import EngineInfo
from model.native.build import NativeBuildError
from model.packed_weights import bits_of
from model.provision import obtain
from model.quantization import Plan, plan_quantization, quantize_model
from model.quantized_linear import MAX_FLOAT_ROWS
from model.weights import fingerprint, load_model, prepare
from tests.support.native_kernels import native_ops
from tests.support.tiny_folder import save_tiny_model
from tests.support.tiny_gguf import write_tiny_gguf

CPU = torch.device("cpu")
AUTO, NONE, INT8, INT4 = Quantization


def quiet(_message):
    """Nobody listens."""


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    """A folder as save_pretrained leaves it."""
    return save_tiny_model(tmp_path_factory.mktemp("plain") / "model")


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    """Of a GGUF file with 4 and 8 bits."""
    folder = tmp_path_factory.mktemp("packed")
    write_tiny_gguf(folder / "Tiny.gguf", is_quantized=True)
    source = obtain(str(folder / "Tiny.gguf"), folder / "models", quiet)
    return prepare(source, torch.float32, folder / "models", quiet)


def plan_for(wanted, folder, device=CPU, mode=Mode.FAST):
    config = EngineConfig(quantization=wanted, mode=mode)
    return plan_quantization(config, device, folder, quiet)


def kinds(model):
    """Each linear layer's bits, by its name's end; 0 as it was."""
    layers = [(n, m) for n, m in model.named_modules() if isinstance(m, torch.nn.Linear)]
    return {
        (n.rpartition(".")[2], bits_of(m.packed) if hasattr(m, "packed") else 0) for n, m in layers
    }


# Plans


def test_auto_takes_a_files_own_bits_and_changes_nothing_else(plain, prepared):
    plan = plan_for(AUTO, prepared.folder)

    assert plan is not None
    assert (plan.name, plan.bits, plan.packed_file) == ("file", None, prepared.folder / PACKED)
    assert plan_for(AUTO, plain) is None


def test_none_leaves_everything_as_it_was(plain, prepared):
    assert plan_for(NONE, prepared.folder) is None
    assert plan_for(NONE, plain, torch.device("cuda"), Mode.EXACT) is None


@pytest.mark.parametrize(("wanted", "bits"), [(INT8, 8), (INT4, 4)])
def test_what_is_asked_for_by_name_is_done_to_any_weights(plain, prepared, wanted, bits):
    for folder, file in ((plain, None), (prepared.folder, prepared.folder / PACKED)):
        plan = plan_for(wanted, folder)
        assert plan is not None
        assert (plan.name, plan.bits, plan.packed_file) == (wanted.value, bits, file)


@pytest.mark.parametrize(
    ("device", "mode", "words"),
    [("cuda", Mode.FAST, "the model runs on CUDA"), ("cpu", Mode.EXACT, "serve with --mode fast")],
)
def test_where_it_can_not_be_auto_leaves_it_and_a_name_is_refused(prepared, device, mode, words):
    assert plan_for(AUTO, prepared.folder, torch.device(device), mode) is None
    for wanted in (INT8, INT4):
        with pytest.raises(ModelLoadError, match=f"quantization {wanted} was asked for.*{words}"):
            plan_for(wanted, prepared.folder, torch.device(device), mode)


def test_without_a_compiler_auto_says_so_and_a_name_is_refused(prepared, monkeypatch, caplog):
    def fail(_folder, _on_progress):
        raise NativeBuildError("no C++ compiler is installed")

    monkeypatch.setattr(quantization, "load_ops", fail)

    assert plan_for(AUTO, prepared.folder) is None
    assert "no C++ compiler" in caplog.text
    with pytest.raises(ModelLoadError, match="needs compiled kernels: no C"):
        plan_for(INT4, prepared.folder)


def test_each_plan_makes_other_keys_and_values(prepared):
    names = [None, *(plan_for(wanted, prepared.folder).identity for wanted in (AUTO, INT8, INT4))]
    prints = [
        fingerprint(prepared, torch.float32, prepared.folder.parent, quiet, name) for name in names
    ]

    assert len(set(prints)) == 4
    assert prints[0] == fingerprint(prepared, torch.float32, prepared.folder.parent, quiet)


@pytest.mark.parametrize("what", ["FORMAT", "PRODUCTS"])
def test_other_arithmetic_makes_other_keys_and_values(prepared, monkeypatch, what):
    plan = plan_for(AUTO, prepared.folder)
    before = plan.identity

    monkeypatch.setattr(quantization, what, getattr(quantization, what) + 1)

    assert plan.identity != before


# Models


class OnlyFew:
    """The operators of a CPU that doesn't multiply bytes."""

    def __getattr__(self, name):
        return getattr(native_ops(), name)

    def multiplies_bytes(self, _bits, _level):
        return False


class OnlyFourInBytes(OnlyFew):
    """Those of a CPU that multiplies bytes by 4 bits alone."""

    def multiplies_bytes(self, bits, _level):
        return bits == 4


def quantized(folder, wanted, ops=None):
    model = load_model(folder, torch.float32, CPU, "eager")
    plan = plan_for(wanted, folder)
    return model, quantize_model(model, replace(plan, ops=ops or plan.ops), quiet)


def own_weights(model):
    """How large what is left of each packed layer's own weight is, by its name's end."""
    layers = [(n, m) for n, m in model.named_modules() if hasattr(m, "packed")]
    return {n.rpartition(".")[2]: m.weight.numel() for n, m in layers}


def error_of(model, plain_model, num_tokens):
    ids = torch.arange(3, 3 + num_tokens)[None]
    expected = plain_model(ids).logits
    return (model(ids).logits - expected).norm() / expected.norm()


def test_a_files_bits_are_kept_and_rows_without_whole_groups_stay(prepared):
    model, done = quantized(prepared.folder, AUTO)

    four = {"q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj"}
    assert kinds(model) == {("lm_head", 8), ("down_proj", 0), *((name, 4) for name in four)}
    assert (done.num_layers, done.num_linear) == (13, 15)
    assert done.packed_bytes == sum(
        m.packed.numel() for m in model.modules() if hasattr(m, "packed")
    )


@pytest.mark.parametrize(("wanted", "bits"), [(INT8, 8), (INT4, 4)])
def test_the_head_keeps_eight_bits(plain, wanted, bits):
    model, done = quantized(plain, wanted)

    names = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
    assert kinds(model) == {("lm_head", 8), *((name, bits) for name in names)}
    assert done.num_layers == done.num_linear


def test_what_a_file_has_in_four_bits_gets_no_more_by_asking_for_eight(prepared):
    model, _ = quantized(prepared.folder, INT8)

    assert {("q_proj", 4), ("down_proj", 8), ("lm_head", 8)} <= kinds(model)


@pytest.mark.parametrize("wanted", [AUTO, INT8, INT4])
def test_a_quantised_model_answers_much_as_before_and_alike_for_many_rows(prepared, wanted):
    plain_model = load_model(prepared.folder, torch.float32, CPU, "eager")
    model, _ = quantized(prepared.folder, wanted, OnlyFew())

    # Only what the file does not have in so few bits is further off than rounding, which random
    # weights of this size amplify.
    error = error_of(model, plain_model, MAX_FLOAT_ROWS)
    assert 0 < error < (0.2 if wanted is INT4 else 0.02 if wanted is INT8 else 5e-3)
    assert error_of(model, plain_model, MAX_FLOAT_ROWS + 1) == 0


def test_where_bytes_are_multiplied_only_what_takes_none_keeps_its_own_weights(prepared):
    bits = {name: bits for name, bits in kinds(quantized(prepared.folder, INT8)[0]) if bits}
    plain_model = load_model(prepared.folder, torch.float32, CPU, "eager")
    model, done = quantized(prepared.folder, INT8)

    # The head's is the embedding.
    ops = native_ops()
    needing = {n for n, b in bits.items() if not ops.multiplies_bytes(b, -1)} | {"lm_head"}
    assert {name for name, size in own_weights(model).items() if size} == needing
    assert done.kept_bytes == 4 * sum(
        m.weight.numel() for m in model.modules() if hasattr(m, "packed")
    )
    # Random weights of this size amplify what 8 bits of an activation miss; docs/exactness.md has
    # what they do to a real model.
    assert 0 < error_of(model, plain_model, MAX_FLOAT_ROWS + 1) < 0.3


def test_where_memory_is_short_weights_go_but_for_the_embedding(prepared, monkeypatch, caplog):
    monkeypatch.setattr(quantization, "_KEPT_SHARE", 0.0)
    plain_model = load_model(prepared.folder, torch.float32, CPU, "eager")

    model, done = quantized(prepared.folder, AUTO, OnlyFew())

    assert "memory is short" in caplog.text
    assert {name for name, size in own_weights(model).items() if size} == {"lm_head"}
    embedding = model.get_input_embeddings().weight
    assert model.get_output_embeddings().weight is embedding
    assert done.kept_bytes == 4 * embedding.numel()
    assert error_of(model, plain_model, 100) < 1e-4


def test_a_head_that_is_the_embedding_is_no_reason_to_call_memory_short(
    prepared, monkeypatch, caplog
):
    monkeypatch.setattr(quantization, "_KEPT_SHARE", 0.0)

    model, _ = quantized(prepared.folder, AUTO, OnlyFourInBytes())

    assert "memory is short" not in caplog.text
    assert {name for name, size in own_weights(model).items() if size} == {"lm_head"}


def test_memory_that_other_layers_let_go_counts_as_free(prepared, monkeypatch, caplog):
    monkeypatch.setattr(quantization, "_KEPT_SHARE", 0.5)
    monkeypatch.setattr(quantization.psutil, "virtual_memory", lambda: Mock(available=0))

    model, _ = quantized(prepared.folder, INT8, OnlyFourInBytes())

    # Only down_proj and the head have 8 bits; down_proj is less than half of what goes.
    assert "memory is short" not in caplog.text
    assert {n for n, size in own_weights(model).items() if size} == {"lm_head", "down_proj"}


def test_a_model_without_plain_linear_layers_is_refused_by_its_type():
    config = GPT2Config(vocab_size=50, n_positions=16, n_embd=32, n_layer=1, n_head=2)
    model = AutoModelForCausalLM.from_config(config)
    model.lm_head = torch.nn.Identity()

    with pytest.raises(ModelLoadError, match="type 'gpt2' have no plain linear layers"):
        quantize_model(model, Plan(ops=native_ops(), packed_file=None, bits=4), quiet)


@pytest.mark.parametrize("damage", [b"", b"cut"])
def test_a_damaged_packed_file_is_named(prepared, tmp_path, damage):
    (tmp_path / PACKED).write_bytes(damage)
    model = load_model(prepared.folder, torch.float32, CPU, "eager")
    plan = Plan(ops=native_ops(), packed_file=tmp_path / PACKED, bits=None)

    with pytest.raises(ModelLoadError, match=PACKED):
        quantize_model(model, plan, quiet)


# A whole engine


def test_an_engine_tells_both_sizes(plain):
    def started(wanted: Quantization) -> EngineInfo:
        config = EngineConfig(
            model=str(plain),
            models_dir=plain.parent / "models",
            device=Device.CPU,
            mode=Mode.FAST,
            quantization=wanted,
            num_blocks=20,
        )
        core, info = assemble(config, quiet)
        assert core.limits.vocab_size == info.vocab_size
        return info

    none, int4, int8 = map(started, (AUTO, INT4, INT8))

    assert [info.quantization for info in (none, int4, int8)] == ["none", "int4", "int8"]
    assert 0 == none.packed_bytes < int4.packed_bytes < int8.packed_bytes
    # Beside packed weights layers keep their own, or where bytes are multiplied none.
    assert 0 < int4.weights_bytes <= int8.weights_bytes <= none.weights_bytes
