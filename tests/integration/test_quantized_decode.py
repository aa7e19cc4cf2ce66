"""A whole server that decodes with weights of 4 and 8 bits: the file's own, or made at start."""

import shutil

import pytest
import torch

from model.assembly import choose_dtype
from model.config import Mode
from model.gguf import PACKED
from model.provision import DEFAULT_MODEL, obtain
from model.weights import prepare
from tests.support.live_server import MODELS, LiveServer
from tests.support.wire import reply_of, wired

pytestmark = [pytest.mark.asyncio, pytest.mark.timeout(600)]

FILE_BYTES = 98_000_000  # of the GGUF, whose tensors these are
EMBEDDING_SIZE = 49_152 * 576
CPU = torch.device("cpu")
GREEDY = {"temperature": 0, "max_output_tokens": 24}


def quiet(_message):
    """Nobody listens."""


async def ask(server):
    """The cache's facts, and two turns of one conversation."""
    async with wired(server.url) as wire:
        session = await wire.new_session()
        first = await wire.say(session, "What is the capital of Norway?", **GREEDY)
        second = await wire.say(session, "And of Sweden?", **GREEDY)
        return await wire.call("GET", "/v1/cache"), first, second


def is_right(first, second):
    """As the model answers without quantisation, and with its history reused."""
    reused = second["usage"]["input_tokens_details"]["cached_tokens"]
    before = first["usage"]["total_tokens"] - 1
    return "Oslo" in reply_of(first) and "Stockholm" in reply_of(second) and reused >= before


async def test_a_files_own_bits_answer_as_its_model_does(tmp_path):
    with LiveServer(tmp_path, "--device", "cpu") as server:
        cache, first, second = await ask(server)
        said = server.said

    assert cache["quantization"] == "file"
    assert 0.95 * FILE_BYTES < cache["packed_bytes"] < 1.05 * FILE_BYTES
    # Where prompts are multiplied by the same bits nothing but the embedding has more.
    assert cache["weights_bytes"] > EMBEDDING_SIZE * choose_dtype(Mode.FAST, CPU).itemsize
    assert "to decode with" in said
    assert "as the file has them" in said
    assert is_right(first, second)


async def test_a_model_without_such_bits_is_quantised_when_asked(tmp_path):
    dtype = choose_dtype(Mode.FAST, CPU)
    prepared = prepare(obtain(DEFAULT_MODEL, MODELS, quiet), dtype, MODELS, quiet).folder
    folder = tmp_path / "plain"
    shutil.copytree(prepared, folder, ignore=shutil.ignore_patterns(PACKED))
    flags = ("--device", "cpu", "--model", str(folder), "--quantization", "int4")

    with LiveServer(tmp_path, *flags) as server:
        cache, first, second = await ask(server)

    assert cache["quantization"] == "int4"
    assert 0.95 * FILE_BYTES < cache["packed_bytes"] < 1.05 * FILE_BYTES
    assert is_right(first, second)


async def test_without_quantisation_nothing_is_packed(tmp_path):
    with LiveServer(tmp_path, "--device", "cpu", "--quantization", "none") as server:
        cache, first, second = await ask(server)
        said = server.said

    assert (cache["quantization"], cache["packed_bytes"]) == ("none", 0)
    assert "to decode with" not in said
    assert is_right(first, second)
