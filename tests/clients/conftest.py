"""The server that all clients talk to: the real one, with the embedded model, in its own process.

Nobody here calls anything but that server: what would is turned off before it is imported.
"""

import os
import shlex

os.environ |= {
    "OPENAI_AGENTS_DISABLE_TRACING": "1",
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    "LANGSMITH_TRACING": "false",
    "OPENAI_API_KEY": "any",
}

from collections.abc import AsyncIterator, Iterator

import pytest
from openai import AsyncOpenAI

from tests.support.live_server import ROOT, LiveServer

PYTHON = ROOT / ".venv" / "bin" / "python"  # the server's own environment

FLAGS = (
    *("--cache-bytes", "256MiB", "--check-books"),
    *("--default-temperature", "0"),
    # A name that clients take for one of OpenAI's (see docs/openai.md).
    *("--model-alias", "gpt-local"),
    # Another model, say: make clients SERVER_FLAGS="--model ~/models/my-llama"
    *shlex.split(os.environ.get("SERVER_FLAGS", "")),
)


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a ready server."""
    with LiveServer(tmp_path_factory.mktemp("server"), *FLAGS, python=PYTHON) as server:
        yield server.url


@pytest.fixture
def base_url(server: str) -> str:
    """Where OpenAI's clients are pointed."""
    return f"{server}/v1"


@pytest.fixture
async def client(base_url: str) -> AsyncIterator[AsyncOpenAI]:
    """OpenAI's own client, which several others take, and which sees what they left behind."""
    async with AsyncOpenAI(base_url=base_url, api_key="any", max_retries=0) as client:
        yield client
