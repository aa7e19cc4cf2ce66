"""Puts an engine core together: model, cache, backend, tokenizer. The composition root of the
engine's process.
"""

import logging
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import psutil
import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from model.attention.base import IMPLEMENTATION, AttentionBackend, register
from model.attention.batched import BatchedBackend
from model.attention.cpu import CpuBackend
from model.attention.reference import ReferenceBackend
from model.cache_manager import CacheManager
from model.compiled.commission import commission
from model.config import AttentionName, Device, EngineConfig, Mode
from model.core import EngineCore
from model.errors import ModelLoadError
from model.few_rows import speed_up
from model.kv_cache import KVCache
from model.matcher import Grammars
from model.messages import EngineInfo
from model.native.build import NativeBuildError, load_ops
from model.native.copier import CompiledCopier
from model.ports import CoreLimits, Tokenizer
from model.prefix_index import BlockHasher
from model.provision import obtain
from model.quantization import Plan, plan_quantization, quantize_model
from model.runner import ModelRunner, ModelShape
from model.self_check import check_answers
from model.tier_assembly import Surroundings, build_tiers
from model.tiers.copies import Copier, PlainCopier
from model.weights import (
    eos_token_ids,
    fingerprint,
    load_model,
    load_tokenizer,
    prepare,
    recommended_sampling,
)

logger = logging.getLogger(__name__)

OnProgress = Callable[[str], None]

_CPU_CACHE_BYTES = 2 << 30
_CPU_MEMORY_SHARE = 0.25
_CUDA_MEMORY_SHARE = 0.85
"""Of what is free once the weights are loaded; the rest is for activations."""


class TextTokenizer:
    """The core's `Tokenizer` over transformers' one: no clean-up, no special tokens."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase) -> None:
        self._tokenizer = tokenizer

    def decode(self, token_ids: list[int]) -> str:
        """Ids to text, special tokens left out."""
        text: str = self._tokenizer.decode(
            token_ids, skip_special_tokens=True, clean_up_tokenization_spaces=False
        )
        return text

    def encode(self, text: str) -> list[int]:
        """Text to ids as behind other text, nothing added."""
        # Some tokenizers put a space before what a text begins with: let it begin with a line end.
        before = self._encode("\n")
        token_ids = self._encode("\n" + text)
        if token_ids[: len(before)] == before:
            return token_ids[len(before) :]
        return self._encode(text)

    def _encode(self, text: str) -> list[int]:
        token_ids: list[int] = self._tokenizer.encode(text, add_special_tokens=False)
        return token_ids


def assemble(
    config: EngineConfig, on_progress: OnProgress, wake: Callable[[], None] = lambda: None
) -> tuple[EngineCore, EngineInfo]:
    """Load everything; `wake` is called, from other threads, when a transfer is over. Raises
    ModelLoadError with what to do; may take minutes the first time."""
    if config.num_threads:
        torch.set_num_threads(config.num_threads)
    device = choose_device(config.device)
    dtype = choose_dtype(config.mode, device)
    source = obtain(config.model, config.models_dir, on_progress)
    prepared = prepare(source, dtype, config.models_dir, on_progress)
    backend = choose_backend(config, device, on_progress)
    on_progress(f"loading {source.model_id} in {_name(dtype)} on {device}")
    served = load_served(config, prepared.folder, backend, on_progress)
    kv_dtype = choose_kv_dtype(config.mode, dtype, backend)
    identity = fingerprint(
        prepared, dtype, config.models_dir, on_progress, served.identity, kv_dtype
    )
    tokenizer = load_tokenizer(prepared.folder)
    eos = eos_token_ids(prepared.folder, tokenizer)
    core = build_core(
        config,
        served.model,
        backend,
        TextTokenizer(tokenizer),
        identity=identity,
        eos=eos,
        wake=wake,
    )
    core.grammars = Grammars(tokenizer, core.limits.vocab_size, eos)
    info = EngineInfo(
        model_id=source.model_id,
        tokenizer_path=str(prepared.folder),
        fingerprint=identity,
        device=str(device),
        dtype=_name(dtype),
        kv_dtype=_name(kv_dtype),
        mode=config.mode.value,
        attention=backend.name,
        quantization=served.quantization,
        weights_bytes=served.weights_bytes,
        packed_bytes=served.packed_bytes,
        cache_bytes=core.cache.pool.num_blocks * core.limits.block_bytes,
        num_blocks=core.cache.pool.num_blocks,
        block_size=config.block_size,
        block_bytes=core.limits.block_bytes,
        max_context_tokens=core.limits.max_context_tokens,
        vocab_size=core.limits.vocab_size,
        eos_token_ids=tuple(sorted(core.limits.eos_token_ids)),
        sampling=recommended_sampling(prepared.folder),
    )
    return core, info


@dataclass(frozen=True, slots=True)
class ServedModel:
    """A model as it computes here, its layers quantised and sped up where that is meant."""

    model: PreTrainedModel
    plan: Plan | None
    packed_bytes: int

    @property
    def quantization(self) -> str:
        """`none`, or the plan's name."""
        return self.plan.name if self.plan else "none"

    @property
    def identity(self) -> str | None:
        """What quantisation makes of keys and values, None where there is none."""
        return self.plan.identity if self.plan else None

    @property
    def weights_bytes(self) -> int:
        """Of the weights that aren't packed."""
        return sum(t.numel() * t.element_size() for t in self.model.parameters())


