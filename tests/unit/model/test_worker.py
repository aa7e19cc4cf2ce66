"""The engine process's loop, run in a thread here, around a core on a shadow of a cache."""

import logging
import os
import select
import socket
import sys
import threading
from functools import partial

import pytest

from model import worker
from model.config import EngineConfig
from model.costs import CostModel
from model.errors import (
    ContextLengthError,
    EngineBusyError,
    InvalidGenerationError,
    ModelLoadError,
    SequenceFailedError,
)
from model.eviction import EvictionPolicy
from model.messages import (
    EngineStats,
    FinishReason,
    GenerationDelta,
    GenerationStarted,
)
from model.spills import SpillConfig
from model.tiering import TierSetup
from model.tiers.tier import Tier
from model.tiers.transfers import Transfers
from model.wire import (
    Cancel,
    LoadFailed,
    Logged,
    Progress,
    Query,
    Start,
)
from model.worker import Connection, LogHandler
from model.worth import Worth
from tests.support.memory_storage import MemoryStorage, NumberedBlocks
from tests.support.tiny_model import LetterTokenizer
from tests.support.worker_bench import END, BreakableRunner, Peer, make_core, submit, working


def test_generations_are_answered_each_with_a_start_its_tokens_and_an_end(monkeypatch):
    runner = BreakableRunner()
    with working(make_core(runner), monkeypatch) as work:
        work.peer.send(submit("a"), submit("b", (3, 3)))

        events = work.peer.events_until_ended("a", "b")

        for name, prompt in (("a", [0, 1, 2]), ("b", [3, 3])):
            start, *deltas, end = events[name]
            assert isinstance(start, GenerationStarted)
            assert [d.token_ids for d in deltas] == [(t,) for t in runner.reply(prompt, 4)]
            assert end.token_ids == tuple(runner.reply(prompt, 4))


def tier_setup(medium, *, max_records=100):
    costs = CostModel(4, 1)
    worth = Worth(EvictionPolicy.VALUE, costs, 4, 1, lambda: 0.0)
    transfers = Transfers(medium, NumberedBlocks(31), lambda: 0.0, lambda: None)
    tier = Tier(
        transfers,
        medium,
        max_records=max_records,
        block_size=4,
        worth=partial(worth.of_record, medium.name),
        clock=lambda: 0.0,
    )
    return TierSetup(
        costs=costs, worth=worth, tiers=(tier,), spill=SpillConfig(), wall_clock=lambda: 0.0
    )


@pytest.mark.parametrize(("max_records", "num_stored"), [(100, 4), (0, 0)])
def test_before_the_end_all_is_stored_that_can_be_and_nothing_else_is_waited_for(
    monkeypatch, max_records, num_stored
):
    medium = MemoryStorage()
    core = make_core(BreakableRunner(), setup=tier_setup(medium, max_records=max_records))
    with working(core, monkeypatch) as work:
        work.peer.send(submit("a", conversation="A"), submit("b", (3, 3, 3), conversation="B"))
        work.peer.events_until_ended("a", "b")

        assert work.peer.ask("store_all") is True

    assert len(medium.records) == num_stored
    assert medium.is_closed


def test_questions_are_answered_while_nothing_runs(monkeypatch):
    with working(make_core(BreakableRunner()), monkeypatch) as work:
        peer = work.peer
        peer.send(submit("a"))
        peer.events_until_ended("a")

        assert isinstance(peer.ask("stats"), EngineStats)
        (table,) = peer.ask("tables", "a")
        assert (table.turn_id, table.num_computed_tokens) == ("a", 6)
        assert peer.ask("evict", "a") == 2
        assert peer.ask("tables", "a") == ()
        assert peer.ask("release", "a") == 0
        assert peer.ask("evict") == 0


def test_what_can_not_be_served_is_told_and_the_worker_goes_on(monkeypatch):
    with working(make_core(BreakableRunner()), monkeypatch) as work:
        for name, token_ids, error_class in (
            ("empty", (), InvalidGenerationError),
            ("odd", (77,), InvalidGenerationError),
            ("long", (0,) * 500, ContextLengthError),
        ):
            work.peer.send(submit(name, token_ids))
            (failure,) = work.peer.events_until_ended(name)[name]
            assert type(failure.to_error()) is error_class

        work.peer.send(submit("a"))
        assert work.peer.events_until_ended("a")["a"][-1].reason is FinishReason.LENGTH


