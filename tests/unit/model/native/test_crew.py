"""Threads that help with a call: however late they come, all of it is done, and once."""

import random
import threading
import time

import pytest
import torch

from model.attention.base import AttentionSpec
from model.attention.cpu import CpuBackend
from model.packed_weights import quantize_packed
from tests.support.native_kernels import native_ops, threads
from tests.support.paged_steps import PagedStep, Shape

PATIENCE_S = 0.004
"""How long a helper looks out for a call before it sleeps."""


class Products:
    """Linear layers with packed weights, for few rows and for many, and what one thread makes."""

    def __init__(self) -> None:
        generator = torch.Generator().manual_seed(0)
        weights = [torch.randn(n, 96, generator=generator) for n in (160, 64)]
        self._packed = [quantize_packed(weight, 4) for weight in weights]
        self._inputs = [torch.randn(n, 96, generator=generator) for n in (1, 5, 40)]
        with threads(1):
            self._expected = [self._multiply(inputs) for inputs in self._inputs]

    def _multiply(self, inputs):
        return native_ops().linears_packed(inputs, self._packed, [160, 64], 4, 16, -1)

    def hold(self) -> bool:
        """Whether they come out the same, to the last bit."""
        found = [self._multiply(inputs) for inputs in self._inputs]
        return all(map(torch.equal, found, self._expected))


@pytest.fixture(scope="module")
def products():
    return Products()


@pytest.mark.parametrize("number", [2, 3, 8], ids="{} threads".format)
def test_with_more_threads_than_processors_too(products, number):
    with threads(number):
        assert all(products.hold() for _ in range(200))


def test_whoever_slept_helps_again(products):
    pauses = random.Random(0)
    with threads(3):
        for _ in range(40):
            time.sleep(PATIENCE_S * pauses.choice([0.0, 0.5, 0.9, 1.0, 1.1, 3.0]))
            assert products.hold()


def test_calls_of_several_threads_at_once_are_each_their_own(products):
    held = []
    with threads(3):
        callers = [
            threading.Thread(target=lambda: held.append(all(products.hold() for _ in range(100))))
            for _ in range(4)
        ]
        for caller in callers:
            caller.start()
        for caller in callers:
            caller.join(60)

    assert held == [True] * 4


def test_attention_is_shared_out_as_well():
    step = PagedStep(Shape(((700, 1), (0, 90)), block_size=16, num_kv_heads=3, head_size=64))
    spec = AttentionSpec(0.125)

    def attend():
        return CpuBackend(native_ops()).plan(step.batch).attend(step.query, step.kv, spec)

    with threads(3):
        first = attend()
        assert all(torch.equal(first, attend()) for _ in range(50))
    torch.testing.assert_close(first.double(), step.dense(spec), atol=1e-4, rtol=1e-4)
