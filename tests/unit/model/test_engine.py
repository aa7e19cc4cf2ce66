"""The engine's client side: streams, ends of every kind, supervision. Its process is a stub."""

import asyncio
import os
from contextlib import aclosing

import pytest

from model import engine as engine_module
from model.config import EngineConfig
from model.engine import Engine, EngineState
from model.errors import (
    EngineDiedError,
    EngineUnavailableError,
    InvalidGenerationError,
    ModelLoadError,
    SequenceFailedError,
)
from model.flight import Flight
from model.messages import (
    FinishReason,
    GenerationDelta,
    GenerationFinished,
    GenerationStarted,
)
from tests.support import stub_worker
from tests.support.stub_engine import num_lives, request, running, until


@pytest.fixture(autouse=True)
def stubs(monkeypatch, tmp_path):
    stub_worker.install(monkeypatch, tmp_path)
    monkeypatch.setattr(engine_module, "_BACKOFF_S", 0.0)


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


async def test_a_listener_that_fails_is_not_the_engines_end(tmp_path, caplog):
    def fail(text: str) -> None:
        raise ValueError(f"can't say {text}")

    async with running(tmp_path, on_progress=fail) as engine:
        assert [event async for event in engine.generate(request("echo"))]

    assert "progress was not heard: loading" in caplog.text


async def test_a_generation_whose_stream_breaks_ends_alone(tmp_path, monkeypatch, caplog):
    deliver = Flight.deliver

    def fail_one(self, event, now_s):
        if self.request(now_s).request_id == "hang-bad" and isinstance(event, GenerationDelta):
            raise ValueError("broken")
        deliver(self, event, now_s)

    monkeypatch.setattr(Flight, "deliver", fail_one)
    async with running(tmp_path) as engine:

        async def read(name: str) -> str | None:
            try:
                async for _ in engine.generate(request(name)):
                    pass
            except SequenceFailedError as exc:
                return exc.code
            return None

        ends = await asyncio.gather(*(read(n) for n in ("hang-bad", "echo1", "echo2")))
        assert ends == ["sequence_failed", None, None]
        assert num_lives(tmp_path) == 1
    assert "hang-bad: its stream broke" in caplog.text


async def test_what_a_left_generation_still_says_is_not_its_successors(tmp_path):
    async with running(tmp_path) as engine:
        for _ in range(3):
            async with aclosing(engine.generate(request("hang", (9,)))) as stream:
                first = await anext(stream)
                assert isinstance(first, GenerationStarted)
        await engine.evict()
        async with aclosing(engine.generate(request("hang", (7,)))) as stream:
            events = [await anext(stream), await anext(stream)]
            assert isinstance(events[0], GenerationStarted)
            assert events[1].token_ids == (7,)
            await engine.cancel("hang")
            *_, end = [event async for event in stream]
            assert end.reason is FinishReason.CANCELLED
        assert not +engine._num_left


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
