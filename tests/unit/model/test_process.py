"""One life of an engine's process, with a stub in its place."""

import os
import signal
import socket

import pytest

from model import process
from model.config import EngineConfig, SamplingParams
from model.messages import GenerationFinished, GenerationRequest
from model.process import EngineProcess
from model.wire import Events, Progress, Query, Ready, Submit
from tests.support import stub_worker


@pytest.fixture(autouse=True)
def stubs(monkeypatch, tmp_path):
    stub_worker.install(monkeypatch, tmp_path)


def spawn(tmp_path, model="good"):
    return EngineProcess.spawn(EngineConfig(model=model, models_dir=tmp_path))


async def test_what_the_process_says_is_heard_until_it_is_ended(tmp_path):
    engine = await spawn(tmp_path)
    reports = engine.reports()
    assert await anext(reports) == Progress("loading")
    assert isinstance(await anext(reports), Ready)
    assert engine.pid > 0

    request = GenerationRequest(request_id="echo", token_ids=(4, 5), params=SamplingParams())
    engine.send(Submit.of(request))
    said = [await anext(reports) for _ in range(4)]
    assert all(isinstance(report, Events) for report in said)
    assert isinstance(said[-1].events[0][1], GenerationFinished)

    assert await engine.end() == 0
    assert [report async for report in reports] == []


async def test_the_end_of_the_process_is_the_end_of_its_reports(tmp_path):
    engine = await spawn(tmp_path, "never")

    assert [report async for report in engine.reports()] == [Progress("loading")]
    assert await engine.end() == stub_worker.CRASH_CODE


async def test_half_a_report_is_dropped(tmp_path):
    engine = await spawn(tmp_path, "torn")

    assert [report async for report in engine.reports()] == [Progress("loading")]
    await engine.end()


async def test_a_command_to_a_process_that_is_gone_is_dropped(tmp_path):
    engine = await spawn(tmp_path)
    engine.kill()
    assert [r async for r in engine.reports() if isinstance(r, Events)] == []
    assert await engine.end() == -signal.SIGKILL

    engine.send(Query(1, "stats"))
    engine.kill()


async def test_a_process_that_does_not_listen_is_killed(tmp_path, monkeypatch):
    monkeypatch.setattr(process, "_EXIT_S", 0.1)
    engine = await spawn(tmp_path, "deaf")
    reports = engine.reports()
    while not isinstance(await anext(reports), Ready):
        pass

    # More than the socket holds, so that closing it can't get through either.
    engine.send(Query(1, "x" * 3_000_000))

    assert await engine.end() == -signal.SIGKILL
    await reports.aclose()


async def test_a_large_message_goes_both_ways_whole(tmp_path):
    engine = await spawn(tmp_path)
    token_ids = tuple(range(300_000))
    request = GenerationRequest(request_id="echo", token_ids=token_ids, params=SamplingParams())

    engine.send(Submit.of(request))

    async for report in engine.reports():
        if isinstance(report, Events) and isinstance(
            finished := report.events[0][1], GenerationFinished
        ):
            break
    assert finished.token_ids == token_ids
    assert await engine.end() == 0


async def test_a_process_that_can_not_be_started_leaves_no_socket_open(tmp_path, monkeypatch):
    monkeypatch.setattr("model.process.sys.executable", str(tmp_path / "no such program"))
    opened: list[socket.socket] = []
    socketpair = socket.socketpair

    def remember():
        opened.extend(socketpair())
        return tuple(opened)

    monkeypatch.setattr(process.socket, "socketpair", remember)

    with pytest.raises(OSError, match="no such program"):
        await spawn(tmp_path)

    assert [end.fileno() for end in opened] == [-1, -1]


async def test_the_process_outlives_a_ctrl_c_in_the_terminal(tmp_path):
    """A session of its own: the signal goes to the terminal's foreground group."""
    engine = await spawn(tmp_path)
    reports = engine.reports()
    await anext(reports)

    assert os.getsid(engine.pid) == engine.pid != os.getsid(0)

    await engine.end()
    await reports.aclose()


async def test_the_process_finds_this_program_wherever_it_was_started(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", "/elsewhere")

    environment = process._environment()

    first, second = environment["PYTHONPATH"].split(":")
    assert (process.Path(first) / "model" / "worker.py").exists()
    assert second == "/elsewhere"
    monkeypatch.delenv("PYTHONPATH")
    assert process._environment()["PYTHONPATH"] == first


def test_openmp_threads_soon_sleep_unless_the_caller_decides(monkeypatch):
    for name in ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT"):
        monkeypatch.delenv(name, raising=False)
    assert process._environment()["GOMP_SPINCOUNT"] == "1000"

    monkeypatch.setenv("OMP_WAIT_POLICY", "ACTIVE")
    assert "GOMP_SPINCOUNT" not in process._environment()
    monkeypatch.setenv("GOMP_SPINCOUNT", "5")
    assert process._environment()["GOMP_SPINCOUNT"] == "5"
