"""What is told of packed weights and the compiled step before a start, against what that does."""

import pytest
import torch

from model import decode_survey
from model.assembly import choose_backend
from model.compiled.commission import reason_against
from model.config import AttentionName, CompileMode, Device, EngineConfig, Mode, Quantization
from model.decode_survey import survey_decoding
from model.errors import ModelLoadError
from model.provision import obtain
from model.quantization import plan_quantization
from model.weights import prepare
from tests.support.native_kernels import native_ops
from tests.support.tiny_folder import save_tiny_model
from tests.support.tiny_gguf import write_tiny_gguf

CPU = torch.device("cpu")


def quiet(_message):
    """Nobody listens."""


@pytest.fixture(scope="module", params=["folder", "plain file", "quantised file"])
def source(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("model")
    if request.param == "folder":
        return obtain(str(save_tiny_model(folder / "model")), folder / "models", quiet)
    write_tiny_gguf(folder / "Tiny.gguf", is_quantized=request.param == "quantised file")
    return obtain(str(folder / "Tiny.gguf"), folder / "models", quiet)


def config_with(**fields):
    return EngineConfig(device=Device.CPU, **fields)


def outcome(ask, *arguments):
    """What comes of asking, and why nothing does."""
    try:
        return ask(*arguments), None
    except ModelLoadError as exc:
        return None, str(exc)


@pytest.mark.parametrize("wanted", list(Quantization))
@pytest.mark.parametrize("mode", list(Mode))
def test_weights_are_packed_where_the_survey_says_so(source, tmp_path, wanted, mode):
    native_ops()
    config = config_with(quantization=wanted, mode=mode)
    folder = prepare(source, torch.float32, tmp_path, quiet).folder
    plan, refusal = outcome(plan_quantization, config, CPU, folder, quiet)

    survey, same_refusal = outcome(survey_decoding, source, config)

    assert same_refusal == refusal
    if survey is not None:
        assert (survey.quantization_reason is None) == (plan is not None)


@pytest.mark.parametrize("mode", list(Mode))
@pytest.mark.parametrize("attention", list(AttentionName))
def test_a_step_is_compiled_where_the_survey_says_so(source, mode, attention):
    native_ops()
    config = config_with(mode=mode, attention=attention, compile=CompileMode.AUTO)

    reason = survey_decoding(source, config).compile_reason

    assert reason == reason_against(config, choose_backend(config, CPU).name)
    off = survey_decoding(source, config_with(mode=mode, attention=attention))
    assert off.compile_reason == "--compile off asks for none"


def test_without_a_compiler_there_is_neither(tmp_path, monkeypatch):
    monkeypatch.setattr(decode_survey, "find_compiler", lambda: None)
    write_tiny_gguf(tmp_path / "Tiny.gguf", is_quantized=True)
    source = obtain(str(tmp_path / "Tiny.gguf"), tmp_path / "models", quiet)
    config = config_with(compile=CompileMode.AUTO, native_dir=tmp_path / "native")

    found = survey_decoding(source, config)

    assert found.quantization_reason == "no C++ compiler is installed"
    assert found.compile_reason == "attention batched is not compiled"
    with pytest.raises(ModelLoadError, match="int4 needs compiled kernels: no C"):
        survey_decoding(
            source, config_with(quantization=Quantization.INT4, native_dir=tmp_path / "native")
        )


def test_steps_that_ended_a_process_are_named(source, tmp_path):
    (tmp_path / "step-a.faults").write_text('File "model/compiled/step.py", line 1 in run')
    (tmp_path / "step-b.faults").write_text('File "model/worker.py", line 1 in run')
    native_ops()
    config = config_with(compile=CompileMode.AUTO, native_dir=tmp_path)

    assert survey_decoding(source, config).faults == (tmp_path / "step-a.faults",)
    off = config_with(compile=CompileMode.OFF, native_dir=tmp_path)
    assert survey_decoding(source, off).faults == ()
    nowhere = config_with(compile=CompileMode.AUTO, native_dir=tmp_path / "none")
    assert survey_decoding(source, nowhere).faults == ()
