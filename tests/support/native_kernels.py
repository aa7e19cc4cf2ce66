"""The compiled kernels, made once for all tests where a server would make them too."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from model.config import EngineConfig
from model.native.build import load_ops
from model.native.operators import NativeOps


def native_ops() -> NativeOps:
    return load_ops(EngineConfig().native_dir, print)


@contextmanager
def threads(number: int) -> Iterator[None]:
    """So many of torch's threads, for what is in the context."""
    before = torch.get_num_threads()
    torch.set_num_threads(number)
    try:
        yield
    finally:
        torch.set_num_threads(before)
