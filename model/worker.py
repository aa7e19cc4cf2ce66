"""The engine's process: a loop around the core, and a thread that reads its socket.

Started as `python -m model.worker FD` with one end of a socket pair. The thread only puts commands
into a queue, so a large prompt arrives while a step computes; everything else happens on the main
thread. When the other end goes away, so does the process.
"""

import gc
import logging
import os
import queue
import socket
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace

from model.assembly import assemble
from model.core import EngineCore, Output
from model.errors import ModelError, ModelLoadError, SequenceFailedError
from model.grammar import Grammar, constraint_of
from model.messages import GenerationEvent, GenerationRequest, TierName
from model.wire import (
    HEADER,
    Answer,
    Cancel,
    Command,
    Events,
    Failure,
    LoadFailed,
    Logged,
    Progress,
    Query,
    Ready,
    Report,
    Start,
    Submit,
    decode,
    encode,
)

logger = logging.getLogger(__name__)

_MAX_FAILED_STEPS = 3
"""So many failed steps one after another mean that the device is broken, not a request."""


_TICK_S = 0.1
"""So often somebody looks whether a transfer is due, while there is nothing to compute."""


@dataclass(frozen=True, slots=True)
class Prepared:
    """From a compiler's thread: what this generation waited for is there."""

    request_id: str


@dataclass(frozen=True, slots=True)
class Compiled:
    """From a compiler's thread: a grammar that was asked about is compiled, or can't be."""

    query_id: int
    grammar: Grammar


@dataclass(frozen=True, slots=True)
class Wake:
    """From the tiers' threads: a transfer is over."""


class Connection:
    """Blocking frames over one socket; one thread reads, another writes."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._file = sock.makefile("rb")
        self._sending = threading.Lock()  # any thread may log
        # Bounded by the front end: it has at most max_running + max_waiting generations in flight.
        self.inbox: queue.SimpleQueue[Command | Report | Prepared | Compiled | Wake] = (
            queue.SimpleQueue()
        )

    def send(self, report: Report) -> None:
        """Write one report; blocks while the other side is behind."""
        with self._sending:
            self._sock.sendall(encode(report))

    def receive(self) -> Command | Report | None:
        """The next command; None when the other end is gone."""
        try:
            header = self._file.read(HEADER.size)
            if len(header) < HEADER.size:
                return None
            (length,) = HEADER.unpack(header)
            body = self._file.read(length)
        except ConnectionError:  # it went away before it had read everything
            return None
        return decode(body) if len(body) == length else None

    def start_receiving(self) -> None:
        """From now on commands come into `inbox`, and the process ends with the other end."""
        threading.Thread(target=self._receive_all, name="receiver", daemon=True).start()

    def _receive_all(self) -> None:
        try:
            while (command := self.receive()) is not None:
                self.inbox.put(command)
        finally:
            # The front end is gone, so nobody waits for what is being loaded or computed.
            os._exit(0)


class Worker:
    """Commands in, steps, reports out."""

    def __init__(self, core: EngineCore, connection: Connection) -> None:
        self._core = core
        self._connection = connection
        self._num_failed_steps = 0
        # Whose grammars are being compiled; bounded as the inbox is.
        self._preparing: dict[str, GenerationRequest] = {}

    def run(self) -> None:
        """Serve until the process ends."""
        while True:
            self._take_commands()
            if self._core.has_work:
                self._report(self._step())
                if not self._core.has_work:
                    self._core.audit()  # behind the last report, for it takes its time
            else:
                self._core.tick()

    def _take_commands(self) -> None:
        """Everything that has arrived; waits for something while there is nothing to compute."""
        is_idle = not self._core.has_work or self._core.is_stalled
        while True:
            # Asked only before a wait: the answer costs what there is of parked tables.
            timeout_s = _TICK_S if is_idle and self._core.is_due else None
            try:
                command = self._connection.inbox.get(block=is_idle, timeout=timeout_s)
            except queue.Empty:
                return
            self._handle(command)
            is_idle = False

    def _handle(self, command: Command | Report | Prepared | Compiled | Wake) -> None:
        match command:
            case Submit():
                self._submit(command.unpack())
            case Prepared(request_id):
                if request_id in self._preparing:
                    self._admit(self._preparing.pop(request_id))
            case Cancel(request_id):
                if request_id in self._preparing:
                    self._admit(_formless(self._preparing.pop(request_id)))
                self._report(self._core.cancel(request_id))
            case Query(query_id, "verify" | "collect" | "grammar" as name, argument, _):
                self._begin(query_id, name, argument)
            case Compiled(query_id, grammar):
                self._connection.send(Answer(query_id, self._fault_of(grammar)))
            case Query(query_id, name, argument, tier):
                self._connection.send(Answer(query_id, self._answer(name, argument, tier)))
            case Wake():
                pass  # a step or a tick follows, which sees what is over
            case _:
                raise AssertionError(f"unknown command {command!r}")

    def _submit(self, request: GenerationRequest) -> None:
        """Admit it, once its grammar is compiled: meanwhile the others' replies go on."""
        grammar, grammars = request.params.grammar, self._core.grammars
        if grammar is None or grammars is None or grammars.is_ready(grammar):
            self._admit(request)
            return
        try:
            grammars.prepare(
                grammar, lambda: self._connection.inbox.put(Prepared(request.request_id))
            )
        except ModelError as exc:
            self._report([Output(request.request_id, exc)])
        else:
            self._preparing[request.request_id] = request

    def _admit(self, request: GenerationRequest) -> None:
        try:
            self._report(self._core.submit(request))
        except ModelError as exc:
            self._report([Output(request.request_id, exc)])

    def _compile(self, query_id: int, grammar: Grammar) -> None:
        """Answer once it is compiled."""
        grammars = self._core.grammars
        if grammars is None or grammars.is_ready(grammar):
            self._connection.send(Answer(query_id, self._fault_of(grammar)))
            return
        try:
            grammars.prepare(
                grammar, lambda: self._connection.inbox.put(Compiled(query_id, grammar))
            )
        except ModelError as exc:
            self._connection.send(Answer(query_id, Failure.of(exc)))

    def _fault_of(self, grammar: Grammar) -> Failure | None:
        """What is wrong with it; None: nothing."""
        try:
            constraint_of(grammar, self._core.grammars)
        except ModelError as exc:
            return Failure.of(exc)
        return None

    def _begin(self, query_id: int, name: str, argument: str | Grammar | None) -> None:
        """Have other threads do what takes long; it is answered when it is done."""
        if isinstance(argument, Grammar):
            self._compile(query_id, argument)
            return
        tiering = self._core.cache.tiering
        begin = tiering.verify if name == "verify" else tiering.collect
        begin(lambda count: self._connection.send(Answer(query_id, count)))

    def _answer(self, name: str, argument: str | Grammar | None, tier: TierName | None) -> object:
        about_everybody: dict[str, Callable[[], object]] = {
            "stats": self._core.stats,
            "residency": self._core.residency,
            "conversations": self._core.cache.tiering.conversations,
            "store_all": self._store_all,
        }
        if name in about_everybody:
            return about_everybody[name]()
        assert not isinstance(argument, Grammar), f"{name} is about no grammar"
        if name == "evict":
            return self._core.evict(argument)
        assert argument is not None, f"{name} is about a conversation"
        if tier is not None:
            return self._core.park(argument, tier)
        return self._core.release(argument) if name == "release" else self._core.tables(argument)

    def _store_all(self) -> bool:
        """Bring everything into the tiers before the end; whoever asks sets the limit, by ending
        the process."""
        tiering = self._core.cache.tiering
        tiering.hurry()
        self._core.tick()
        while tiering.num_in_flight:
            with suppress(queue.Empty):
                self._connection.inbox.get(timeout=_TICK_S)
            self._core.tick()
        return tiering.close()

    def _step(self) -> list[Output]:
        try:
            outputs = self._core.step()
        except Exception:
            # Which sequence broke the batch can't be told; all of it fails, the engine goes on.
            self._num_failed_steps += 1
            if self._num_failed_steps >= _MAX_FAILED_STEPS:
                raise
            error = SequenceFailedError("the engine failed while computing; see the server's log")
            failed = self._core.fail_all(error)
            turn_ids = list(dict.fromkeys(output.request_id for output in failed))
            logger.exception("a step failed", extra={"turn_ids": turn_ids})
            return failed
        self._num_failed_steps = 0
        return outputs

    def _report(self, outputs: list[Output]) -> None:
        if outputs:
            self._connection.send(
                Events(tuple((o.request_id, _to_value(o.event)) for o in outputs))
            )


