"""A model without its weights, as bytes: what another process needs to trace it.

Modules and settings go along, whatever classes they are; a weight leaves its shape and strides
alone. Read back, such a weight is memory that nobody has touched yet, so that tracing a model of
many gigabytes takes none of them.
"""

import io
import pickle
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

_SMALL_BYTES = 1 << 16
"""What is smaller goes along by value: rotary frequencies and the like may be read by a trace."""


class BlueprintError(Exception):
    """Why a model can't be taken to another process."""


def draw(model: nn.Module) -> bytes:
    """The model's bytes. Raises BlueprintError when a part of it can't be pickled."""
    file = io.BytesIO()
    try:
        _Pickler(file, protocol=pickle.HIGHEST_PROTOCOL).dump(model)
    except (pickle.PicklingError, AttributeError, TypeError, RecursionError) as exc:
        raise BlueprintError(f"its modules can't be pickled: {exc}") from exc
    return file.getvalue()


def build(drawn: bytes) -> nn.Module:
    """The model again, its large weights without values. The bytes are this program's own."""
    model: nn.Module = pickle.loads(drawn)
    return model


class _Pickler(pickle.Pickler):
    """Leaves out what only the process that runs a model has."""

    def reducer_override(self, obj: object) -> Any:  # noqa: ANN401 (pickle's own signature)
        if isinstance(obj, torch.Tensor):
            return _reduced(obj)
        if isinstance(obj, torch._ops._OpNamespace):
            return _namespace, (obj.name,)
        if isinstance(obj, torch._ops.OpOverloadPacket):
            namespace, _, name = obj._qualified_op_name.partition("::")
            return _operator, (namespace, name)
        return NotImplemented


def _reduced(tensor: torch.Tensor) -> tuple[Callable[..., torch.Tensor], tuple[Any, ...]]:
    is_parameter = isinstance(tensor, nn.Parameter)
    values = None
    if tensor.numel() * tensor.element_size() <= _SMALL_BYTES:
        plain = tensor.detach().contiguous().cpu()
        values = plain.view(torch.uint8).numpy().tobytes() if plain.numel() else b""
    form = (tuple(tensor.shape), tuple(tensor.stride()), tensor.dtype)
    return _rebuilt, (form, is_parameter, values)


def _rebuilt(
    form: tuple[tuple[int, ...], tuple[int, ...], torch.dtype],
    is_parameter: bool,  # noqa: FBT001 (pickle passes it by position)
    values: bytes | None,
) -> torch.Tensor:
    shape, strides, dtype = form
    tensor = torch.empty_strided(shape, strides, dtype=dtype)
    if values:
        tensor.copy_(torch.frombuffer(bytearray(values), dtype=dtype).view(shape))
    return nn.Parameter(tensor, requires_grad=False) if is_parameter else tensor


def _namespace(name: str) -> object:
    return getattr(torch.ops, name)


def _operator(namespace: str, name: str) -> object:
    return getattr(_namespace(namespace), name)
