"""The engine seen from the event loop: start, supervise, stream.

The engine lives in a process of its own (`process`, `worker`), so that it never delays a socket and
its crash never takes the server down. This side holds every generation in flight (`flight`); after
a crash a new process goes on with each of them where it was.

Invariants:
    a stream ends: with `GenerationFinished`, or with an error raised out of it
    a stream has no gap and repeats nothing, whatever happens to the process
    what a generation that was left still says reaches no later one under its id
    whatever goes wrong with one generation, or with who listens to progress, is that one's alone
"""

import asyncio
import logging
import os
import secrets
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from enum import StrEnum
from typing import Any

from model.config import EngineConfig
from model.errors import (
    EngineDiedError,
    EngineUnavailableError,
    InvalidGenerationError,
    ModelError,
    ModelLoadError,
    SequenceFailedError,
)
from model.flight import Flight
from model.grammar import Grammar
from model.inquirer import Inquirer
from model.messages import (
    EngineInfo,
    EngineStats,
    GenerationEvent,
    GenerationFinished,
    GenerationRequest,
    TierName,
)
from model.process import EngineProcess
from model.questions import Questions
from model.tiers.base import TierError
from model.tiers.cpu import create_memory
from model.wire import (
    Answer,
    Cancel,
    Events,
    Failure,
    LoadFailed,
    Logged,
    Progress,
    Ready,
    Submit,
)

logger = logging.getLogger(__name__)

_MAX_CRASHES = 5
_BACKOFF_S = 0.2
"""Doubled with each crash in a row; one that comes after a finished generation counts afresh."""


class EngineState(StrEnum):
    """`starting → ready ⇄ restarting`, then `failed` or `closed` for good."""

    STARTING = "starting"
    READY = "ready"
    RESTARTING = "restarting"
    FAILED = "failed"
    CLOSED = "closed"


