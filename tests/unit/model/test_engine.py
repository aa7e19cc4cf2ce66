"""The engine's client side: streams, ends of every kind, supervision. Its process is a stub."""

import asyncio
import os
import signal
from contextlib import aclosing, asynccontextmanager

import pytest

from model import engine as engine_module
from model.config import EngineConfig, SamplingParams
from model.engine import Engine, EngineState
from model.errors import (
    EngineDiedError,
    EngineUnavailableError,
    InvalidGenerationError,
    ModelLoadError,
    RepeatedCrashError,
    SequenceFailedError,
)
from model.messages import (
    FinishReason,
    GenerationDelta,
    GenerationFinished,
    GenerationRequest,
    GenerationStarted,
)
from tests.support import stub_worker


@pytest.fixture(autouse=True)
def stubs(monkeypatch, tmp_path):
    stub_worker.install(monkeypatch, tmp_path)
    monkeypatch.setattr(engine_module, "_BACKOFF_S", 0.0)


@asynccontextmanager
async def running(tmp_path, model="good", **options):
    engine = Engine(EngineConfig(model=model, models_dir=tmp_path), **options)
    await engine.start()
    try:
        yield engine
    finally:
        await engine.close()


def request(name, token_ids=(4, 5, 6)) -> GenerationRequest:
    return GenerationRequest(request_id=name, token_ids=tuple(token_ids), params=SamplingParams())


async def until(engine: Engine, state: EngineState) -> None:
    """The engine tells nobody its state; it changes with what its process says."""
    async with asyncio.timeout(10):
        while engine.state is not state:  # noqa: ASYNC110
            await asyncio.sleep(0.005)


def num_lives(tmp_path) -> int:
    return (tmp_path / "lives").stat().st_size


async def test_an_engine_says_what_it_is_busy_with_and_what_it_loaded(tmp_path):
    progress: list[str] = []
    engine = Engine(EngineConfig(model="good", models_dir=tmp_path), on_progress=progress.append)
    assert (engine.state, engine.pid) == (EngineState.STARTING, None)
    with pytest.raises(EngineUnavailableError, match="starting"):
        _ = engine.info

    info = await engine.start()

    assert info.model_id == "good"
    assert engine.info is info
    assert engine.state is EngineState.READY
    assert progress == ["loading"]
    pid = engine.pid
    await engine.close()
    assert (engine.state, engine.pid) == (EngineState.CLOSED, None)
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


async def test_a_generation_is_streamed_to_its_end(tmp_path):
    async with running(tmp_path) as engine:
        events = [event async for event in engine.generate(request("echo"))]

    start, *deltas, end = events
    assert isinstance(start, GenerationStarted)
    assert [d.token_ids for d in deltas] == [(4,), (5,), (6,)]
    assert isinstance(end, GenerationFinished)
    assert end.token_ids == (4, 5, 6)


async def test_generations_at_once_do_not_mix(tmp_path):
    async with running(tmp_path) as engine:

        async def ids(i: int) -> list[int]:
            stream = engine.generate(request(f"echo{i}", range(i, i + 30)))
            deltas = [e async for e in stream if isinstance(e, GenerationDelta)]
            return [d.token_ids[0] for d in deltas]

        replies = await asyncio.gather(*(ids(i) for i in range(40)))

    assert replies == [list(range(i, i + 30)) for i in range(40)]


async def test_a_failed_generation_raises_its_error_and_leaves_the_others(tmp_path):
    async with running(tmp_path) as engine:
        with pytest.raises(SequenceFailedError, match="broken"):
            async for _ in engine.generate(request("fail")):
                pass

        assert [e async for e in engine.generate(request("echo"))]
        assert engine.state is EngineState.READY


async def test_a_cancelled_generation_ends_with_what_it_has(tmp_path):
    async with running(tmp_path) as engine:
        events = []
        async for event in engine.generate(request("hang")):
            events.append(event)
            if isinstance(event, GenerationDelta) and event.token_ids:
                await engine.cancel("hang")

    assert events[-1].reason is FinishReason.CANCELLED
    assert events[-1].token_ids == (1,)


async def test_cancelling_what_is_unknown_or_over_is_nothing(tmp_path):
    async with running(tmp_path) as engine:
        await engine.cancel("nobody")
        _ = [event async for event in engine.generate(request("echo"))]
        await engine.cancel("echo")
    await engine.cancel("echo")


async def test_leaving_a_stream_cancels_its_generation(tmp_path, monkeypatch):
    sent: list[object] = []
    send = engine_module.EngineProcess.send
    monkeypatch.setattr(
        engine_module.EngineProcess, "send", lambda self, c: (sent.append(c), send(self, c))
    )
    async with running(tmp_path) as engine:
        async with aclosing(engine.generate(request("hang"))) as stream:
            await anext(stream)
        assert sent[-1] == engine_module.Cancel("hang")

        # What was on its way reaches nobody, and the engine goes on.
        assert [event async for event in engine.generate(request("echo"))]
        assert sent.count(engine_module.Cancel("hang")) == 1
        assert engine_module.Cancel("echo") not in sent


