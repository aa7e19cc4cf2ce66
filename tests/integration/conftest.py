"""The real server, started once for every file that only wants one to talk to."""

from collections.abc import Iterator

import pytest

from tests.support.live_server import LiveServer


@pytest.fixture(scope="session")
def live_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a ready server with the embedded model and short replies, whose engine checks
    its books after every step."""
    flags = ("--cache-bytes", "128MiB", "--default-max-output-tokens", "8", "--check-books")
    with LiveServer(tmp_path_factory.mktemp("live"), *flags) as server:
        yield server.url
