"""What `splice doctor` says of models and devices, each fault provoked."""

import json
import shutil
from pathlib import Path

import pytest
from transformers import MambaConfig

from app.doctor import engine_check
from model import decode_survey
from model.config import Device
from model.provision import DEFAULT_GGUF
from model.survey import DeviceSurvey
from tests.support.examined import doctor, has, whole_folder
from tests.support.tiny_gguf import write_tiny_gguf


@pytest.mark.parametrize(
    ("model", "words"),
    [("./nowhere.gguf", "no file or folder"), ("./", "no config.json"), ("text", "neither")],
)
def test_a_model_that_is_none_is_a_failure(model, words):
    Path("text").write_text("hello")

    code, found = doctor("--model", model)

    assert code == 1
    assert has(found, "model", "fail", words)


def test_a_default_model_that_is_damaged_is_a_failure_and_stays_there():
    folder = Path("data/models")
    folder.mkdir(parents=True)
    write_tiny_gguf(folder / DEFAULT_GGUF)
    before = whole_folder()

    code, found = doctor()

    assert code == 1
    assert has(found, "model", "fail", "is damaged")
    assert whole_folder() == before


def test_a_gguf_file_is_looked_at_as_it_is():
    write_tiny_gguf(Path("tiny.gguf"))

    code, found = doctor("--model", "tiny.gguf")

    assert code == 0
    assert has(found, "model", "ok", "tiny is of type llama")


def test_weights_that_are_cut_short_are_a_failure(tiny, tmp_path):
    copy = shutil.copytree(tiny, tmp_path / "copy")
    weights = copy / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-10])

    assert has(doctor("--model", str(copy))[1], "model", "fail", "is not whole")


def test_a_file_of_weights_that_is_missing_is_a_failure(tiny, tmp_path):
    copy = shutil.copytree(tiny, tmp_path / "copy")
    index = {"weight_map": {"a": "model-2.safetensors"}}
    (copy / "model.safetensors.index.json").write_text(json.dumps(index))

    assert has(doctor("--model", str(copy))[1], "model", "fail", "lacks model-2.safetensors")


def test_an_architecture_that_is_not_served_is_a_failure_with_the_reason(tiny, tmp_path):
    copy = shutil.copytree(tiny, tmp_path / "copy")
    MambaConfig(num_hidden_layers=1).save_pretrained(copy)

    code, found = doctor("--model", str(copy))

    assert code == 1
    assert has(found, "model", "fail", "can't be served")


# ---- device


def test_a_card_that_is_asked_for_and_not_there_is_a_failure(monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)

    code, found = doctor("--device", "cuda")

    assert code == 1
    assert has(found, "device", "fail", "sees no CUDA device")


def test_a_cache_that_does_not_fit_is_a_failure(tiny):
    code, found = doctor("--model", str(tiny), "--device", "cpu", "--cache-bytes", "900TiB")

    assert code == 1
    assert has(found, "device", "fail", "don't fit")


def test_a_cache_too_small_for_one_conversation_is_worth_a_look(tiny):
    _, found = doctor("--model", str(tiny), "--device", "cpu", "--num-blocks", "4")

    assert has(found, "device", "ok", "the cache holds about 64 tokens")
    assert has(found, "device", "warn", "raise --cache-bytes")


SURVEY = {
    "name": "x86_64",
    "dtype": "float32",
    "is_cuda": False,
    "num_threads": 2,
    "num_cpus": 2,
    "cpu_features": ("avx2",),
    "free_bytes": 1 << 30,
    "total_bytes": 1 << 31,
    "has_driver": False,
    "has_kernels": True,
}


@pytest.mark.parametrize(
    ("changes", "level", "words"),
    [
        ({}, "ok", "2 of x86_64 (avx2), 2 threads"),
        ({"has_driver": True}, "warn", "install a CUDA build of torch"),
        ({"cpu_features": ("bf16",)}, "warn", "lacks AVX2"),
        ({"has_kernels": False}, "warn", "install g++ or clang"),
        ({"num_threads": 9}, "warn", "lower --num-threads to 2"),
        ({"is_cuda": True, "name": "H200"}, "ok", "CUDA: H200"),
    ],
)
def test_what_is_found_of_a_device_is_told(monkeypatch, changes, level, words):
    survey = DeviceSurvey(**{**SURVEY, **changes})
    monkeypatch.setattr(engine_check, "survey_device", lambda config: survey)

    _, found = doctor("--device", Device.AUTO)

    assert has(found, "device", level, words)


# ---- decoding


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        ([], "weights to decode with: no others, for the model has none in 4 or 8 bits"),
        (["--quantization", "int4"], "weights to decode with: 4 bits, the head in 8"),
        (["--quantization", "none"], "no others, for --quantization none"),
        (["--mode", "exact"], "no others, for mode exact has one weight path"),
        (["--compile", "off"], "compiled step: none, for --compile off"),
        ([], "taken up, and compiled while nobody computes"),
        (["--compile", "first"], "taken up, and compiled before the server is ready"),
        (["--compile", "auto", "--attention", "batched"], "none, for attention batched"),
    ],
)
def test_what_decodes_is_told_and_why(tiny, flags, words):
    code, found = doctor("--model", str(tiny), "--device", "cpu", *flags)

    assert code == 0
    assert has(found, "device", "ok", words)


def test_a_files_own_bits_are_told():
    write_tiny_gguf(Path("tiny.gguf"), is_quantized=True)

    _, found = doctor("--model", "tiny.gguf", "--device", "cpu")

    assert has(found, "device", "ok", "weights to decode with: those that the model's file has")


def test_quantisation_that_is_asked_for_in_vain_is_a_failure(tiny, monkeypatch):
    monkeypatch.setattr(decode_survey, "find_compiler", lambda: None)

    code, found = doctor(
        *("--model", str(tiny), "--device", "cpu"),
        *("--quantization", "int8", "--native-dir", "nowhere"),
    )

    assert code == 1
    assert has(found, "device", "fail", "quantization int8 needs compiled kernels")


def test_a_compiled_step_that_ended_the_engine_is_worth_a_look(tiny, tmp_path):
    (tmp_path / "step-1.faults").write_text('File "model/compiled/step.py", line 1 in run')
    flags = ("--model", str(tiny), "--device", "cpu", "--native-dir", str(tmp_path))

    assert has(doctor(*flags)[1], "device", "warn", "step-1.faults")
    assert not has(doctor(*flags, "--compile", "off")[1], "device", "warn", "step-1.faults")