async def test_a_task_that_is_cancelled_cancels_its_generation(tmp_path):
    async with running(tmp_path) as engine:
        started = asyncio.Event()

        async def read() -> None:
            async for _ in engine.generate(request("hang")):
                started.set()

        async with asyncio.TaskGroup() as tasks:
            reader = tasks.create_task(read())
            await started.wait()
            reader.cancel()
        assert engine._flights == {}


async def test_an_id_in_use_is_refused_and_its_generation_goes_on(tmp_path):
    async with running(tmp_path) as engine, aclosing(engine.generate(request("hang"))) as stream:
        await anext(stream)
        with pytest.raises(InvalidGenerationError, match="in use"):
            await anext(engine.generate(request("hang")))

        await engine.cancel("hang")
        assert [e async for e in stream][-1].reason is FinishReason.CANCELLED


async def test_questions_are_answered(tmp_path):
    async with running(tmp_path) as engine:
        assert await engine.tables("conv") == ()
        assert await engine.evict() == await engine.evict("conv") == 3
        await engine.release("conv")


# The process dies


async def test_a_reply_whose_process_is_killed_goes_on_in_the_next_one(tmp_path):
    async with running(tmp_path) as engine:
        pid = engine.pid

        start, *deltas, end = [event async for event in engine.generate(request("once"))]

        assert isinstance(start, GenerationStarted)
        assert [d.token_ids for d in deltas] == [(4,), (5,), (6,)]
        assert end.token_ids == (4, 5, 6)
        assert engine.pid != pid
        assert num_lives(tmp_path) == 2


async def test_a_generation_that_comes_while_it_restarts_waits(tmp_path):
    async with running(tmp_path) as engine:
        os.kill(engine.pid, signal.SIGKILL)
        await until(engine, EngineState.RESTARTING)

        events = [event async for event in engine.generate(request("echo"))]

        assert events[-1].token_ids == (4, 5, 6)


async def test_one_that_leaves_while_it_restarts_is_not_computed(tmp_path):
    async with running(tmp_path) as engine:
        os.kill(engine.pid, signal.SIGKILL)
        await until(engine, EngineState.RESTARTING)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(anext(engine.generate(request("die"))), 0.001)

        await until(engine, EngineState.READY)

        assert [event async for event in engine.generate(request("echo"))]
        assert num_lives(tmp_path) == 2


async def test_what_is_in_flight_at_two_crashes_fails_and_what_was_over_does_not(tmp_path):
    async with running(tmp_path) as engine:

        async def read(name: str) -> str | None:
            try:
                async for _ in engine.generate(request(name)):
                    pass
            except RepeatedCrashError as exc:
                return exc.code
            return None

        ends = await asyncio.gather(*(read(n) for n in ("hang1", "hang2", "echo", "die")))

    assert ends == ["repeated_crash", "repeated_crash", None, "repeated_crash"]


async def test_a_question_in_flight_fails_when_the_process_dies(tmp_path):
    async with running(tmp_path) as engine:
        with pytest.raises(EngineDiedError):
            await engine.evict("die")

        # While it restarts there is nothing to ask, and nothing to forget.
        with pytest.raises(EngineUnavailableError, match="restarting"):
            await engine.stats()
        await engine.release("conv")
        await until(engine, EngineState.READY)
        assert await engine.evict() == 3


async def test_a_generation_that_finishes_forgives_the_crashes_before_it(tmp_path):
    async with running(tmp_path) as engine:
        for _ in range(engine_module._MAX_CRASHES):
            with pytest.raises(RepeatedCrashError):
                _ = [event async for event in engine.generate(request("die"))]
            assert [event async for event in engine.generate(request("echo"))]

        assert num_lives(tmp_path) == 1 + 2 * engine_module._MAX_CRASHES


async def test_an_engine_that_dies_again_and_again_is_given_up_with_the_reason(tmp_path):
    async with running(tmp_path, "once") as engine:
        with pytest.raises(EngineDiedError, match="exit code 7; see the log"):
            _ = [event async for event in engine.generate(request("die"))]

        assert engine.state is EngineState.FAILED
        assert num_lives(tmp_path) == engine_module._MAX_CRASHES
        with pytest.raises(EngineUnavailableError, match=r"failed: .* exit code 7; see the log"):
            await engine.stats()
        with pytest.raises(EngineUnavailableError, match="exit code 7"):
            await anext(engine.generate(request("echo")))
    assert engine.state is EngineState.FAILED