def load_served(
    config: EngineConfig, folder: Path, backend: AttentionBackend, on_progress: OnProgress
) -> ServedModel:
    """The model in a prepared folder, as `config` wants it computed. Raises ModelLoadError."""
    device = choose_device(config.device)
    plan = plan_quantization(config, device, folder, on_progress)
    register()
    model = load_model(folder, choose_dtype(config.mode, device), device, IMPLEMENTATION)
    packed_bytes = 0
    if plan is not None:
        done = quantize_model(model, plan, on_progress)
        packed_bytes = done.packed_bytes
        logger.info(
            "%s of %s linear layers have packed weights (%.0f MB) and beside them %.0f MB unpacked",
            done.num_layers,
            done.num_linear,
            done.packed_bytes / 1e6,
            done.kept_bytes / 1e6,
        )
    if isinstance(backend, CpuBackend):
        speed_up(model, backend.ops)
    return ServedModel(model, plan, packed_bytes)


def choose_device(device: Device) -> torch.device:
    """The device wanted, or the best there is."""
    if device is Device.CPU or (device is Device.AUTO and not torch.cuda.is_available()):
        return torch.device("cpu")
    if not torch.cuda.is_available():
        raise ModelLoadError(
            "device cuda was asked for, but this torch sees no CUDA device: "
            "install a CUDA build of torch, or serve with --device cpu"
        )
    return torch.device("cuda", torch.cuda.current_device())


def choose_dtype(mode: Mode, device: torch.device) -> torch.dtype:
    """float32 for `exact`; for `fast` bfloat16 where the device multiplies in it."""
    if mode is Mode.EXACT:
        return torch.float32
    if device.type == "cuda":
        return torch.bfloat16 if torch.cuda.is_bf16_supported() else torch.float16
    has_bf16 = torch.cpu._is_avx512_bf16_supported() or torch.cpu._is_amx_tile_supported()
    return torch.bfloat16 if has_bf16 else torch.float32


def choose_kv_dtype(mode: Mode, dtype: torch.dtype, backend: AttentionBackend) -> torch.dtype:
    """In what keys and values are kept: as they are for `exact`, else as the backend would."""
    return dtype if mode is Mode.EXACT else backend.kv_dtype(dtype)


def choose_attention(config: EngineConfig, device: torch.device) -> AttentionName:
    """The backend named, or the mode's own, whether its kernels can be had or not. Raises
    ModelLoadError when the one that is named can't run there."""
    if config.attention is AttentionName.CPU and device.type != "cpu":
        raise ModelLoadError("attention cpu was asked for, but the model runs on CUDA")
    if config.attention is not AttentionName.AUTO:
        return config.attention
    if config.mode is Mode.EXACT:
        return AttentionName.REFERENCE
    return AttentionName.CPU if device.type == "cpu" else AttentionName.BATCHED


