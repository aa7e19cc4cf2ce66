"""Linear layers whose weights have 4 or 8 bits: for a few rows, as when sequences decode, and more.

Such a product is as fast as its weights come from memory, and these are a third or less. From some
rows on arithmetic decides. The same weights are faster there too where the CPU multiplies bytes and
activations may have 8 bits, which errs about as bfloat16 does: those of 4 bits from AVX2 on, those
of 8 with AVX-512 VNNI. Elsewhere the layer's own weights are faster: they stay beside the packed
ones where memory allows, and else are made anew for each such product.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Protocol

import torch
from torch import nn
from torch.nn import functional

from model.packed_weights import GROUP, OUTPUTS, bits_of

MAX_ROWS = 16
"""Of those that activations of 16 bits are taken for. docs/benchmarks.md has what was measured."""

MAX_FLOAT_ROWS = 64
"""The same where what follows is float32's own product, which is slower than bfloat16's."""

PRODUCTS = 3
"""Raise it when the same inputs and weights come to other outputs."""


class QuantizedOps(Protocol):
    """The compiled operators, as torch shows them. Level -1 is the best that the CPU has."""

    def linears_packed(
        self,
        inputs: torch.Tensor,
        parameters: Sequence[torch.Tensor],
        sizes: Sequence[int],
        *options: int,
    ) -> torch.Tensor:
        """`inputs` `[..., I]` times the packed weights of layers with so many outputs: these side
        by side, like the inputs float32 or bfloat16. The parameters are all weights, then all
        biases or none. The options are the weights' bits; up to how many rows activations have 16
        bits, as they always have unless `multiplies_bytes`, and not 8; the level."""
        ...

    def multiplies_bytes(self, bits: int, level: int) -> bool:
        """Whether a level has the instructions for weights of so many bits, and many rows are
        fast."""
        ...

    def unpack(self, output: torch.Tensor, packed: torch.Tensor, bits: int, level: int) -> None:
        """Packed weights as numbers to `output`, `[I, O]` with both filled up to whole blocks."""
        ...


@dataclass(frozen=True, slots=True)
class Product:
    """How a layer with packed weights multiplies: by activations of 8 bits (`takes_bytes`), or by
    its own weights, when there are more than `max_rows`."""

    ops: QuantizedOps
    bits: int
    max_rows: int
    takes_bytes: bool


def product_of(packed: torch.Tensor, dtype: torch.dtype, ops: QuantizedOps) -> Product:
    """What is fastest here for packed weights and what the layer computes in. Torch multiplies
    bfloat16 far quicker where the CPU has tiles (AMX)."""
    bits, is_float = bits_of(packed), dtype is torch.float32
    takes_bytes = ops.multiplies_bytes(bits, -1) and (is_float or not _has_amx())
    max_rows = MAX_FLOAT_ROWS if is_float and not takes_bytes else MAX_ROWS
    return Product(ops, bits, max_rows, takes_bytes)


def quantize_layer(
    layer: nn.Linear, packed: torch.Tensor, product: Product, *, keeps_weight: bool
) -> None:
    """Let the layer multiply by packed weights (`packed_weights`); if it comes to its own weight
    and doesn't keep it, the packed ones are unpacked."""
    layer.register_buffer("packed", packed, persistent=False)
    if not keeps_weight:
        layer.weight = nn.Parameter(layer.weight.new_empty(0), requires_grad=False)
    layer.forward = partial(_forward, layer, product=product)  # type: ignore[method-assign]


def row_limit(model: nn.Module) -> int | None:
    """How many rows at the most all of a model's layers multiply by their packed weights, and what
    traces it may so be right for; None if there is no limit."""
    products = products_of(model)
    return min((p.max_rows for p in products if not p.takes_bytes), default=None)


def products_of(model: nn.Module) -> list[Product]:
    """Those of all layers that have packed weights."""
    forwards = (vars(m).get("forward") for m in model.modules() if isinstance(m, nn.Linear))
    ours = (f for f in forwards if isinstance(f, partial) and f.func is _forward)
    return [forward.keywords["product"] for forward in ours]


def _forward(layer: nn.Linear, inputs: torch.Tensor, *, product: Product) -> torch.Tensor:
    ops, bits, max_rows = product.ops, product.bits, product.max_rows
    if not product.takes_bytes and inputs.numel() > max_rows * layer.in_features:
        return functional.linear(inputs, _weight(layer, ops, bits, inputs), layer.bias)
    packed: torch.Tensor = layer.packed  # type: ignore[assignment]  # a module's buffers are untyped
    parameters = [packed] if layer.bias is None else [packed, layer.bias]
    return ops.linears_packed(inputs, parameters, [layer.out_features], bits, max_rows, -1)


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
