"""Linear layers in bfloat16 on a CPU when they get a few rows, as when a few sequences decode.

Such a product is as fast as its weights come from memory, and torch's takes twice as long for a
row. From some rows on torch's is as fast, and is called. Sums are float32 in both.
"""

from collections.abc import Sequence
from functools import partial
from typing import Protocol

import torch
from torch import nn
from torch.nn import functional

MAX_ROWS = 8
"""Measured; docs/benchmarks.md has the figures."""


class LinearOps(Protocol):
    """The compiled operator, as torch shows it."""

    def linear(
        self,
        output: torch.Tensor,
        inputs: torch.Tensor,
        weight: torch.Tensor,
        bias: torch.Tensor | None,
        level: int,
    ) -> None:
        """`inputs` `[..., I]` times `weight` `[O, I]` into `output` `[..., O]`, all contiguous."""
        ...

    def linears(
        self,
        inputs: torch.Tensor,
        parameters: Sequence[torch.Tensor],
        sizes: Sequence[int],
        max_rows: int,
        level: int,
    ) -> torch.Tensor:
        """Layers of the same inputs with so many outputs, these side by side; from more than
        `max_rows` rows on by torch's product. The parameters are all weights, then all biases or
        none."""
        ...


def speed_up(model: nn.Module, ops: LinearOps) -> int:
    """Let the model's bfloat16 linear layers multiply a few rows by the compiled kernel; how many
    there are. Layers of a class of their own, and quantised ones, stay as they are."""
    layers = [m for m in model.modules() if type(m) is nn.Linear and _is_meant(m)]
    for layer in layers:
        layer.forward = partial(_forward, layer, ops)  # type: ignore[method-assign]
    return len(layers)


def _is_meant(layer: nn.Linear) -> bool:
    is_changed = "forward" in vars(layer)
    weight = layer.weight
    return weight.dtype is torch.bfloat16 and weight.is_contiguous() and not is_changed


def _forward(layer: nn.Linear, ops: LinearOps, inputs: torch.Tensor) -> torch.Tensor:
    weight, bias = layer.weight, layer.bias
    if torch.compiler.is_exporting():  # how many rows there will be is not known yet
        parameters = [weight] if bias is None else [weight, bias]
        return ops.linears(inputs, parameters, [weight.shape[0]], MAX_ROWS, -1)
    if inputs.numel() > MAX_ROWS * weight.shape[1]:
        return functional.linear(inputs, weight, bias)
    output = inputs.new_empty((*inputs.shape[:-1], weight.shape[0]))
    ops.linear(output, inputs.contiguous(), weight, bias, -1)
    return output
