"""Linear layers whose weights have 4 or 8 bits when they get a few rows, as when sequences decode.

Such a product is as fast as its weights come from memory, and these are a third or less. From some
rows on arithmetic decides, and the layer's own weights are faster: they stay beside the packed ones
where memory allows, and else are made anew for each such product.

The operators have no result but what they write, so a program that captures the layer (export,
compile) needs to know nothing more of them; their packed weights are buffers of the layers.
"""

from functools import partial
from typing import Protocol

import torch
from torch import nn
from torch.nn import functional

from model.packed_weights import GROUP, OUTPUTS, bits_of

MAX_ROWS = {torch.bfloat16: 24, torch.float32: 64}
"""By what the layer computes in; docs/benchmarks.md has what was measured."""


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

    def unpack(self, output: torch.Tensor, packed: torch.Tensor, bits: int, level: int) -> None:
        """Packed weights as numbers to `output`, `[I, O]` with both filled up to whole blocks."""
        ...


def quantize_layer(
    layer: nn.Linear, packed: torch.Tensor, ops: QuantizedOps, *, keeps_weight: bool
) -> None:
    """Let the layer multiply a few rows by packed weights (`packed_weights`); with more it takes
    its own, or, if it doesn't keep them, the packed ones unpacked."""
    layer.register_buffer("packed", packed, persistent=False)
    if not keeps_weight:
        layer.weight = nn.Parameter(layer.weight.new_empty(0), requires_grad=False)
    layer.forward = partial(_forward, layer, ops, bits_of(packed))  # type: ignore[method-assign]


def row_limit(model: nn.Module) -> int | None:
    """How many rows at the most all of a model's layers multiply by packed weights, and what traces
    it may so be right for; None if no layer has any."""
    layers = [m for m in model.modules() if isinstance(m, nn.Linear) and hasattr(m, "packed")]
    return min((MAX_ROWS[layer.weight.dtype] for layer in layers), default=None)


def _forward(layer: nn.Linear, ops: QuantizedOps, bits: int, inputs: torch.Tensor) -> torch.Tensor:
    if inputs.numel() > MAX_ROWS[inputs.dtype] * layer.in_features:
        return functional.linear(inputs, _weight(layer, ops, bits, inputs), layer.bias)
    output = inputs.new_empty((*inputs.shape[:-1], layer.out_features))
    packed: torch.Tensor = layer.packed  # type: ignore[assignment]  # a module's buffers are untyped
    ops.linear_quantized(output, inputs.contiguous(), packed, layer.bias, bits, -1)
    return output


def _weight(layer: nn.Linear, ops: QuantizedOps, bits: int, like: torch.Tensor) -> torch.Tensor:
    """The layer's weight `[O, I]`."""
    if layer.weight.numel():
        return layer.weight
    packed: torch.Tensor = layer.packed  # type: ignore[assignment]
    num_blocks, num_groups, _ = packed.shape
    whole = like.new_empty(num_groups * GROUP, num_blocks * OUTPUTS)
    ops.unpack(whole, packed, bits, -1)
    return whole[: layer.in_features, : layer.out_features].t()
