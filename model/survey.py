"""What can be told of a model and a device before anything is loaded. Writes and fetches nothing.

What would stop a start raises ModelLoadError with what to do, in the words that the start itself
would use.
"""

import hashlib
import json
import platform
from dataclasses import dataclass
from pathlib import Path

import psutil
import torch
import transformers
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedConfig

from model.assembly import choose_attention, choose_device, choose_dtype, spare_bytes
from model.attention.cpu import CpuBackend
from model.config import AttentionName, EngineConfig, Mode
from model.errors import ModelLoadError
from model.gguf import quiet
from model.native.build import find_compiler, library_path
from model.provision import DEFAULT_MODEL, DEFAULT_SHA256, ModelSource, SourceKind
from model.support import max_context_tokens, refuse_unsupported

_HEADER_BYTES = 8
# What matters to the speed of a CPU; the names are the kernel's.
_FEATURES = ("avx2", "avx512f", "avx512_vnni", "avx512_bf16", "amx_bf16", "asimd", "bf16")


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceSurvey:
    """What a model would run on. `free_bytes` is memory of the device; `cpu_features` is empty
    where the system doesn't tell; `has_driver`: a CUDA card is there, whether torch sees it or not;
    `has_kernels`: those for the CPU are compiled, or there is a compiler.
    """

    name: str
    dtype: str
    is_cuda: bool
    num_threads: int
    num_cpus: int
    cpu_features: tuple[str, ...]
    free_bytes: int
    total_bytes: int
    has_driver: bool
    has_kernels: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSurvey:
    """What a model needs: bytes of its weights once loaded, and of one block of its cache."""

    model_type: str
    weights_bytes: int
    block_bytes: int
    max_context_tokens: int


def survey_device(config: EngineConfig) -> DeviceSurvey:
    """Look at the device that would be chosen. Raises ModelLoadError when there is no such one."""
    device = choose_device(config.device)
    is_cuda = device.type == "cuda"
    memory = psutil.virtual_memory()
    free, total = torch.cuda.mem_get_info(device) if is_cuda else (memory.available, memory.total)
    return DeviceSurvey(
        name=torch.cuda.get_device_name(device) if is_cuda else platform.machine(),
        dtype=str(choose_dtype(config.mode, device)).removeprefix("torch."),
        is_cuda=is_cuda,
        num_threads=config.num_threads or torch.get_num_threads(),
        num_cpus=len(psutil.Process().cpu_affinity() or ()) or psutil.cpu_count() or 1,
        cpu_features=_cpu_features(),
        free_bytes=free,
        total_bytes=total,
        has_driver=Path("/dev/nvidiactl").exists(),
        has_kernels=_has_kernels(config),
    )


def pool_bytes(config: EngineConfig, block_bytes: int) -> int:
    """What the cache would take, of memory as it is now."""
    if config.num_blocks is not None:
        return config.num_blocks * block_bytes
    return config.cache_bytes or spare_bytes(choose_device(config.device))


def check_files(source: ModelSource, model: str) -> str:
    """See that the weights are whole; what was seen, in words. Reads the default model's whole file
    and only the headers of others."""
    if source.kind is SourceKind.FOLDER:
        return _check_folder(source.path)
    if model != DEFAULT_MODEL:
        return f"{source.path}, a GGUF file"
    with source.path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    if digest != DEFAULT_SHA256:
        raise ModelLoadError(
            f"{source.path} is damaged: its sha256 is {digest}; delete it, and the next start "
            "fetches it again"
        )
    return f"{source.path}, its digest is right"


def survey_model(source: ModelSource, config: EngineConfig) -> ModelSurvey:
    """See that such a model is served, and what it needs. Raises ModelLoadError."""
    described = _config_of(source)
    refuse_unsupported(described)
    dtype = choose_dtype(config.mode, choose_device(config.device))
    with torch.device("meta"), quiet():  # shapes without memory
        empty = AutoModelForCausalLM.from_config(described, dtype=dtype)
    return ModelSurvey(
        model_type=described.model_type,
        weights_bytes=sum(p.numel() * p.element_size() for p in empty.parameters()),
        block_bytes=_block_bytes(described, config.block_size, _kv_dtype(config, dtype)),
        max_context_tokens=max_context_tokens(described),
    )


def _kv_dtype(config: EngineConfig, dtype: torch.dtype) -> torch.dtype:
    chosen = choose_attention(config, choose_device(config.device))
    is_native = chosen is AttentionName.CPU and _has_kernels(config)
    return CpuBackend.kv_dtype(dtype) if is_native and config.mode is Mode.FAST else dtype


def _has_kernels(config: EngineConfig) -> bool:
    return find_compiler() is not None or library_path(config.native_dir).exists()


def _block_bytes(described: PreTrainedConfig, block_size: int, dtype: torch.dtype) -> int:
    heads = described.num_attention_heads
    size = getattr(described, "head_dim", None) or described.hidden_size // heads
    kv_heads = getattr(described, "num_key_value_heads", None) or heads
    return int(2 * described.num_hidden_layers * kv_heads * size * block_size * dtype.itemsize)


def _config_of(source: ModelSource) -> PreTrainedConfig:
    is_gguf = source.kind is SourceKind.GGUF
    folder = source.path.parent if is_gguf else source.path
    where = {"gguf_file": source.path.name} if is_gguf else {}
    try:
        with quiet():
            described: PreTrainedConfig = AutoConfig.from_pretrained(
                folder, local_files_only=True, **where
            )
    except (OSError, ValueError, KeyError, ImportError, RuntimeError) as exc:
        raise ModelLoadError(
            f"transformers {transformers.__version__} can't read {source.path}: {exc}"
        ) from exc
    return described


def _check_folder(folder: Path) -> str:
    try:
        indexes = sorted(folder.glob("*.safetensors.index.json"))
        named = {
            file
            for index in indexes
            for file in json.loads(index.read_text())["weight_map"].values()
        }
        missing = sorted(file for file in named if not (folder / file).exists())
        if missing:
            raise ModelLoadError(
                f"the folder {folder} lacks {', '.join(missing[:3])}: fetch the model again"
            )
        found = sorted(folder.glob("*.safetensors"))
        for path in found:
            _check_tensors(path)
    except (OSError, ValueError, KeyError, AttributeError) as exc:
        raise ModelLoadError(f"the folder {folder} can't be read: {exc}") from exc
    return f"{folder}, {len(found)} files of weights"


def _check_tensors(path: Path) -> None:
    """See that a safetensors file is as long as its header says."""
    with path.open("rb") as file:
        length = int.from_bytes(file.read(_HEADER_BYTES), "little")
        header = json.loads(file.read(length))
    ends = [entry["data_offsets"][1] for name, entry in header.items() if name != "__metadata__"]
    if path.stat().st_size != _HEADER_BYTES + length + max(ends, default=0):
        raise ModelLoadError(f"{path} is not whole: fetch the model again")


def _cpu_features() -> tuple[str, ...]:
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="ascii", errors="replace")
    except OSError:
        return ()
    words = set(text.split())
    return tuple(feature for feature in _FEATURES if feature in words)
