"""Copies of many blocks from memory to memory, each with the checksum of what has arrived.

Memory gives more than one thread can take, so a second one helps. Compiled, the two need the
interpreter not at all and read each byte once; in Python they hold each other up by its lock, and
read what they copied a second time.

Invariants:
    nobody writes to the targets any more when `copy` returns
"""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from ctypes import addressof, c_char
from typing import Protocol

import numpy as np
import torch

from model.tiers.records import CHECKSUM_BYTES, checksum

_MIN_SHARED = 4
"""So few blocks are copied before a second thread has woken."""
_MIN_COMPILED_BYTES = 241
"""XXH3 has other ways for shorter ones, which no block is."""


class Copier(Protocol):
    """Used by one thread at a time."""

    def copy(self, sources: Sequence[memoryview], targets: Sequence[memoryview]) -> list[bytes]:
        """Copy each source to its target, all of one size and writable; `records.checksum` of each
        copy."""
        ...

    def close(self) -> None:
        """Let the threads go."""
        ...


class CopyOps(Protocol):
    """What the compiled operators have of it."""

    def copy(
        self, checksums: torch.Tensor, addresses: torch.Tensor, num_bytes: int, level: int
    ) -> None:
        """From the first to the second of each pair of `addresses` `[n, 2]` int64, `num_bytes`
        each, more than 240; `checksums` `[n, 16]` uint8 are XXH3's of the copies."""
        ...


class CompiledCopier:
    """By the compiled operator."""

    def __init__(self, ops: CopyOps) -> None:
        self._ops = ops

    def copy(self, sources: Sequence[memoryview], targets: Sequence[memoryview]) -> list[bytes]:
        """See `Copier`."""
        if not sources:
            return []
        num_bytes = sources[0].nbytes
        if num_bytes < _MIN_COMPILED_BYTES:
            return [_copied(*pair) for pair in zip(sources, targets, strict=True)]
        pairs = zip(map(_address, sources), map(_address, targets), strict=True)
        checksums = torch.empty(len(sources), CHECKSUM_BYTES, dtype=torch.uint8)
        self._ops.copy(checksums, torch.tensor(list(pairs)), num_bytes, -1)
        found = checksums.numpy().tobytes()
        return [found[i : i + CHECKSUM_BYTES] for i in range(0, len(found), CHECKSUM_BYTES)]

    def close(self) -> None:
        """There are none between two calls."""


class PlainCopier:
    """By numpy and xxhash."""

    def __init__(self) -> None:
        self._helper = ThreadPoolExecutor(1, "cpu-tier-copier")

    def copy(self, sources: Sequence[memoryview], targets: Sequence[memoryview]) -> list[bytes]:
        """See `Copier`."""
        pairs = list(zip(sources, targets, strict=True))
        checksums = [b""] * len(pairs)
        places = iter(range(len(pairs)))  # each goes to one of the two, whoever is free

        def work() -> None:
            for i in places:
                checksums[i] = _copied(*pairs[i])

        helping = self._helper.submit(work) if len(pairs) >= _MIN_SHARED else None
        try:
            work()
        finally:
            if helping is not None:
                helping.result()  # in any case: nobody writes there when this returns
        return checksums

    def close(self) -> None:
        """Let the second thread go."""
        self._helper.shutdown()


def _copied(source: memoryview, target: memoryview) -> bytes:
    # Not by the views themselves, which would keep all other threads waiting.
    np.copyto(np.frombuffer(target, np.uint8), np.frombuffer(source, np.uint8))
    return checksum(target)


def _address(view: memoryview) -> int:
    return addressof(c_char.from_buffer(view))
