"""A lane between "a device" and this process's memory that are both the CPU's: what is carried can
be looked at, and how often was waited for it."""

from contextlib import contextmanager

import torch


class CountingLane:
    """`refusal` is why pages can't be locked; `locked` are the addresses of those that are."""

    def __init__(self, refusal: str | None = None) -> None:
        self.num_crossings = 0
        self.locked: list[int] = []
        self._refusal = refusal
        self._is_crossing = False

    def empty(self, shape, dtype):
        return torch.empty(tuple(shape), dtype=dtype).fill_(-1)

    @contextmanager
    def crossing(self):
        assert not self._is_crossing
        self._is_crossing = True
        try:
            yield
        finally:
            self._is_crossing = False
        self.num_crossings += 1

    def lock_pages(self, address, num_bytes):
        if self._refusal is None:
            self.locked.append(address)
        return self._refusal

    def unlock_pages(self, address):
        self.locked.remove(address)
