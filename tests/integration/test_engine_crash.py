"""A reply goes on after the engine's process is killed under it, with a real process."""

import asyncio
import os
import signal

import pytest
import pytest_asyncio

from model.config import EngineConfig, Mode, SamplingParams
from model.engine import Engine, EngineState
from model.errors import EngineUnavailableError, RepeatedCrashError
from model.messages import (
    FinishReason,
    GenerationDelta,
    GenerationFinished,
    GenerationRequest,
    GenerationStarted,
)
from tests.support.tiny_gguf import write_tiny_gguf

# One engine for all: a process takes seconds to start, and these tests restart it often enough.
pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest.fixture(scope="module")
def config(tmp_path_factory):
    folder = tmp_path_factory.mktemp("crash")
    write_tiny_gguf(folder / "Tiny.gguf")
    return EngineConfig(
        model=str(folder / "Tiny.gguf"),
        models_dir=folder / "models",
        mode=Mode.EXACT,
        num_blocks=64,
        num_threads=1,
        check_books=True,
    )


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def engine(config):
    engine = Engine(config)
    await engine.start()
    yield engine
    await engine.close()


def make_request(name: str, **params) -> GenerationRequest:
    params = {"temperature": 1.0, "seed": 5, "max_output_tokens": 60, "ignore_eos": True} | params
    return GenerationRequest(
        request_id=name,
        token_ids=tuple(range(3, 23)),
        params=SamplingParams(**params),
        conversation_id=name,
    )


async def read(engine, request, *, kill_after=()):
    """All events; one process after the other is killed when so many deltas have come.

    What a dead process said before may still be read, so a number counts only once there is a
    living one that was not killed yet.
    """
    events, num_deltas = [], 0
    limits, killed = list(kill_after), set()
    async for event in engine.generate(request):
        events.append(event)
        num_deltas += isinstance(event, GenerationDelta)
        is_alive = engine.state is EngineState.READY and engine.pid not in killed
        if is_alive and limits and num_deltas >= limits[0]:
            del limits[0]
            killed.add(engine.pid)
            os.kill(engine.pid, signal.SIGKILL)
    return events


def ids_of(events):
    return [i for e in events if isinstance(e, GenerationDelta) for i in e.token_ids]


def text_of(events):
    return "".join(e.text for e in events if isinstance(e, GenerationDelta))


@pytest.mark.parametrize("params", [{}, {"seed": None, "temperature": 0.0}, {"stop": ("zzzz",)}])
async def test_a_reply_goes_on_without_a_gap_after_a_crash(engine, params):
    undisturbed = await read(engine, make_request("a", **params))
    await engine.evict()
    num_restarts = (await engine.stats()).num_restarts
    events = await read(engine, make_request("b", **params), kill_after=(7,))

    finished = events[-1]
    assert isinstance(finished, GenerationFinished)
    assert finished.token_ids == undisturbed[-1].token_ids == tuple(ids_of(events))
    assert finished.text == undisturbed[-1].text == text_of(events)
    assert sum(isinstance(e, GenerationStarted) for e in events) == 1
    assert (await engine.stats()).num_restarts == num_restarts + 1
    # The prompt twice, and each of the seven delivered tokens but the last once more at the least.
    assert finished.num_rows_computed >= 20 + 6 + 20 + 59


async def test_a_generation_in_flight_at_two_crashes_fails_for_good(engine):
    with pytest.raises(RepeatedCrashError) as caught:
        await read(engine, make_request("p", max_output_tokens=300), kill_after=(3, 6))

    assert not caught.value.retryable
    assert (await read(engine, make_request("next")))[-1].reason is FinishReason.LENGTH


async def test_a_request_that_comes_while_the_engine_restarts_waits_for_it(engine):
    os.kill(engine.pid, signal.SIGKILL)
    while engine.state is EngineState.READY:
        await engine._process._process.wait()

    events = await read(engine, make_request("w"))

    assert len(ids_of(events)) == 60
    assert engine.state is EngineState.READY


async def test_closing_while_it_restarts_ends_what_waits_for_it(config):
    engine = Engine(config)
    await engine.start()
    os.kill(engine.pid, signal.SIGKILL)
    while engine.state is EngineState.READY:
        await engine._process._process.wait()

    async with asyncio.TaskGroup() as tasks:
        waiting = tasks.create_task(refused_with(engine, make_request("never")))
        await asyncio.sleep(0)  # it has been taken, and no process is there to hear of it
        await engine.close()

    assert waiting.result() == "the engine was closed"


async def refused_with(engine, request):
    with pytest.raises(EngineUnavailableError) as caught:
        await read(engine, request)
    return str(caught.value)


async def test_a_cancel_during_a_restart_ends_with_what_was_delivered(engine):
    events = []
    async for event in engine.generate(make_request("c", max_output_tokens=300)):
        events.append(event)
        if len(ids_of(events)) == 5 and engine.state is EngineState.READY:
            os.kill(engine.pid, signal.SIGKILL)
            await engine._process._process.wait()
            await engine.cancel("c")

    assert events[-1].reason is FinishReason.CANCELLED
    assert list(events[-1].token_ids) == ids_of(events)
    assert 5 <= len(ids_of(events)) < 300