def choose_backend(
    config: EngineConfig, device: torch.device, on_progress: OnProgress = lambda _: None
) -> AttentionBackend:
    """The backend named, or the mode's own. Where `auto` would take the compiled kernels and they
    can't be had, the log says why and plain torch serves. Raises ModelLoadError when they were
    asked for by name."""
    chosen = choose_attention(config, device)
    if chosen is AttentionName.REFERENCE:
        return ReferenceBackend()
    if chosen is AttentionName.CPU:
        try:
            return CpuBackend(load_ops(config.native_dir, on_progress))
        except NativeBuildError as exc:
            if config.attention is AttentionName.CPU:
                raise ModelLoadError(f"attention cpu can't be had: {exc}") from exc
            logger.warning("attention runs in plain torch, as batched, which is slower: %s", exc)
    return BatchedBackend(device)


def build_core(
    config: EngineConfig,
    model: PreTrainedModel,
    backend: AttentionBackend,
    tokenizer: Tokenizer,
    *,
    identity: str,
    eos: Iterable[int],
    wake: Callable[[], None] = lambda: None,
) -> EngineCore:
    """See that the model can be served, size the cache and join the parts."""
    shape = ModelShape.of(model)
    kv_dtype = choose_kv_dtype(config.mode, model.dtype, backend)
    check_answers(model, shape, backend, kv_dtype)
    kv_shape = shape.kv_shape(config.block_size, kv_dtype)
    num_blocks = choose_num_blocks(config, model.device, kv_shape.block_bytes)
    limit = min(shape.max_positions, (num_blocks - 1) * config.block_size)
    hasher = BlockHasher(identity, _name(kv_dtype), config.block_size)
    try:
        cache = KVCache(kv_shape, num_blocks, model.device)
    except RuntimeError as exc:
        raise ModelLoadError(
            f"no memory for a cache of {num_blocks} blocks of {kv_shape.block_bytes} bytes: "
            "lower --cache-bytes or --num-blocks"
        ) from exc
    compiled = commission(config, model, shape.windows, kv_shape, backend, identity)
    runner = ModelRunner(model, shape.windows, cache, backend, compiled)
    around = Surroundings(time.monotonic, time.time, wake, partial(choose_copier, config))
    setup = build_tiers(config, hasher, runner, around)
    if config.poison_blocks:
        cache.poison()
    return EngineCore(
        config,
        CoreLimits(
            max_context_tokens=min(limit, config.max_context_tokens or limit),
            vocab_size=shape.vocab_size,
            eos_token_ids=frozenset(eos),
            block_bytes=kv_shape.block_bytes,
        ),
        CacheManager(num_blocks, hasher, setup=setup, poison_blocks=config.poison_blocks),
        runner,
        tokenizer,
        clock=time.monotonic,
    )


def choose_copier(config: EngineConfig) -> Copier:
    """What copies memory to memory: the compiled operator, where the kernels can be had."""
    if sys.byteorder == "big":
        return PlainCopier()  # the operator's checksums would be others
    try:
        return CompiledCopier(load_ops(config.native_dir, logger.info))
    except NativeBuildError as exc:
        logger.info("the tiers copy by Python, which is slower: %s", exc)
        return PlainCopier()


def choose_num_blocks(config: EngineConfig, device: torch.device, block_bytes: int) -> int:
    """How many blocks the cache gets. Raises ModelLoadError when they would be too few to serve."""
    if config.num_blocks is not None:
        num_blocks = config.num_blocks
    else:
        num_blocks = (config.cache_bytes or spare_bytes(device)) // block_bytes
    if num_blocks < 2:
        raise ModelLoadError(
            f"the cache would have {num_blocks} blocks of {block_bytes} bytes and at least 2 are "
            "needed: raise --cache-bytes or --num-blocks, or free memory"
        )
    return num_blocks


def spare_bytes(device: torch.device) -> int:
    """What the cache takes of free memory where nobody says how much."""
    if device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        return int(free * _CUDA_MEMORY_SHARE)
    return min(_CPU_CACHE_BYTES, int(psutil.virtual_memory().available * _CPU_MEMORY_SHARE))


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