def test_commands_that_arrive_during_a_step_are_taken_before_the_next(monkeypatch):
    runner = BreakableRunner()
    with working(make_core(runner, max_running=1, max_waiting=1), monkeypatch) as work:
        runner.gate.clear()
        work.peer.send(submit("a", num=50))
        assert runner.entered.wait(10)
        work.peer.send(Cancel("a"), submit("b"), submit("c"), submit("d"), Cancel("nobody"))
        work.inbox.wait_for(6)
        runner.gate.set()

        events = work.peer.events_until_ended("a", "b", "c", "d")

        start, token, end = events["a"]
        assert end.reason is FinishReason.CANCELLED
        assert end.token_ids == token.token_ids
        assert isinstance(start, GenerationStarted)
        # One may run and one may wait; the third is told at once.
        assert [type(e.to_error()) for e in events["d"]] == [EngineBusyError]
        assert events["b"][-1].reason is events["c"][-1].reason is FinishReason.LENGTH


def test_a_step_that_raises_fails_its_sequences_and_the_engine_goes_on(monkeypatch):
    runner = BreakableRunner()
    core = make_core(runner)
    with working(core, monkeypatch) as work:
        runner.num_failures = 1
        work.peer.send(submit("a"))
        (failure,) = work.peer.events_until_ended("a")["a"][-1:]
        assert type(failure.to_error()) is SequenceFailedError
        assert "on fire" not in str(failure.to_error())

        work.peer.send(submit("b"))
        assert work.peer.events_until_ended("b")["b"][-1].token_ids == tuple(
            runner.reply([0, 1, 2], 4)
        )
        stats = work.peer.ask("stats")
        assert dict(stats.finished_by_reason) == {"failed": 1, "length": 1}
        assert stats.blocks_running == 0
    core.cache.check()


def test_a_step_that_raises_in_mid_reply_gives_back_its_blocks(monkeypatch):
    runner = BreakableRunner()
    core = make_core(runner)
    with working(core, monkeypatch) as work:
        work.peer.send(submit("one"))
        work.peer.events_until_ended("one")
        log = [0, 1, 2, *runner.reply([0, 1, 2], 4)]
        runner.gate.clear()
        runner.entered.clear()
        work.peer.send(submit("two", (*log, 1)))
        assert runner.entered.wait(10)
        runner.num_failures = 1
        runner.gate.set()
        work.peer.events_until_ended("two")

        work.peer.send(submit("three", (*log, 1)))
        end = work.peer.events_until_ended("three")["three"][-1]
        assert end.token_ids == tuple(runner.reply([*log, 1], 4))
    core.cache.check()


def test_a_reply_that_ended_in_the_step_that_then_failed_is_told_its_end(monkeypatch):
    class Tokenizer(LetterTokenizer):
        """Can't decode what follows on the second prompt."""

        def decode(self, token_ids):
            if not self.works and len(seen) == 2:
                raise RuntimeError("no such token")
            seen.append(token_ids)
            return super().decode(token_ids)

    seen: list[list[int]] = []
    tokenizer, runner = Tokenizer(), BreakableRunner()
    tokenizer.works = False
    with working(make_core(runner, tokenizer=tokenizer), monkeypatch) as work:
        runner.gate.clear()
        work.peer.send(submit("holds", num=1))
        assert runner.entered.wait(10)
        work.peer.send(submit("ends", num=1), submit("breaks", (4, 4), num=9))
        work.inbox.wait_for(3)
        runner.gate.set()

        events = work.peer.events_until_ended("holds", "ends", "breaks")

        assert events["ends"][-1].reason is FinishReason.LENGTH
        assert isinstance(events["ends"][-2], GenerationDelta)
        assert type(events["breaks"][-1].to_error()) is SequenceFailedError
        tokenizer.works = True


def test_a_device_that_fails_again_and_again_ends_the_process(monkeypatch):
    runner = BreakableRunner()
    with working(make_core(runner), monkeypatch) as work:
        runner.num_failures = 3
        for name in ("a", "b"):
            work.peer.send(submit(name))
            work.peer.events_until_ended(name)
        assert work.thread.is_alive()
        work.peer.send(submit("c"))

        work.thread.join(10)

        assert [str(death) for death in work.deaths] == ["the device is on fire"]


def test_a_step_that_raises_is_logged_with_the_turns_that_it_ends(monkeypatch, caplog):
    runner = BreakableRunner()
    with working(make_core(runner), monkeypatch) as work:
        runner.num_failures = 1
        work.peer.send(submit("a"))
        work.peer.events_until_ended("a")

    (record,) = [r for r in caplog.records if r.name == "model.worker"]
    assert record.turn_ids == ["a"]
    assert "on fire" in caplog.text


