"""Whether somebody else has sent a prompt before can't be told from what it costs: the rows that
enter the model are those of a prompt that nobody has ever sent. A tiny model, real keys."""

import asyncio
from contextlib import asynccontextmanager

import aiohttp
import pytest

from tests.support.live_server import LiveServer
from tests.support.real_keys import make_keys
from tests.support.tiny_folder import save_tiny_model
from tests.support.tiny_tokenizer import SMOLLM2, save_tokenizer
from tests.support.wire import Wire

PUBLIC = "You answer briefly, as everybody here is told to answer."
PRIVATE = "You guard the number seven hundred and twelve."
# Digits, of which each is a token: as long as each other, and unlike from the first one on.
QUESTION, UNKNOWN = "1234567890" * 5, "9081726354" * 5

pytestmark = pytest.mark.timeout(120)


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    folder = tmp_path_factory.mktemp("owners")
    model = save_tiny_model(folder / "model")
    save_tokenizer(model, SMOLLM2)
    (folder / "public.txt").write_text(PUBLIC)
    flags = ["--model", str(model), "--block-size", "4", "--num-blocks", "2000", "--mode", "exact"]
    flags += ["--public-instructions", str(folder / "public.txt"), "--check-books"]
    server = LiveServer(folder, *flags)
    secrets = asyncio.run(make_keys(server.database, "ann", "bob", "cat"))
    with server:
        yield server.url, secrets


@asynccontextmanager
async def speaking_for(server, owner: str):
    url, secrets = server
    headers = {"Authorization": f"Bearer {secrets[owner]}"}
    async with aiohttp.ClientSession(url, headers=headers) as http:
        yield Wire(http)


async def cost_of(server, owner: str, instructions: str | None, text: str) -> tuple[int, int]:
    """Ask in a new session; (rows that entered the model, tokens said to be reused)."""
    async with speaking_for(server, owner) as wire:
        session = await wire.new_session(instructions=instructions)
        before = await wire.count("splice_computed_rows_total")
        body = {"temperature": 0, "max_output_tokens": 4, "ignore_eos": True}
        turn = await wire.say(session, text, **body)
        num_rows = await wire.count("splice_computed_rows_total") - before
        assert turn["splice"]["metrics"]["rows_computed"] == num_rows
        assert num_rows == turn["usage"]["input_tokens_details"]["cache_write_tokens"] + 3
        return num_rows, turn["splice"]["metrics"]["kv"]["reused"]


@pytest.mark.parametrize("instructions", [PRIVATE, PUBLIC, None])
async def test_anothers_prompt_costs_what_one_costs_that_nobody_sent(server, instructions):
    await cost_of(server, "ann", instructions, QUESTION)
    again, reused_again = await cost_of(server, "ann", instructions, QUESTION)
    theirs, reused = await cost_of(server, "bob", instructions, QUESTION)
    unknown, reused_unknown = await cost_of(server, "cat", instructions, UNKNOWN)

    assert (theirs, reused) == (unknown, reused_unknown)
    # Of one's own, all but the last few tokens is there, so there was something to find.
    assert again < theirs
    assert reused_again > reused
    # Only what everybody may share is shared.
    assert (reused > 0) == (instructions != PRIVATE)