class Engine(Inquirer):
    """The client side of the engine's process. Used from one event loop."""

    def __init__(
        self, config: EngineConfig, *, on_progress: Callable[[str], None] | None = None
    ) -> None:
        self._config = config
        self._on_progress = on_progress or (lambda text: logger.info("%s", text))
        self._when_ready: list[Callable[[], None]] = []
        self._state = EngineState.STARTING
        self._info: EngineInfo | None = None
        self._process: EngineProcess | None = None
        self._supervisor: asyncio.Task[None] | None = None
        self._loaded: asyncio.Future[EngineInfo] | None = None
        self._flights: dict[str, Flight] = {}
        # Ends that the process has yet to report of generations whose readers left.
        self._num_left: Counter[str] = Counter()
        self._questions = Questions()
        self._num_crashes_in_a_row = 0
        self._num_restarts = 0
        self._failure: str | None = None  # why it is given up
        self._closing = asyncio.Event()

    @property
    def state(self) -> EngineState:
        """Whether generations are taken."""
        return self._state

    @property
    def info(self) -> EngineInfo:
        """What was loaded; raises EngineUnavailableError before the first `READY`."""
        if self._info is None:
            raise self._unavailable()
        return self._info

    @property
    def pid(self) -> int | None:
        """The engine's process, if there is one."""
        return self._process.pid if self._process else None

    def when_ready(self, tell: Callable[[], None]) -> None:
        """Have it called whenever a process can be asked: at the start, and behind each crash."""
        self._when_ready.append(tell)

    async def start(self) -> EngineInfo:
        """Start the process and wait until it is ready. Raises ModelLoadError."""
        assert self._supervisor is None, "started twice"
        self._set_memory_aside()
        self._loaded = asyncio.get_running_loop().create_future()
        # Owned by this object, ended by `close`.
        self._supervisor = asyncio.create_task(self._supervise(), name="engine supervisor")
        return await self._loaded

    async def store(self, timeout_s: float) -> bool:
        """Bring everything into the tiers, for the next start; whether all was in time. Nothing may
        be asked of the engine afterwards but `residency` and to close. May be cancelled."""
        if not timeout_s or self._state is not EngineState.READY:
            return False
        with suppress(TimeoutError, ModelError):
            async with asyncio.timeout(timeout_s):
                return bool(await self._query("store_all"))
        return False

    async def close(self, store_s: float = 0.0) -> None:
        """End the process; running generations fail with EngineUnavailableError. For so many
        seconds it may store before what it has."""
        await self.store(store_s)
        if self._state is not EngineState.FAILED:
            self._state = EngineState.CLOSED
        self._closing.set()
        if self._process is not None:
            self._process.hang_up()
        if self._supervisor is not None:
            # Not cancelled: it has a process to see off.
            await asyncio.wait([self._supervisor])
        # Between two processes nobody has told those who wait for the next one.
        self._fail_in_flight(EngineUnavailableError, "the engine was closed")
        if self._loaded and not self._loaded.done():
            self._loaded.set_exception(EngineUnavailableError("the engine was closed"))
        if self._config.cpu_tier_fd is not None:
            os.close(self._config.cpu_tier_fd)
            self._config = replace(self._config, cpu_tier_fd=None)

    def _set_memory_aside(self) -> None:
        """The CPU tier's, which outlives the processes that use it. Raises ModelLoadError."""
        if self._config.cpu_tier_bytes and self._config.kv_dir is not None:
            try:
                memory = create_memory(self._config.cpu_tier_bytes)
            except TierError as exc:
                raise ModelLoadError(str(exc)) from exc
            self._config = replace(self._config, cpu_tier_fd=memory)

    # Generations

    async def generate(self, request: GenerationRequest) -> AsyncIterator[GenerationEvent]:
        """Stream one generation. Raises ModelError; leaving the iterator early cancels it.

        While the engine restarts it waits for it.
        """
        if self._state not in (EngineState.READY, EngineState.RESTARTING):
            raise self._unavailable()
        if request.request_id in self._flights:
            raise InvalidGenerationError(f"request id {request.request_id} is in use")
        flight = Flight(_with_seed(request), self._now())
        self._flights[request.request_id] = flight
        try:
            self._submit(flight)
            while True:
                event = await flight.stream.get()
                if isinstance(event, ModelError):
                    raise event
                yield event
                if isinstance(event, GenerationFinished):
                    return
        finally:
            self._leave(request.request_id)

    async def cancel(self, request_id: str) -> None:
        """End a generation at the next step, as `CANCELLED` with what it has; unknown ids are
        ignored."""
        if flight := self._flights.get(request_id):
            flight.is_cancelled = True
            self._send(Cancel(request_id))

    def _send(self, command: Submit | Cancel) -> bool:
        """Tell the process; one that is still loading is told everything once it is ready."""
        if self._process is None or self._state is not EngineState.READY:
            return False
        self._process.send(command)
        return True

    def _submit(self, flight: Flight) -> None:
        flight.is_submitted = self._send(Submit.of(flight.request(self._now())))

    def _leave(self, request_id: str) -> Flight | None:
        """End a generation that nobody reads any more, unless it has ended."""
        flight = self._flights.pop(request_id, None)
        if flight is not None and flight.is_submitted and self._send(Cancel(request_id)):
            self._num_left[request_id] += 1
        return flight

    def _resubmit(self) -> None:
        """Let a new process go on with what was in flight."""
        for request_id, flight in list(self._flights.items()):
            with self._alone(request_id):
                self._submit(flight)
                if flight.is_cancelled:
                    self._send(Cancel(request_id))

    @contextmanager
    def _alone(self, request_id: str) -> Iterator[None]:
        """What goes wrong in here is a bug's, and ends this one generation."""
        try:
            yield
        except Exception:
            logger.exception("%s: its stream broke", request_id)
            if (flight := self._leave(request_id)) is not None:
                flight.fail(SequenceFailedError("its stream broke; see the server's log"))

    def _now(self) -> float:
        return asyncio.get_running_loop().time()

    # Between turns

    async def release(self, conversation_id: str) -> None:
        """Forget a conversation. An engine that isn't there has nothing to forget."""
        if self._state is EngineState.READY:
            await self._query("release", conversation_id)

    async def stats(self) -> EngineStats:
        """A snapshot of what the engine counts. Raises EngineUnavailableError."""
        stats: EngineStats = await self._query("stats")
        return replace(stats, num_restarts=self._num_restarts)

    async def _query(
        self, name: str, argument: str | Grammar | None = None, tier: TierName | None = None
    ) -> Any:  # noqa: ANN401 (by name)
        return await self._questions.ask(self._ready_process(), name, argument, tier)

    def _ready_process(self) -> EngineProcess:
        if self._process is None or self._state is not EngineState.READY:
            raise self._unavailable()
        return self._process

    def _unavailable(self) -> EngineUnavailableError:
        reason = f": {self._failure}" if self._failure else ""
        return EngineUnavailableError(f"the engine is {self._state}{reason}")

    # Supervision

    async def _supervise(self) -> None:
        """Keep a process alive until `close`, or until it can't be."""
        while self._state not in (EngineState.FAILED, EngineState.CLOSED):
            try:
                self._process = await EngineProcess.spawn(self._config)
            except OSError as exc:
                self._give_up(f"the engine's process can't be started: {exc}")
                return
            await self._listen(self._process)
            if self._state is EngineState.RESTARTING:
                with suppress(TimeoutError):
                    async with asyncio.timeout(_BACKOFF_S * 2**self._num_crashes_in_a_row):
                        await self._closing.wait()

    async def _listen(self, process: EngineProcess) -> None:
        """One process's life."""
        if self._closing.is_set():
            process.hang_up()  # closed while it was being started
        try:
            async for report in process.reports():
                if not self._closing.is_set():
                    self._take(report)
        except Exception:
            # Behind a message that can't be read nothing can be believed: the next one goes on.
            logger.exception("the engine's process can't be understood")
        finally:
            await self._bury(process)

    async def _bury(self, process: EngineProcess) -> None:
        """A process is gone, or has to go: whoever waits for it hears of it."""
        self._process = None
        self._num_left.clear()
        if self._state is EngineState.READY:
            self._state = EngineState.RESTARTING
            self._questions.fail(EngineDiedError("the engine's process ended"))
            # The others wait for the next process.
            self._flights = {k: f for k, f in self._flights.items() if f.survives_crash()}
        if self._state is EngineState.CLOSED:
            self._questions.fail(EngineUnavailableError("the engine was closed"))
            self._fail_in_flight(EngineUnavailableError, "the engine was closed")
        exit_code = await process.end()
        if self._state in (EngineState.STARTING, EngineState.RESTARTING):
            self._count_crash(exit_code)

    def _count_crash(self, exit_code: int) -> None:
        self._num_crashes_in_a_row += 1
        self._num_restarts += 1
        logger.error(
            "the engine's process ended with exit code %s",
            exit_code,
            extra={"turn_ids": list(self._flights)},
        )
        if self._state is EngineState.STARTING or self._num_crashes_in_a_row >= _MAX_CRASHES:
            self._give_up(f"the engine's process ended with exit code {exit_code}; see the log")

    def _take(self, report: object) -> None:
        match report:
            case Events(events):
                for request_id, event in events:
                    with self._alone(request_id):
                        self._deliver(request_id, event)
            case Answer(query_id, value):
                self._questions.answer(query_id, value)
            case Progress(text):
                self._say(text)
            case Ready(info):
                self._info = info
                self._state = EngineState.READY
                self._resubmit()
                for tell in self._when_ready:
                    tell()
                if self._loaded and not self._loaded.done():
                    self._loaded.set_result(info)
            case Logged():
                _log(report)
            case LoadFailed(message):
                self._give_up(message)

    def _say(self, text: str) -> None:
        try:
            self._on_progress(text)
        except Exception:
            logger.exception("progress was not heard: %s", text)

    def _deliver(self, request_id: str, event: GenerationEvent | Failure) -> None:
        if self._num_left[request_id]:
            # Its reader left, and whoever has the id now comes behind its end.
            self._num_left[request_id] -= isinstance(event, Failure | GenerationFinished)
            return
        del self._num_left[request_id]
        flight = self._flights.get(request_id)
        if flight is None:
            return  # it broke here
        if isinstance(event, Failure):
            del self._flights[request_id]
            flight.fail(event.to_error())
            return
        if isinstance(event, GenerationFinished):
            del self._flights[request_id]
            self._num_crashes_in_a_row = 0
        flight.deliver(event, self._now())

    def _fail_in_flight(self, error_class: type[ModelError], message: str) -> None:
        for flight in self._flights.values():
            flight.fail(error_class(message))
        self._flights.clear()

    def _give_up(self, message: str) -> None:
        self._state = EngineState.FAILED
        self._failure = message
        self._fail_in_flight(EngineDiedError, message)
        if self._loaded and not self._loaded.done():
            self._loaded.set_exception(ModelLoadError(message))  # whoever starts it says so
        else:
            logger.error("the engine can't be started again: %s", message)


def _log(record: Logged) -> None:
    about = {"turn_ids": list(record.turn_ids), "exception": record.exception}
    extra = {name: value for name, value in about.items() if value}
    logging.getLogger(record.logger).log(record.level, "%s", record.message, extra=extra)


def _with_seed(request: GenerationRequest) -> GenerationRequest:
    """The seed is drawn on this side, so that a reply goes on as it would have after a crash."""
    if request.params.seed is not None:
        return request
    return replace(request, params=replace(request.params, seed=secrets.randbits(63)))