def broken_record():
    try:
        raise KeyError("k")
    except KeyError:
        return logging.LogRecord(
            "model.worker", logging.ERROR, __file__, 1, "step %d", (3,), sys.exc_info()
        )


def test_a_record_crosses_to_the_front_end_with_its_traceback():
    ours, theirs = socket.socketpair()
    with theirs:
        peer, connection = Peer(ours), Connection(theirs)
        record = broken_record()
        record.turn_ids = ["resp_1"]

        LogHandler(connection).emit(record)

        report = peer.receive()
        connection._file.close()
        peer.close()
    assert isinstance(report, Logged)
    assert (report.level, report.logger, report.message) == (40, "model.worker", "step 3")
    assert report.turn_ids == ("resp_1",)
    assert report.exception.endswith("KeyError: 'k'")


def test_a_record_that_cannot_cross_any_more_is_on_standard_error(capsys):
    ours, theirs = socket.socketpair()
    ours.close()
    with theirs:
        connection = Connection(theirs)
        LogHandler(connection).emit(broken_record())
        connection._file.close()

    assert "step 3\nTraceback" in capsys.readouterr().err


def test_failures_with_a_good_step_between_are_not_counted_together(monkeypatch):
    runner = BreakableRunner()
    with working(make_core(runner), monkeypatch) as work:
        for i in range(5):
            runner.num_failures = 1
            work.peer.send(submit(f"bad{i}"))
            work.peer.events_until_ended(f"bad{i}")
            work.peer.send(submit(f"good{i}"))
            work.peer.events_until_ended(f"good{i}")
        assert work.thread.is_alive()


@pytest.mark.parametrize("is_unread", [False, True], ids=["all read", "something unread"])
def test_the_process_ends_when_its_front_end_is_gone(monkeypatch, is_unread):
    """With something unread the other end sees a reset and not an end."""
    with working(make_core(BreakableRunner()), monkeypatch) as work:
        if is_unread:
            work.peer.send(Query(1, "stats"))
            assert select.select([work.peer.sock], [], [], 10)[0]
        work.peer.send(END)
        work.thread.join(10)
        assert not work.exits

        work.peer.close()

        assert work.exited.wait(10)
        assert work.exits == [0]


# From start to ready


def run_main(monkeypatch, assemble, first=None):
    """What `main` says, with the end it is given."""
    monkeypatch.setattr(worker, "assemble", assemble)
    exited = threading.Event()
    monkeypatch.setattr(worker.os, "_exit", lambda code: exited.set())
    ours, theirs = socket.socketpair()
    fd = os.dup(theirs.fileno())
    theirs.close()
    peer = Peer(ours)
    if first is not None:
        peer.send(first)
    else:
        ours.shutdown(socket.SHUT_WR)
    thread = threading.Thread(target=worker.main, args=(Connection(socket.socket(fileno=fd)),))
    thread.start()
    thread.join(10)
    assert not thread.is_alive()
    return peer, exited


@pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")
def test_a_model_that_can_not_be_loaded_is_told_and_ends_the_process(monkeypatch):
    def assemble(config, on_progress, wake):
        on_progress(f"looking for {config.model}")
        raise ModelLoadError("no such model")

    peer, exited = run_main(monkeypatch, assemble, Start(EngineConfig(model="m")))

    assert peer.receive() == Progress("looking for m")
    assert peer.receive() == LoadFailed("no such model")
    peer.close()
    assert exited.wait(10)


@pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")
def test_a_front_end_that_goes_before_it_said_anything_is_no_error(monkeypatch):
    def assemble(config, on_progress, wake):
        raise AssertionError("nothing was asked for")

    peer, _ = run_main(monkeypatch, assemble)

    peer.close()


@pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")
def test_the_process_ends_while_it_loads_when_its_front_end_is_gone(monkeypatch):
    gone = threading.Event()

    def assemble(config, on_progress, wake):
        on_progress("loading")
        peer = peers.pop()
        assert peer.receive() == Progress("loading")
        peer.close()
        gone.wait(10)
        raise ModelLoadError("in vain")

    monkeypatch.setattr(worker, "assemble", assemble)
    monkeypatch.setattr(worker.os, "_exit", lambda code: gone.set())
    ours, theirs = socket.socketpair()
    fd = os.dup(theirs.fileno())
    theirs.close()
    peers = [Peer(ours)]
    peers[0].send(Start(EngineConfig()))

    with pytest.raises(BrokenPipeError):
        worker.main(Connection(socket.socket(fileno=fd)))

    assert gone.is_set()
