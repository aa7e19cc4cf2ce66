"""The 4- and 8-bit tensors of a GGUF file, packed for the layers whose weights they are.

A tensor is found by what it holds and not by its name: a layer's weight must be, number for number,
what the tensor stands for, in whatever order its rows come (some architectures have theirs put in
another one). What is found so is right for any architecture, and what isn't is left out.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import nn

from model.packed_weights import GROUP, Codes, pack

if TYPE_CHECKING:
    from gguf.gguf_reader import ReaderTensor

_KEY_COLUMNS = 64
"""So many of a row's numbers tell it from others; that all are alike is seen in the end."""


def pack_file(path: Path, model: nn.Module) -> dict[str, torch.Tensor]:
    """Packed weights by the layers' names, for every linear layer of `model` that the file has in
    Q4_0, Q4_1, Q8_0 or Q4_K. The last one's scales are rounded to float16; the others lose nothing.
    Raises OSError and ValueError for a file that can't be read."""
    from gguf import GGUFReader, dequantize  # costs a second, and only an unpacking needs it

    layers: dict[tuple[torch.Size, int], list[tuple[str, torch.Tensor]]] = {}
    for name, layer in model.named_modules():
        if type(layer) is nn.Linear:
            weight = layer.weight.detach()
            layers.setdefault(_key(weight), []).append((name, weight))
    packed: dict[str, torch.Tensor] = {}
    for tensor in GGUFReader(path).tensors:
        if not _is_packable(tensor):
            continue
        read = _READERS[tensor.tensor_type.name]
        numbers = torch.from_numpy(dequantize(tensor.data, tensor.tensor_type)).to(_dtype(layers))
        for name, weight in layers.get(_key(numbers), []):
            order = _order(weight, numbers)
            if order is not None:
                packed[name] = pack(_in_order(read(np.array(tensor.data)), order))
    return packed


def has_codes(path: Path) -> bool:
    """Whether a file has matrices in 4 or 8 bits, of layers or not. Reads headers alone. Raises
    OSError and ValueError for a file that can't be read."""
    from gguf import GGUFReader

    return any(_is_packable(tensor) for tensor in GGUFReader(path).tensors)


def _is_packable(tensor: "ReaderTensor") -> bool:
    return tensor.tensor_type.name in _READERS and tensor.data.ndim == 2


def _dtype(layers: dict[Any, list[tuple[str, torch.Tensor]]]) -> torch.dtype:
    weights = next(iter(layers.values()), [("", torch.empty(0))])
    return weights[0][1].dtype


def _key(weight: torch.Tensor) -> tuple[torch.Size, int]:
    """The same for whatever order of the rows."""
    return weight.shape, int(_row_keys(weight).sum())


def _row_keys(weight: torch.Tensor) -> torch.Tensor:
    """A number for each row that tells it from others; int64 `[O]`, sums wrap."""
    columns = torch.linspace(0, weight.shape[1] - 1, min(_KEY_COLUMNS, weight.shape[1])).long()
    generator = torch.Generator().manual_seed(0)
    factors = torch.randint(-(1 << 62), 1 << 62, columns.shape, generator=generator)
    # Adding zero makes -0 and 0 alike, which are told apart by their bits alone.
    bits = (weight[:, columns].float() + 0.0).view(torch.int32)
    return (bits.long() * factors).sum(-1)


def _order(wanted: torch.Tensor, found: torch.Tensor) -> torch.Tensor | None:
    """Which row of `found` is each row of `wanted`; None if one is missing."""
    order = torch.empty(len(wanted), dtype=torch.long)
    order[_row_keys(wanted).argsort()] = _row_keys(found).argsort()
    return order if torch.equal(found[order], wanted) else None


def _in_order(weight: Codes, order: torch.Tensor) -> Codes:
    minima = None if weight.minima is None else weight.minima[order]
    return Codes(weight.codes[order], weight.scales[order], minima)


# What a block of each type is stands in ggml's `ggml-common.h`.


def _halves(part: np.ndarray[Any, Any]) -> torch.Tensor:
    """The float16 at a block's start, `[O, G]`."""
    return torch.from_numpy(np.ascontiguousarray(part).view(np.float16)[..., 0])


def _nibbles(part: np.ndarray[Any, Any]) -> torch.Tensor:
    """All low halves of the bytes, then all high ones."""
    return torch.from_numpy(np.concatenate([part & 15, part >> 4], -1))


def _read_q4_0(data: np.ndarray[Any, Any]) -> Codes:
    blocks = data.reshape(len(data), -1, 18)
    scales = _halves(blocks[..., :2])
    return Codes(_nibbles(blocks[..., 2:]).flatten(1), scales, scales * -8)


def _read_q4_1(data: np.ndarray[Any, Any]) -> Codes:
    blocks = data.reshape(len(data), -1, 20)
    codes = _nibbles(blocks[..., 4:]).flatten(1)
    return Codes(codes, _halves(blocks[..., :2]), _halves(blocks[..., 2:4]))


def _read_q8_0(data: np.ndarray[Any, Any]) -> Codes:
    blocks = data.reshape(len(data), -1, 34)
    codes = torch.from_numpy(blocks[..., 2:].reshape(len(data), -1)).view(torch.int8)
    return Codes(codes, _halves(blocks[..., :2]), None)


def _read_q4_k(data: np.ndarray[Any, Any]) -> Codes:
    """256 weights: two factors for eight groups' scales and minima, 6 bits each, and the codes."""
    blocks = data.reshape(len(data), -1, 144)
    numbers = list(_six_bits(blocks[..., 4:16]))
    scales = _halves(blocks[..., :2]).float()[..., None] * numbers[0]
    minima = _halves(blocks[..., 2:4]).float()[..., None] * numbers[1]
    # 32 bytes are two groups: their low halves are one, their high halves the next.
    pairs = blocks[..., 16:].reshape(len(data), -1, 4, GROUP)
    codes = _nibbles(pairs).flatten(1)
    return Codes(codes, scales.half().flatten(1), minima.neg().half().flatten(1))


def _six_bits(part: np.ndarray[Any, Any]) -> Iterator[torch.Tensor]:
    """The eight scales and the eight minima, `[O, blocks, 8]`: of the first four of each, bytes
    have the low six bits; the last four's high two bits lie above those."""
    first, second, third = part[..., :4], part[..., 4:8], part[..., 8:]
    for low, rest in ((first, third & 15), (second, third >> 4)):
        yield torch.from_numpy(np.concatenate([low & 63, rest | (low >> 6) << 4], -1))


_READERS: dict[str, Callable[[np.ndarray[Any, Any]], Codes]] = {
    "Q4_0": _read_q4_0,
    "Q4_1": _read_q4_1,
    "Q8_0": _read_q8_0,
    "Q4_K": _read_q4_k,
}
