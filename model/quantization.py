"""Which of a model's weights have fewer bits while it decodes, by the setting and by what there is.

`auto` changes no weight: what a GGUF file has in 4 or 8 bits is multiplied in them, and everything
else as it was. `int8` and `int4` also quantise what has more; there the head, whose errors go
straight into the logits, keeps 8 bits. Only `fast` mode on a CPU does any of this: its numbers
depend on how many rows a step has, which `exact` mode excludes.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import psutil
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import nn
from transformers import PreTrainedModel

from model.config import EngineConfig, Mode, Quantization
from model.errors import ModelLoadError
from model.gguf import PACKED
from model.native.build import NativeBuildError, load_ops
from model.native.operators import NativeOps
from model.packed_weights import FORMAT, bits_of, quantize_packed
from model.quantized_linear import PRODUCTS, product_of, quantize_layer

logger = logging.getLogger(__name__)

OnProgress = Callable[[str], None]

_KEPT_SHARE = 0.25
"""Of free memory: what layers' own weights may take beside the packed ones."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What becomes of a model's linear layers. `bits` are of those that no file has packed."""

    ops: NativeOps
    packed_file: Path | None
    bits: int | None

    @property
    def name(self) -> str:
        """As the setting calls it; `file` where the file's own bits are all there are."""
        return "file" if self.bits is None else f"int{self.bits}"

    @property
    def identity(self) -> str:
        """What keys and values of replies depend on."""
        return f"{self.name}, packing {FORMAT}, products {PRODUCTS}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantized:
    """What was done: how many layers of how many have packed weights, and of what size; and how
    much of their own they still have."""

    num_layers: int
    num_linear: int
    packed_bytes: int
    kept_bytes: int


def plan_quantization(
    config: EngineConfig, device: torch.device, folder: Path, on_progress: OnProgress
) -> Plan | None:
    """What to do with the model in a prepared folder; None: nothing. Raises ModelLoadError when
    what was asked for by name can't be."""
    path = folder / PACKED
    packed_file = path if path.exists() else None
    if reason_against(config, device, has_packed=packed_file is not None) is not None:
        return None
    wanted = config.quantization
    try:
        ops = load_ops(config.native_dir, on_progress)
    except NativeBuildError as exc:
        if wanted is not Quantization.AUTO:
            raise ModelLoadError(f"quantization {wanted} needs compiled kernels: {exc}") from exc
        logger.warning("the file's 4 and 8 bits are multiplied in more, which is slower: %s", exc)
        return None
    bits = {Quantization.INT4: 4, Quantization.INT8: 8}.get(wanted)
    return Plan(ops=ops, packed_file=packed_file, bits=bits)


def reason_against(config: EngineConfig, device: torch.device, *, has_packed: bool) -> str | None:
    """Why no weight is quantised; None: some are, if there are kernels. `has_packed`: the model's
    file has some in 4 or 8 bits. Raises ModelLoadError when what was asked for by name can't be."""
    wanted = config.quantization
    if wanted is Quantization.NONE:
        return "--quantization none asks for no other"
    is_auto = wanted is Quantization.AUTO
    reason, advice = None, ""
    if device.type != "cpu":
        reason, advice = (
            "the model runs on CUDA, and quantised decoding is for CPUs",
            "leave it out",
        )
    elif config.mode is Mode.EXACT:
        reason, advice = "mode exact has one weight path", "serve with --mode fast"
    if reason is not None and not is_auto:
        raise ModelLoadError(f"quantization {wanted} was asked for, but {reason}: {advice}")
    if reason is None and is_auto and not has_packed:
        return "the model has none in 4 or 8 bits"
    return reason


def quantize_model(model: PreTrainedModel, plan: Plan, on_progress: OnProgress) -> Quantized:
    """Carry the plan out. Raises ModelLoadError when no layer is of a kind that can be packed, or
    the packed file is damaged."""
    linear = {n: m for n, m in model.named_modules() if type(m) is nn.Linear}
    packed = _load(plan.packed_file) if plan.packed_file else {}
    head, chosen = model.get_output_embeddings(), dict[str, torch.Tensor]()
    if plan.bits is not None and linear.keys() - packed.keys():
        on_progress(f"quantising to {plan.bits} bits")
    for name, layer in linear.items():
        if name in packed:
            chosen[name] = packed[name]
        elif plan.bits is not None:
            chosen[name] = quantize_packed(layer.weight, 8 if layer is head else plan.bits)
    if not chosen:
        raise ModelLoadError(
            f"quantization {plan.name} was asked for, but models of type "
            f"{model.config.model_type!r} have no plain linear layers: serve with "
            "--quantization none"
        )
    products = {n: product_of(w, linear[n].weight.dtype, plan.ops) for n, w in chosen.items()}
    embedding = model.get_input_embeddings().weight
    tied = {name for name in chosen if linear[name].weight is embedding}  # which is needed anyhow
    own = {name: linear[name].weight for name in chosen.keys() - tied}
    kept = tied | _kept_beside(own, {n for n in own if not products[n].takes_bytes})
    for name, weight in chosen.items():
        quantize_layer(linear[name], weight, products[name], keeps_weight=name in kept)
    return Quantized(
        num_layers=len(chosen),
        num_linear=len(linear),
        packed_bytes=sum(weight.numel() for weight in chosen.values()),
        kept_bytes=sum(_size(linear[name].weight) for name in chosen),
    )


def _load(path: Path) -> dict[str, torch.Tensor]:
    try:
        packed: dict[str, torch.Tensor] = load_file(path)
        for weight in packed.values():
            bits_of(weight)
    except (OSError, SafetensorError, ValueError) as exc:
        raise ModelLoadError(f"the packed weights {path} can't be read: {exc}; remove it") from exc
    return packed


def _kept_beside(own: dict[str, torch.Tensor], needed: set[str]) -> set[str]:
    """Which of the layers' own weights, which are loaded already, stay: those that are needed, if
    they fit."""
    available = psutil.virtual_memory().available + sum(map(_size, own.values()))  # were all let go
    if sum(_size(own[name]) for name in needed) <= _KEPT_SHARE * available:
        return needed
    logger.warning("memory is short: many rows wait for weights to be unpacked each time")
    return set()


def _size(tensor: torch.Tensor) -> int:
    return tensor.numel() * tensor.element_size()
