"""What all tests share."""

import pytest


@pytest.fixture(scope="session", autouse=True)
def _one_thread():
    """Tiny tensors gain nothing from a second thread, and lose much to the wait for it."""
    import torch  # here, because tests that need no torch can start without it

    torch.set_num_threads(1)
