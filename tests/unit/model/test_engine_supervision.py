"""The engine's process dies: who hears of it, what goes on, and when it is given up."""

import asyncio
import os
import signal

import pytest

from model import engine as engine_module
from model import process as process_module
from model.engine import EngineState
from model.errors import (
    EngineDiedError,
    EngineUnavailableError,
    RepeatedCrashError,
)
from model.messages import (
    GenerationDelta,
    GenerationStarted,
)
from model.wire import Events
from tests.support import stub_worker
from tests.support.stub_engine import num_lives, request, running, until


@pytest.fixture(autouse=True)
def stubs(monkeypatch, tmp_path):
    stub_worker.install(monkeypatch, tmp_path)
    monkeypatch.setattr(engine_module, "_BACKOFF_S", 0.0)


async def test_a_reply_whose_process_is_killed_goes_on_in_the_next_one(tmp_path):
    async with running(tmp_path) as engine:
        pid = engine.pid

        start, *deltas, end = [event async for event in engine.generate(request("once"))]

        assert isinstance(start, GenerationStarted)
        assert [d.token_ids for d in deltas] == [(4,), (5,), (6,)]
        assert end.token_ids == (4, 5, 6)
        assert engine.pid != pid
        assert num_lives(tmp_path) == 2


async def test_behind_a_message_that_cannot_be_read_the_next_process_goes_on(
    tmp_path, monkeypatch, caplog
):
    decode = process_module.decode
    num_broken = 0

    def fail_once(body: bytes):
        nonlocal num_broken
        report = decode(body)
        is_delta = isinstance(report, Events) and isinstance(report.events[0][1], GenerationDelta)
        if is_delta and num_broken == 0:
            num_broken += 1
            raise ValueError("not a message")
        return report

    monkeypatch.setattr(process_module, "decode", fail_once)
    async with running(tmp_path) as engine:
        start, *deltas, end = [event async for event in engine.generate(request("echo"))]

        assert isinstance(start, GenerationStarted)
        assert [d.token_ids for d in deltas] == [(4,), (5,), (6,)]
        assert end.token_ids == (4, 5, 6)
        assert num_lives(tmp_path) == 2
    assert "can't be understood" in caplog.text


async def test_whoever_wants_to_know_is_told_whenever_there_is_an_engine_again(tmp_path):
    told = []
    async with running(tmp_path) as engine:
        engine.when_ready(lambda: told.append(engine.state))
        os.kill(engine.pid, signal.SIGKILL)
        await until(engine, EngineState.RESTARTING)
        assert told == []
        await until(engine, EngineState.READY)

    assert told == [EngineState.READY]


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


async def test_what_the_process_logs_is_in_this_ones_log(tmp_path, caplog):
    async with running(tmp_path, model="talkative"):
        pass

    (record,) = [r for r in caplog.records if r.name == "model.worker"]
    assert (record.levelname, record.getMessage()) == ("WARNING", "100% broken")
    assert (record.turn_ids, record.exception) == (["resp_1"], "Traceback")


async def test_the_end_of_a_process_is_logged_with_the_turns_that_were_in_flight(tmp_path, caplog):
    async with running(tmp_path) as engine:
        async for _ in engine.generate(request("once")):
            pass

    ended = [r for r in caplog.records if r.name == "model.engine" and hasattr(r, "turn_ids")]
    assert [record.turn_ids for record in ended] == [["once"]]
