"""What all tests share."""

from collections.abc import Iterator

import pytest

from tests.support import postgres

# They have an environment, a configuration and a command of their own: `make clients`.
collect_ignore = ["clients"]


@pytest.fixture(scope="session", autouse=True)
def _one_thread():
    """Tiny tensors gain nothing from a second thread, and lose much to the wait for it."""
    import torch  # here, because tests that need no torch can start without it

    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[postgres.Server]:
    """A PostgreSQL server, started for the first test that wants one."""
    with postgres.running() as server:
        yield server


def pytest_report_header() -> str:
    """Which databases are tested, and why not both."""
    return f"databases: {', '.join(postgres.DATABASES)}" + (
        f" ({postgres.WHY_NOT})" if postgres.WHY_NOT else ""
    )