async def test_requests_that_kill_it_each_time_are_crashes_in_a_row(tmp_path):
    async with running(tmp_path) as engine:
        for i in range(2):
            with pytest.raises(RepeatedCrashError):
                _ = [event async for event in engine.generate(request(f"die{i}"))]
        with pytest.raises(EngineDiedError):
            _ = [event async for event in engine.generate(request("die2"))]

        assert engine.state is EngineState.FAILED


async def test_the_wait_before_a_restart_doubles(tmp_path, monkeypatch):
    waits: list[float] = []
    timeout = asyncio.timeout

    def note(seconds: float):
        if seconds in (0.2, 0.4, 0.8, 1.6, 3.2, 6.4):
            waits.append(seconds)
            seconds = 0.0
        return timeout(seconds)

    monkeypatch.setattr(engine_module, "_BACKOFF_S", 0.2)
    monkeypatch.setattr(engine_module.asyncio, "timeout", note)
    async with running(tmp_path, "once") as engine:
        with pytest.raises(EngineDiedError):
            await engine.evict("die")
        await until(engine, EngineState.FAILED)

    assert waits == [0.4, 0.8, 1.6, 3.2]


async def test_a_model_that_is_gone_at_a_restart_is_told(tmp_path):
    async with running(tmp_path, "moved") as engine:
        with pytest.raises(EngineDiedError):
            await engine.evict("die")

        await until(engine, EngineState.FAILED)

        with pytest.raises(EngineUnavailableError, match="no such model"):
            await engine.evict()
        assert num_lives(tmp_path) == 2
        assert engine.info.model_id == "moved"


# Starting and closing


async def test_a_model_that_can_not_be_loaded_is_an_error_of_start(tmp_path):
    engine = Engine(EngineConfig(model="refused", models_dir=tmp_path))

    with pytest.raises(ModelLoadError, match=r"^no such model$"):
        await engine.start()

    await until(engine, EngineState.FAILED)
    with pytest.raises(EngineUnavailableError, match="no such model"):
        _ = engine.info
    await engine.close()
    assert engine.state is EngineState.FAILED
    assert num_lives(tmp_path) == 1


async def test_a_process_that_dies_before_it_is_ready_is_not_tried_again(tmp_path):
    engine = Engine(EngineConfig(model="never", models_dir=tmp_path))

    with pytest.raises(ModelLoadError, match="exit code 7"):
        await engine.start()

    await engine.close()
    assert num_lives(tmp_path) == 1


async def test_a_process_that_can_not_be_started_is_an_error_of_start(tmp_path, monkeypatch):
    monkeypatch.setattr("model.process.sys.executable", str(tmp_path / "nothing"))
    engine = Engine(EngineConfig(models_dir=tmp_path))

    with pytest.raises(ModelLoadError, match="can't be started"):
        await engine.start()

    await engine.close()
    assert engine.state is EngineState.FAILED


async def test_closing_fails_what_is_in_flight(tmp_path):
    async with running(tmp_path) as engine:
        async with aclosing(engine.generate(request("hang"))) as stream:
            await anext(stream)
            await anext(stream)

            waiting = anext(stream), engine.evict("never"), engine.close()
            reply, question, _ = await asyncio.gather(*waiting, return_exceptions=True)

        assert type(reply) is type(question) is EngineUnavailableError
        assert str(reply) == str(question) == "the engine was closed"
        with pytest.raises(EngineUnavailableError, match="closed"):
            await anext(engine.generate(request("echo")))
        await engine.close()
    assert num_lives(tmp_path) == 1


async def test_closing_while_it_loads_ends_the_start(tmp_path):
    loading = asyncio.Event()
    engine = Engine(
        EngineConfig(model="loading", models_dir=tmp_path), on_progress=lambda text: loading.set()
    )

    async def close() -> None:
        await loading.wait()
        await engine.close()

    start, _ = await asyncio.gather(engine.start(), close(), return_exceptions=True)

    assert type(start) is EngineUnavailableError
    assert engine.state is EngineState.CLOSED


async def test_a_start_that_is_cancelled_can_be_closed(tmp_path):
    engine = Engine(EngineConfig(model="loading", models_dir=tmp_path))
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(engine.start(), 0.05)

    await engine.close()

    assert engine.state is EngineState.CLOSED


async def test_closing_between_two_lives_ends_the_supervision(tmp_path, monkeypatch):
    monkeypatch.setattr(engine_module, "_BACKOFF_S", 60.0)
    async with running(tmp_path) as engine:
        with pytest.raises(EngineDiedError):
            await engine.evict("die")

    assert (engine.state, engine.pid) == (EngineState.CLOSED, None)
    assert num_lives(tmp_path) == 1


async def test_closing_what_never_started_is_nothing():
    engine = Engine(EngineConfig())

    await engine.close()

    assert engine.state is EngineState.CLOSED
