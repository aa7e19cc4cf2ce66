"""A GGUF file unpacked, kept, and unpacked again when the result is damaged."""

import pytest
import torch
from transformers import AutoTokenizer, GenerationConfig

from model import gguf
from model.errors import ModelLoadError
from model.gguf import prepare_gguf
from model.provision import obtain
from tests.support.tiny_gguf import write_tiny_gguf


def quiet(_message):
    """Nobody listens."""


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    folder = tmp_path_factory.mktemp("gguf")
    write_tiny_gguf(folder / "Tiny.gguf")
    return obtain(str(folder / "Tiny.gguf"), folder / "digests", quiet)


@pytest.fixture(scope="module")
def models_dir(tmp_path_factory):
    return tmp_path_factory.mktemp("models")


@pytest.fixture(scope="module")
def folder(source, models_dir):
    return prepare_gguf(source, torch.float32, models_dir, quiet)


def test_the_tokenizer_sets_digits_apart_as_the_vocabulary_was_learned(folder):
    tokenizer = AutoTokenizer.from_pretrained(folder)

    tokens = tokenizer.convert_ids_to_tokens(tokenizer.encode("a\n\n12  3"))

    assert tokens == ["a", "ĊĊ", "1", "2", "ĠĠ", "3"]


def test_special_tokens_and_template_are_the_files(folder):
    tokenizer = AutoTokenizer.from_pretrained(folder)

    assert tokenizer.encode("<|im_start|>x<|im_end|>")[::2] == [1, 2]
    assert tokenizer.eos_token == "<|im_end|>"
    assert tokenizer.chat_template is not None
    assert GenerationConfig.from_pretrained(folder).eos_token_id in (2, [2])


def test_text_comes_back_as_it_was(folder):
    tokenizer = AutoTokenizer.from_pretrained(folder)
    text = " Grüße , 你好 😀 \n\n 42 . "

    assert tokenizer.decode(tokenizer.encode(text), clean_up_tokenization_spaces=False) == text


def test_a_second_start_finds_the_first_ones_result(source, models_dir, folder):
    said = []

    again = prepare_gguf(source, torch.float32, models_dir, said.append)

    assert (again, said) == (folder, [])


def test_each_number_format_has_a_folder_of_its_own(source, models_dir, folder):
    other = prepare_gguf(source, torch.bfloat16, models_dir, quiet)

    assert other != folder
    assert folder.exists()


def test_weights_packed_in_another_format_are_packed_again(tmp_path, source, monkeypatch):
    before = prepare_gguf(source, torch.float32, tmp_path, quiet)
    monkeypatch.setattr(gguf, "PACKED_FORMAT", gguf.PACKED_FORMAT + 1)

    after = prepare_gguf(source, torch.float32, tmp_path, quiet)

    assert after != before
    assert not before.exists()


@pytest.mark.parametrize("damage", ["model.safetensors", "tokenizer.json", "splice.json"])
def test_a_damaged_result_is_made_again(source, models_dir, folder, damage):
    (folder / damage).write_bytes(b"cut")
    said = []

    again = prepare_gguf(source, torch.float32, models_dir, said.append)

    assert again == folder
    assert said == ["unpacking Tiny.gguf to float32 (once)"]
    assert (folder / damage).stat().st_size > 3
    assert not list(folder.parent.glob(".part-*"))


def test_a_file_that_is_no_model_is_refused(tmp_path):
    (tmp_path / "Broken.gguf").write_bytes(b"GGUF" + b"\x03\x00\x00\x00" + b"\x00" * 16)
    source = obtain(str(tmp_path / "Broken.gguf"), tmp_path / "models", quiet)

    with pytest.raises(ModelLoadError, match="can't be read by transformers"):
        prepare_gguf(source, torch.float32, tmp_path / "models", quiet)

    assert not list((tmp_path / "models" / "prepared").glob("*Broken*"))
