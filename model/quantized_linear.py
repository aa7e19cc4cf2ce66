"""Linear layers whose weights have 4 or 8 bits: for a few rows, as when sequences decode, and more.

Such a product is as fast as its weights come from memory, and these are a third or less. From some
rows on arithmetic decides. In bfloat16 the same weights are faster there too, where the CPU
multiplies bytes (AVX-512 VNNI) and activations may have 8 bits, which errs about as bfloat16 does.
Elsewhere the layer's own weights are faster: they stay beside the packed ones where memory allows,
and else are made anew for each such product.

The operators have no result but what they write, so a program that captures the layer (export,
compile) needs to know nothing more of them; their packed weights are buffers of the layers.
"""

from functools import cache, partial
from typing import Protocol

import torch
from torch import nn
from torch.nn import functional

from model.packed_weights import GROUP, OUTPUTS, bits_of

MAX_ROWS = {torch.bfloat16: 16, torch.float32: 64}
"""Of those that activations of 16 bits are taken for, by what the layer computes in;
docs/benchmarks.md has what was measured."""

PRODUCTS = 2
"""Raise it when the same inputs and weights come to other outputs."""


class QuantizedOps(Protocol):
    """The compiled operators, as torch shows them. Level -1 is the best that the CPU has."""

    def linear_quantized(
        self,
        output: torch.Tensor,
        inputs: torch.Tensor,
        packed: torch.Tensor,
        bias: torch.Tensor | None,
        *options: int,
    ) -> None:
        """`inputs` `[..., I]` times packed weights into `output` `[..., O]`, all contiguous; the
        options are the weights' bits and the level. Float32 or bfloat16, outputs like inputs."""
        ...

    def linear_bytes(
        self,
        output: torch.Tensor,
        inputs: torch.Tensor,
        packed: torch.Tensor,
        bias: torch.Tensor | None,
        *options: int,
    ) -> None:
        """The same for many rows, with activations of 8 bits where `multiplies_bytes`."""
        ...

    def multiplies_bytes(self, level: int) -> bool:
        """Whether a level has the instructions, and many rows are fast."""
        ...

    def unpack(self, output: torch.Tensor, packed: torch.Tensor, bits: int, level: int) -> None:
        """Packed weights as numbers to `output`, `[I, O]` with both filled up to whole blocks."""
        ...


def quantize_layer(
    layer: nn.Linear, packed: torch.Tensor, ops: QuantizedOps, *, keeps_weight: bool
) -> None:
    """Let the layer multiply by packed weights (`packed_weights`); if many rows are faster with
    its own it takes these, or, if it doesn't keep them, the packed ones unpacked."""
    layer.register_buffer("packed", packed, persistent=False)
    if not keeps_weight:
        layer.weight = nn.Parameter(layer.weight.new_empty(0), requires_grad=False)
    layer.forward = partial(_forward, layer, ops, bits_of(packed))  # type: ignore[method-assign]


def row_limit(model: nn.Module) -> int | None:
    """How many rows at the most all of a model's layers take for few, and what traces it may so be
    right for; None if no layer has packed weights."""
    layers = [m for m in model.modules() if isinstance(m, nn.Linear) and hasattr(m, "packed")]
    return min((MAX_ROWS[layer.weight.dtype] for layer in layers), default=None)


def _forward(layer: nn.Linear, ops: QuantizedOps, bits: int, inputs: torch.Tensor) -> torch.Tensor:
    are_few = inputs.numel() <= MAX_ROWS[inputs.dtype] * layer.in_features
    if not are_few and not _takes_bytes(ops, inputs):
        return functional.linear(inputs, _weight(layer, ops, bits, inputs), layer.bias)
    multiply = ops.linear_quantized if are_few else ops.linear_bytes
    output = inputs.new_empty((*inputs.shape[:-1], layer.out_features))
    packed: torch.Tensor = layer.packed  # type: ignore[assignment]  # a module's buffers are untyped
    multiply(output, inputs.contiguous(), packed, layer.bias, bits, -1)
    return output


def _takes_bytes(ops: QuantizedOps, inputs: torch.Tensor) -> bool:
    """Whether activations may have 8 bits. Beside float32's error theirs would be large; and torch
    multiplies bfloat16 far quicker where the CPU has tiles (AMX)."""
    return inputs.dtype is torch.bfloat16 and not _has_amx() and ops.multiplies_bytes(-1)


@cache
def _has_amx() -> bool:
    return bool(torch.cpu._is_amx_tile_supported())


def _weight(layer: nn.Linear, ops: QuantizedOps, bits: int, like: torch.Tensor) -> torch.Tensor:
    """The layer's weight `[O, I]`."""
    if layer.weight.numel():
        return layer.weight
    packed: torch.Tensor = layer.packed  # type: ignore[assignment]
    num_blocks, num_groups, _ = packed.shape
    whole = like.new_empty(num_groups * GROUP, num_blocks * OUTPUTS)
    ops.unpack(whole, packed, bits, -1)
    return whole[: layer.in_features, : layer.out_features].t()
