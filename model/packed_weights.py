"""Weights in 4 or 8 bits: groups of 32 neighbouring inputs share a scale and, in 4 bits, a minimum.

A weight is `code * scale + minimum`; scales and minima are float16. These are GGUF's Q4_0, Q4_1 and
Q8_0, so such tensors keep every bit. What the compiled kernel reads is packed: 16 outputs and a
group make one run of bytes, in which a lane of the kernel's vectors is an output and two
neighbouring inputs lie together. It is one tensor of bytes, `[blocks, groups, bytes]`; what is
beyond the weight's shape is filled up.
"""

from dataclasses import dataclass

import torch
from torch.nn import functional

FORMAT = 1
"""Raise it when other bytes come out, or the same ones mean something else."""

GROUP = 32
OUTPUTS = 16
"""Whose weights for a group lie together: a block."""
_ROWS_AT_ONCE = 256 * OUTPUTS
_STEP = 4
"""Inputs that are multiplied in one step: two pairs."""


@dataclass(frozen=True, slots=True)
class Codes:
    """A weight's codes `[O, I]`, I a multiple of 32: 0 to 15 in uint8 with `minima`, or -128 to 127
    in int8 without. `scales` and `minima` are float16 `[O, I / 32]`."""

    codes: torch.Tensor
    scales: torch.Tensor
    minima: torch.Tensor | None

    @property
    def bits(self) -> int:
        """4 or 8."""
        return 8 if self.minima is None else 4

    def weights(self) -> torch.Tensor:
        """What the codes stand for, float32 `[O, I]`."""
        num_outputs, num_inputs = self.codes.shape
        x = self.codes.view(num_outputs, -1, GROUP) * self.scales.float()[..., None]
        if self.minima is not None:
            x = x + self.minima.float()[..., None]
        return x.view(num_outputs, num_inputs)


def quantize(weight: torch.Tensor, bits: int) -> Codes:
    """The nearest codes for a weight `[O, I]`; with 4 bits a group's least and largest number are
    hit, with 8 bits zero and the largest in size. What fills up the last group costs nothing."""
    num_inputs = weight.shape[1]
    padded = functional.pad(weight.float(), (0, -num_inputs % GROUP), mode="replicate")
    groups = padded.view(len(weight), -1, GROUP)
    if bits == 8:
        scales = (groups.abs().amax(-1) / 127).half()
        codes = _divided(groups, scales).clamp(-127, 127).to(torch.int8)
        return Codes(codes.view_as(padded), scales, None)
    least, most = groups.aminmax(dim=-1)
    minima = least.half()
    scales = ((most - minima.float()) / 15).half()
    codes = _divided(groups - minima.float()[..., None], scales).clamp(0, 15).to(torch.uint8)
    return Codes(codes.view_as(padded), scales, minima)


def quantize_packed(weight: torch.Tensor, bits: int) -> torch.Tensor:
    """As `quantize` and then `pack`, some rows after the others: a head's float32 copies would take
    many times the weight's memory."""
    return torch.cat([pack(quantize(rows, bits)) for rows in torch.split(weight, _ROWS_AT_ONCE)])


def _divided(groups: torch.Tensor, scales: torch.Tensor) -> torch.Tensor:
    # A scale that float16 has no number for is of a group whose numbers are all alike.
    quotients = groups / scales.float()[..., None]
    return quotients.nan_to_num(0, 0, 0).round()


def pack(weight: Codes) -> torch.Tensor:
    """The bytes that the kernel reads."""
    num_outputs, num_inputs = weight.codes.shape
    rows = -num_outputs % OUTPUTS
    codes = functional.pad(weight.codes.view(torch.uint8), (0, 0, 0, rows))
    # B blocks, 16 outputs, G groups, 8 steps, 2 halves of a step, 2 inputs.
    parts = codes.view(-1, OUTPUTS, num_inputs // GROUP, GROUP // _STEP, 2, 2)
    pairs = parts.permute(0, 2, 3, 4, 1, 5)
    if weight.minima is not None:
        pairs = pairs[:, :, :, 0] | pairs[:, :, :, 1] << 4
    numbers = [weight.scales] if weight.minima is None else [weight.scales, weight.minima]
    runs = [pairs.reshape(*pairs.shape[:2], -1), *(_numbers(x, rows) for x in numbers)]
    return torch.cat(runs, -1)


def _numbers(x: torch.Tensor, rows: int) -> torch.Tensor:
    blocks = functional.pad(x, (0, 0, 0, rows)).view(-1, OUTPUTS, x.shape[1])
    return blocks.transpose(1, 2).contiguous().view(torch.uint8)


def unpack(packed: torch.Tensor, bits: int, num_outputs: int) -> Codes:
    """What was packed."""
    num_blocks, num_groups, _ = packed.shape
    size = OUTPUTS * GROUP * bits // 8
    pairs, rest = packed[..., :size], packed[..., size:]
    if bits == 4:
        low, high = (
            x.view(num_blocks, num_groups, GROUP // _STEP, 1, OUTPUTS, 2)
            for x in (pairs & 15, pairs >> 4)
        )
        parts = torch.cat([low, high], 3)
    else:
        parts = pairs.reshape(num_blocks, num_groups, GROUP // _STEP, 2, OUTPUTS, 2)
    codes = parts.permute(0, 4, 1, 2, 3, 5).reshape(num_blocks * OUTPUTS, num_groups * GROUP)
    numbers = [
        part.contiguous().view(torch.float16).transpose(1, 2).reshape(-1, num_groups)[:num_outputs]
        for part in torch.split(rest, 2 * OUTPUTS, -1)
    ]
    codes = codes[:num_outputs]
    if bits == 4:
        return Codes(codes, *numbers)
    return Codes(codes.view(torch.int8), numbers[0], None)


def group_bytes(bits: int) -> int:
    """Bytes of a packed group of 16 outputs."""
    return OUTPUTS * GROUP * bits // 8 + 2 * OUTPUTS * (2 if bits == 4 else 1)


def bits_of(packed: torch.Tensor) -> int:
    """4 or 8, by a packed weight's shape. Raises ValueError for what is none."""
    for bits in (4, 8):
        if packed.dim() == 3 and packed.shape[-1] == group_bytes(bits):
            return bits
    raise ValueError(f"no packed weight: {tuple(packed.shape)}")
