"""What the files here talk to: the real server, started once for all that only want one, and the
front end over an engine that does as it is told, afresh for every test."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import openai
import pytest

from tests.support.live_server import LiveServer
from tests.support.whole_front import WholeFront, serving_whole


@pytest.fixture(scope="session")
def live_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a ready server with the embedded model and short replies, whose engine checks
    its books after every step."""
    flags = ("--cache-bytes", "128MiB", "--default-max-output-tokens", "8", "--check-books")
    with LiveServer(tmp_path_factory.mktemp("live"), *flags) as server:
        yield server.url


@pytest.fixture
async def front(tmp_path: Path) -> AsyncIterator[WholeFront]:
    async with serving_whole(tmp_path) as front:
        yield front


@pytest.fixture
async def client(front: WholeFront) -> AsyncIterator[openai.AsyncOpenAI]:
    """OpenAI's own unmodified client of `front`."""
    async with openai.AsyncOpenAI(
        base_url=f"{front.base_url}/v1", api_key="any", max_retries=0
    ) as client:
        yield client
