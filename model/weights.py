"""From a model on disk to a module ready to run, and the fingerprint of exactly that.

`prepare` gives a folder transformers can read; `load_model` refuses by name what the paged cache
can't serve, and everything that would be filled with random numbers because it is missing.
"""

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import transformers
from safetensors import SafetensorError
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoTokenizer,
    GenerationConfig,
    PreTrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

from model.config import SamplingParams
from model.digests import file_sha256
from model.errors import ModelLoadError
from model.gguf import prepare_gguf, quiet
from model.provision import ModelSource, OnProgress, SourceKind
from model.support import refuse_unsupported, refuse_unsupported_weights

_TOKENIZER_FILES = (
    "tokenizer.json",
    "tokenizer.model",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "merges.txt",
    "chat_template.jinja",
    "chat_template.json",
)
# What changes without the model changing.
_CONFIG_NOISE = {"_name_or_path", "transformers_version", "torch_dtype", "dtype"}
_UNREADABLE = (OSError, ValueError, KeyError, ImportError, RuntimeError, SafetensorError)


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedModel:
    """A folder with config, safetensors, tokenizer and generation settings; `source` made it."""

    folder: Path
    source: ModelSource


def prepare(
    source: ModelSource, dtype: torch.dtype, models_dir: Path, on_progress: OnProgress
) -> PreparedModel:
    """Make the source loadable. A folder is used as it is; a GGUF is unpacked once, and kept."""
    folder = source.path
    if source.kind is SourceKind.GGUF:
        folder = prepare_gguf(source, dtype, models_dir, on_progress)
    return PreparedModel(folder=folder, source=source)


def load_config(folder: Path) -> PreTrainedConfig:
    """The model's configuration; raises ModelLoadError when such a model can't be served here."""
    try:
        config = AutoConfig.from_pretrained(folder, local_files_only=True)
    except _UNREADABLE as exc:
        raise ModelLoadError(
            f"transformers {transformers.__version__} can't read {folder / 'config.json'}: {exc}"
        ) from exc
    refuse_unsupported(config)
    return config


def load_model(
    folder: Path, dtype: torch.dtype, device: torch.device, attn_implementation: str
) -> PreTrainedModel:
    """The model on its device, in eval mode, without gradients. Raises ModelLoadError.

    `attn_implementation` names an attention that is registered with transformers already.
    """
    config = load_config(folder)
    placed: dict[str, Any] = {} if device.type == "cpu" else {"device_map": {"": device}}
    try:
        with quiet():
            model, report = AutoModelForCausalLM.from_pretrained(
                folder,
                config=config,
                dtype=dtype,
                attn_implementation=attn_implementation,
                local_files_only=True,
                use_safetensors=True,
                output_loading_info=True,
                **placed,
            )
    except _UNREADABLE as exc:
        raise ModelLoadError(f"the weights in {folder} can't be loaded: {exc}") from exc
    if report["missing_keys"]:
        some = ", ".join(sorted(report["missing_keys"])[:3])
        raise ModelLoadError(
            f"the weights in {folder} are incomplete: {some} and so on are missing"
        )
    refuse_unsupported_weights(model, config.model_type)
    assert model.config._attn_implementation == attn_implementation, "another attention was set"
    loaded: PreTrainedModel = model.eval().requires_grad_(requires_grad=False)
    return loaded


def load_tokenizer(folder: Path) -> PreTrainedTokenizerBase:
    """The folder's tokenizer; raises ModelLoadError."""
    try:
        tokenizer: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(
            folder, local_files_only=True
        )
    except _UNREADABLE as exc:
        raise ModelLoadError(f"the tokenizer in {folder} can't be read: {exc}") from exc
    return tokenizer


def eos_token_ids(folder: Path, tokenizer: PreTrainedTokenizerBase) -> tuple[int, ...]:
    """Every id that ends a reply, as generation settings, configuration or tokenizer name it."""
    found: set[int] = set()
    declared: list[Any] = [tokenizer.eos_token_id]
    try:
        config = AutoConfig.from_pretrained(folder, local_files_only=True)
        declared.append(getattr(config, "eos_token_id", None))
        if (folder / "generation_config.json").exists():
            declared.append(GenerationConfig.from_pretrained(folder).eos_token_id)
    except _UNREADABLE as exc:
        raise ModelLoadError(f"the end tokens of {folder} can't be read: {exc}") from exc
    for ids in declared:
        found.update(ids if isinstance(ids, list | tuple) else () if ids is None else (ids,))
    return tuple(sorted(found))


def recommended_sampling(folder: Path) -> SamplingParams:
    """What the generation settings recommend; temperature 0.7 alone where they say nothing."""
    path = folder / "generation_config.json"
    try:
        declared = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    except (OSError, ValueError) as exc:
        raise ModelLoadError(f"{path} can't be read: {exc}") from exc
    # Without `do_sample` the numbers are transformers' own defaults, nobody's advice.
    if not declared.get("do_sample"):
        return SamplingParams(temperature=0.7)
    return SamplingParams(
        temperature=float(declared.get("temperature") or 0.7),
        top_p=float(declared.get("top_p") or 1.0),
        top_k=int(declared.get("top_k") or 0),
        min_p=float(declared.get("min_p") or 0.0),
        repetition_penalty=float(declared.get("repetition_penalty") or 1.0),
    )


def fingerprint(
    prepared: PreparedModel,
    dtype: torch.dtype,
    models_dir: Path,
    on_progress: OnProgress,
    quantization: str | None = None,
    kv_dtype: torch.dtype | None = None,
) -> str:
    """32 hex digits over everything that decides what a token's keys and values are.

    That is weights, what `quantization` makes of them (None: nothing), configuration, tokenizer,
    chat template, dtype, that of keys and values (None: the same) and transformers' major version;
    never where the files lie. Weights are read once and their digests remembered.
    """
    folder = prepared.folder
    try:
        weights = [prepared.source.sha256] if prepared.source.sha256 else _weights(folder)
        digests = [
            file_sha256(path, models_dir, on_progress) if isinstance(path, Path) else path
            for path in weights
        ]
        parts: dict[str, Any] = {
            "weights": digests,
            "config": _config(folder),
            "tokenizer": {
                name: hashlib.sha256((folder / name).read_bytes()).hexdigest()
                for name in _TOKENIZER_FILES
                if (folder / name).exists()
            },
            "dtype": str(dtype),
            "transformers": transformers.__version__.split(".")[0],
        }
        if quantization is not None:
            parts["quantization"] = quantization
        if kv_dtype not in (None, dtype):
            parts["kv_dtype"] = str(kv_dtype)
    except (OSError, ValueError) as exc:
        raise ModelLoadError(f"the model in {folder} can't be read: {exc}") from exc
    canonical = json.dumps(parts, sort_keys=True).encode()
    return hashlib.blake2b(canonical, digest_size=16).hexdigest()


def _weights(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.safetensors"))


def _config(folder: Path) -> dict[str, Any]:
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    return {key: value for key, value in config.items() if key not in _CONFIG_NOISE}
