"""Copies by the compiled operator, which needs the interpreter not at all and reads each byte once,
for the copy and for its checksum."""

from array import array
from collections.abc import Sequence
from ctypes import addressof, c_char
from typing import Protocol

import torch

from model.tiers.copies import copied
from model.tiers.records import CHECKSUM_BYTES

_MIN_BYTES = 241
"""Blocks of a toy are smaller."""


class CopyOps(Protocol):
    """What the compiled operators have of it."""

    def copy(
        self, checksums: torch.Tensor, addresses: torch.Tensor, num_bytes: int, level: int
    ) -> None:
        """From the first to the second of each pair of `addresses` `[n, 2]` int64, `num_bytes`
        each, at least 241; `checksums` `[n, 16]` uint8 are XXH3's of the copies."""
        ...


class CompiledCopier:
    """A `tiers.copies.Copier`."""

    def __init__(self, ops: CopyOps) -> None:
        self._ops = ops

    def copy(self, sources: Sequence[memoryview], targets: Sequence[memoryview]) -> list[bytes]:
        """See `Copier`."""
        if not sources:
            return []
        num_bytes = sources[0].nbytes
        if any(view.nbytes != num_bytes for view in (*sources, *targets)):
            raise ValueError("copies of different sizes")  # before anything is overwritten
        pairs = zip(sources, targets, strict=True)
        if num_bytes < _MIN_BYTES:
            return [copied(*pair) for pair in pairs]
        addresses = array("q", [_address(view) for pair in pairs for view in pair])
        found = bytearray(len(sources) * CHECKSUM_BYTES)
        # Around memory that is there: making tensors of lists takes as long as some copies do.
        self._ops.copy(
            torch.frombuffer(found, dtype=torch.uint8).view(-1, CHECKSUM_BYTES),
            torch.frombuffer(addresses, dtype=torch.int64).view(-1, 2),
            num_bytes,
            -1,
        )
        starts = range(0, len(found), CHECKSUM_BYTES)
        return [bytes(found[start : start + CHECKSUM_BYTES]) for start in starts]

    def close(self) -> None:
        """There are no threads between two calls."""


def _address(view: memoryview) -> int:
    return addressof(c_char.from_buffer(view))
