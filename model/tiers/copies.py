"""Copies of many blocks from memory to memory, each with the checksum of what has arrived.

Memory gives more than one thread can take, so a second one helps. In Python the two hold each
other up by the interpreter's lock, and read what they copied a second time; `native.copier` needs
neither.

Invariants:
    nobody writes to the targets any more when `copy` returns
"""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol

import numpy as np

from model.tiers.records import checksum

_MIN_SHARED = 4
"""So few blocks are copied before a second thread has woken."""


class Copier(Protocol):
    """Used by one thread at a time."""

    def copy(self, sources: Sequence[memoryview], targets: Sequence[memoryview]) -> list[bytes]:
        """Copy each source to its target, all of one size and writable; `records.checksum` of each
        copy."""
        ...

    def close(self) -> None:
        """Let the threads go."""
        ...


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
                checksums[i] = copied(*pairs[i])

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


def copied(source: memoryview, target: memoryview) -> bytes:
    """Copy one; the checksum of the copy."""
    # Not by the views themselves, which would keep all other threads waiting.
    np.copyto(np.frombuffer(target, np.uint8), np.frombuffer(source, np.uint8))
    return checksum(target)
