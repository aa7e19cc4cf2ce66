"""A GGUF file made into a folder that transformers reads fast.

Unpacking a GGUF takes many seconds, so its result is kept below `models_dir/prepared`, keyed by
the file's digest, the dtype, transformers' version and the formats of what is written. It is a
cache: a folder counts only with the mark that is written last, and one that is damaged is made
again.
"""

import contextlib
import io
import json
import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
import transformers
from filelock import FileLock
from safetensors.torch import save_file
from tokenizers import Regex, pre_tokenizers
from transformers import AutoModelForCausalLM, AutoTokenizer
from transformers.utils import logging as transformers_logging

from model.errors import ModelLoadError
from model.gguf_codes import pack_file
from model.packed_weights import FORMAT as PACKED_FORMAT
from model.provision import DEFAULT_SHA256, ModelSource, OnProgress

FORMAT = 3
"""Raise it when what is written into the folder changes, but for packed weights, which have their
own."""

PACKED = "packed.safetensors"
"""In the folder: the weights that the file has in 4 or 8 bits, as `packed_weights` packs them."""

_MARK = "splice.json"
# Vocabularies whose merges were learned with each digit apart, before GPT-2's splitting; without
# this "\n\n1." is cut in a way the model never saw. transformers' own table lacks these names.
_DIGITS_APART = {"smollm", "starcoder", "refact", "command-r", "codeshell", "exaone", "minerva-7b"}


def prepare_gguf(
    source: ModelSource, dtype: torch.dtype, models_dir: Path, on_progress: OnProgress
) -> Path:
    """The folder with the file's weights in `dtype`, its tokenizer and its generation settings.

    Made on the first call (seconds to minutes), found on later ones. Raises ModelLoadError.
    """
    assert source.sha256 is not None, "a GGUF source without its digest"
    dtype_name = str(dtype).removeprefix("torch.")
    stem = f"{source.sha256[:16]}-{dtype_name}"
    root = models_dir / "prepared"
    folder = root / f"{stem}-{transformers.__version__}-{FORMAT}.{PACKED_FORMAT}"
    if _is_whole(folder, source):
        return folder
    try:
        root.mkdir(parents=True, exist_ok=True)
        with FileLock(root / ".lock"):
            if not _is_whole(folder, source):
                on_progress(f"unpacking {source.path.name} to {dtype_name} (once)")
                _remove(root.glob(f"{stem}-*"))
                _remove(root.glob(".part-*"))
                _make(source, dtype, folder)
    except OSError as exc:
        raise ModelLoadError(f"the prepared weights can't be kept in {root}: {exc}") from exc
    return folder


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Silence transformers' advice and bars, which mean nothing to who starts a server.

    One bar heeds nobody; it stays where a person sees it, and out of a log that is a file.
    """
    verbosity = transformers_logging.get_verbosity()
    bars = transformers_logging.is_progress_bar_enabled()
    transformers_logging.set_verbosity_error()
    transformers_logging.disable_progress_bar()
    away = contextlib.nullcontext() if sys.stderr.isatty() else _without_stderr()
    try:
        with away:
            yield
    finally:
        transformers_logging.set_verbosity(verbosity)
        if bars:
            transformers_logging.enable_progress_bar()


def _without_stderr() -> contextlib.AbstractContextManager[object]:
    return contextlib.redirect_stderr(io.StringIO())


def _remove(folders: Iterator[Path]) -> None:
    for folder in folders:
        shutil.rmtree(folder, ignore_errors=True)


def _is_whole(folder: Path, source: ModelSource) -> bool:
    try:
        mark = json.loads((folder / _MARK).read_text(encoding="utf-8"))
        sizes = {name: (folder / name).stat().st_size for name in mark["files"]}
        return bool(mark["sha256"] == source.sha256 and sizes == mark["files"])
    except (OSError, ValueError, KeyError, TypeError):
        return False


def _make(source: ModelSource, dtype: torch.dtype, folder: Path) -> None:
    part = folder.with_name(f".part-{folder.name}")
    part.mkdir()
    try:
        with quiet():
            _write(source, dtype, part)
        sizes = {p.name: p.stat().st_size for p in part.iterdir()}
        mark = {"format": FORMAT, "sha256": source.sha256, "files": sizes}
        (part / _MARK).write_text(json.dumps(mark, indent=1), encoding="utf-8")
        for path in part.iterdir():
            _through_to_disk(path)
        part.rename(folder)
    finally:
        shutil.rmtree(part, ignore_errors=True)


def _write(source: ModelSource, dtype: torch.dtype, part: Path) -> None:
    where: dict[str, Any] = {"gguf_file": source.path.name, "local_files_only": True}
    try:
        tokenizer = AutoTokenizer.from_pretrained(source.path.parent, **where)
        model = AutoModelForCausalLM.from_pretrained(source.path.parent, dtype=dtype, **where)
    except (ValueError, KeyError, ImportError, RuntimeError) as exc:
        raise ModelLoadError(f"{source.path.name} can't be read by transformers: {exc}") from exc
    facts = _facts(source.path)
    _split_digits(tokenizer, facts.get("tokenizer.ggml.pre"))
    # The weights are plain tensors now; the traces of the quantiser would forbid saving them.
    model.hf_quantizer = None
    model.is_quantized = False
    if hasattr(model.config, "quantization_config"):
        del model.config.quantization_config
    ends = [facts.get(f"tokenizer.ggml.{key}_token_id") for key in ("eos", "eot")]
    found = sorted({int(end) for end in ends if end is not None})
    if found:
        model.generation_config.eos_token_id = found
    if source.sha256 == DEFAULT_SHA256:
        # A GGUF has no field for what the model's card recommends.
        model.generation_config.update(do_sample=True, temperature=0.2, top_p=0.9)
    model.save_pretrained(part)
    tokenizer.save_pretrained(part)
    packed = pack_file(source.path, model)
    if packed:
        save_file(packed, part / PACKED)


def _facts(path: Path) -> dict[str, Any]:
    """The file's scalar metadata under the names llama.cpp gives them."""
    from gguf import GGUFReader  # costs a second, and only an unpacking needs it

    reader = GGUFReader(path)
    wanted = ("tokenizer.ggml.pre", "tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id")
    return {name: reader.fields[name].contents() for name in wanted if name in reader.fields}


def _split_digits(tokenizer: Any, pre: str | None) -> None:  # noqa: ANN401 (transformers is untyped)
    if pre in _DIGITS_APART:
        tokenizer.backend_tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
            [
                pre_tokenizers.Split(Regex(r"\p{N}"), behavior="isolated"),
                pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
            ]
        )


def _through_to_disk(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