def _formless(request: GenerationRequest) -> GenerationRequest:
    """A request to be cancelled at once, which need not wait for what its reply would look like."""
    return replace(request, params=replace(request.params, grammar=None))


def _to_value(event: GenerationEvent | ModelError) -> GenerationEvent | Failure:
    return Failure.of(event) if isinstance(event, ModelError) else event


class LogHandler(logging.Handler):
    """Sends this process's records to the front end, which knows how they are to be written."""

    def __init__(self, connection: Connection) -> None:
        super().__init__(logging.INFO)
        self._connection = connection
        self._formatter = logging.Formatter()

    def emit(self, record: logging.LogRecord) -> None:
        """Send it; one that can't be sent is written to standard error, behind a dying process."""
        exception = record.exc_info and self._formatter.formatException(record.exc_info)
        report = Logged(
            level=record.levelno,
            logger=record.name,
            message=record.getMessage(),
            turn_ids=tuple(getattr(record, "turn_ids", ())),
            exception=exception or None,
        )
        try:
            self._connection.send(report)
        except OSError:
            print(self._formatter.format(record), file=sys.stderr)  # noqa: T201


def _log_to(connection: Connection) -> None:
    logging.basicConfig(level=logging.INFO, handlers=[LogHandler(connection)])
    # What ends the process is its log's last record, too.
    sys.excepthook = lambda *error: logger.critical("the engine's process fails", exc_info=error)


def main(connection: Connection) -> None:
    """Load what the first message names, then serve."""
    start = connection.receive()
    if not isinstance(start, Start):
        return
    connection.start_receiving()
    try:
        core, info = assemble(
            start.config,
            lambda text: connection.send(Progress(text)),
            lambda: connection.inbox.put(Wake()),
        )
    except ModelLoadError as exc:
        connection.send(LoadFailed(str(exc)))
        return
    # The model and its modules stay: walked by each full collection, they would stop all replies
    # for as long as twenty steps take.
    gc.collect()
    gc.freeze()
    connection.send(Ready(info))
    Worker(core, connection).run()


if __name__ == "__main__":
    to_front_end = Connection(socket.socket(fileno=int(sys.argv[1])))
    _log_to(to_front_end)
    main(to_front_end)
