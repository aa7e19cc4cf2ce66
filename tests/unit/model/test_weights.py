"""Loading a model, and the fingerprint of exactly what was loaded."""

import json
import shutil

import pytest
import torch
from safetensors.torch import load_file, save_file

from model.config import SamplingParams
from model.errors import ModelLoadError
from model.provision import obtain
from model.weights import (
    eos_token_ids,
    fingerprint,
    load_model,
    load_tokenizer,
    prepare,
    recommended_sampling,
)
from tests.support.tiny_gguf import write_tiny_gguf

CPU = torch.device("cpu")


def quiet(_message):
    """Nobody listens."""


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    """A GGUF and the folder it is unpacked to."""
    folder = tmp_path_factory.mktemp("weights")
    write_tiny_gguf(folder / "Tiny.gguf")
    source = obtain(str(folder / "Tiny.gguf"), folder / "models", quiet)
    return prepare(source, torch.float32, folder / "models", quiet)


@pytest.fixture
def folder(original, tmp_path):
    """A folder of one's own, as save_pretrained writes it."""
    copy = tmp_path / "model"
    shutil.copytree(original.folder, copy)
    return copy


def print_of(folder, dtype=torch.float32, kv_dtype=None):
    source = obtain(str(folder), folder.parent / "models", quiet)
    prepared = prepare(source, dtype, folder.parent / "models", quiet)
    return fingerprint(prepared, dtype, folder.parent / "models", quiet, kv_dtype=kv_dtype)


def test_a_model_is_loaded_ready_to_run(folder):
    model = load_model(folder, torch.float32, CPU, "eager")

    assert not model.training
    assert not any(parameter.requires_grad for parameter in model.parameters())
    assert model(torch.tensor([[3, 4]])).logits.shape == (1, 2, 261)


def test_missing_weights_are_refused_and_not_made_up(folder):
    weights = load_file(folder / "model.safetensors")
    weights.pop("model.layers.1.mlp.up_proj.weight")
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})

    with pytest.raises(ModelLoadError, match=r"incomplete: model\.layers\.1\.mlp\.up_proj\.weight"):
        load_model(folder, torch.float32, CPU, "eager")


@pytest.mark.parametrize("damage", [b"", b"not safetensors at all"])
def test_damaged_weights_are_refused(folder, damage):
    (folder / "model.safetensors").write_bytes(damage)

    with pytest.raises(ModelLoadError, match="can't be loaded"):
        load_model(folder, torch.float32, CPU, "eager")


@pytest.mark.parametrize("config", ["{", '{"model_type": "from-the-future"}'])
def test_a_configuration_that_transformers_does_not_know_is_refused(folder, config):
    (folder / "config.json").write_text(config)

    with pytest.raises(ModelLoadError, match="can't read"):
        load_model(folder, torch.float32, CPU, "eager")


def test_an_attention_that_nobody_registered_is_refused(folder):
    with pytest.raises(ModelLoadError, match="can't be loaded"):
        load_model(folder, torch.float32, CPU, "no_such_attention")


def test_every_end_that_any_file_names_ends_a_reply(folder):
    settings = json.loads((folder / "generation_config.json").read_text())
    settings["eos_token_id"] = [0, 7]
    (folder / "generation_config.json").write_text(json.dumps(settings))

    assert eos_token_ids(folder, load_tokenizer(folder)) == (0, 2, 7)


def test_the_fingerprint_does_not_depend_on_where_the_model_lies(folder, tmp_path):
    elsewhere = tmp_path / "elsewhere" / "other-name"
    shutil.copytree(folder, elsewhere)

    assert print_of(folder) == print_of(elsewhere)


def test_the_fingerprint_tells_apart_in_what_keys_and_values_are_kept(folder):
    prints = [print_of(folder, kv_dtype=kept) for kept in (None, torch.float32, torch.bfloat16)]

    assert prints[0] == prints[1] != prints[2]


def test_the_fingerprint_tells_number_formats_apart(folder):
    assert print_of(folder) != print_of(folder, torch.bfloat16)


@pytest.mark.parametrize("name", ["model.safetensors", "tokenizer.json", "chat_template.jinja"])
def test_the_fingerprint_changes_with_what_decides_keys_and_values(folder, name):
    before = print_of(folder)
    with (folder / name).open("ab") as file:
        file.write(b" ")

    assert print_of(folder) != before


def test_the_fingerprint_changes_with_the_configuration_and_not_with_its_noise(folder):
    before = print_of(folder)
    config = json.loads((folder / "config.json").read_text())

    (folder / "config.json").write_text(json.dumps({**config, "_name_or_path": "elsewhere"}))
    assert print_of(folder) == before

    (folder / "config.json").write_text(json.dumps({**config, "rms_norm_eps": 0.5}))
    assert print_of(folder) != before


def test_the_makers_recommendation_is_taken_only_if_it_is_one(tmp_path):
    settings = tmp_path / "generation_config.json"
    assert recommended_sampling(tmp_path) == SamplingParams(temperature=0.7)
    settings.write_text(json.dumps({"temperature": 1.0, "top_p": 1.0}))
    assert recommended_sampling(tmp_path) == SamplingParams(temperature=0.7)
    settings.write_text(json.dumps({"do_sample": True, "temperature": 0.6, "top_k": 20}))
    assert recommended_sampling(tmp_path) == SamplingParams(temperature=0.6, top_k=20)
    settings.write_text("{")
    with pytest.raises(ModelLoadError, match="can't be read"):
        recommended_sampling(tmp_path)
