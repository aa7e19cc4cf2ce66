"""A worker run in a thread of the test's, its front end's end in hand, and a device that breaks."""

import queue
import socket
import threading
from contextlib import contextmanager
from itertools import count
from types import SimpleNamespace

from model import worker
from model.cache_manager import CacheManager
from model.config import EngineConfig, SamplingParams
from model.core import EngineCore
from model.grammar import Grammar
from model.messages import (
    GenerationFinished,
    GenerationRequest,
)
from model.ports import CoreLimits
from model.prefix_index import BlockHasher
from model.wire import (
    HEADER,
    Answer,
    Events,
    Failure,
    Query,
    Start,
    Submit,
    decode,
    encode,
)
from model.worker import Connection, Worker
from tests.support.shadow_runner import ShadowRunner
from tests.support.tiny_model import LetterTokenizer

END = Start(EngineConfig())  # no command once the engine runs, so the loop breaks


class BreakableRunner(ShadowRunner):
    """Raises in as many of the next steps as it is told to; a gate can hold a step up."""

    def __init__(self) -> None:
        super().__init__(4, 5)
        self.num_failures = 0
        self.gate = threading.Event()
        self.gate.set()
        self.entered = threading.Event()

    def forward(self, rows, copies):
        self.entered.set()
        assert self.gate.wait(10)
        if self.num_failures:
            self.num_failures -= 1
            raise RuntimeError("the device is on fire")
        return super().forward(rows, copies)


class Inbox(queue.SimpleQueue):
    """Tells how much has arrived."""

    def __init__(self) -> None:
        self.arrivals = threading.Semaphore(0)

    def put(self, item) -> None:
        super().put(item)
        self.arrivals.release()

    def wait_for(self, num_commands: int) -> None:
        for _ in range(num_commands):
            assert self.arrivals.acquire(timeout=10)


class Peer:
    """The front end's end of the socket."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.sock.settimeout(10)
        self._file = sock.makefile("rb")

    def send(self, *commands) -> None:
        self.sock.sendall(b"".join(map(encode, commands)))

    def receive(self):
        (length,) = HEADER.unpack(self._file.read(HEADER.size))
        return decode(self._file.read(length))

    def ask(self, name: str, argument: str | Grammar | None = None):
        self.send(Query(99, name, argument))
        answer = self.receive()
        assert isinstance(answer, Answer)
        assert answer.query_id == 99
        return answer.value

    def events_until_ended(self, *request_ids: str) -> dict[str, list]:
        events: dict[str, list] = {name: [] for name in request_ids}
        is_open = set(request_ids)
        while is_open:
            report = self.receive()
            assert isinstance(report, Events)
            for request_id, event in report.events:
                events[request_id].append(event)
                if isinstance(event, GenerationFinished | Failure):
                    is_open.remove(request_id)
        return events

    def close(self) -> None:
        self._file.close()
        self.sock.close()


def make_core(
    runner, *, max_running=64, max_waiting=1024, tokenizer=None, setup=None
) -> EngineCore:
    ticks = count()
    return EngineCore(
        EngineConfig(check_books=True, max_running=max_running, max_waiting=max_waiting),
        CoreLimits(max_context_tokens=120, vocab_size=5, eos_token_ids=frozenset(), block_bytes=1),
        CacheManager(31, BlockHasher("shadow", "none", 4), setup=setup),
        runner,
        tokenizer or LetterTokenizer(),
        clock=lambda: float(next(ticks)),
    )


@contextmanager
def working(core, monkeypatch):
    """A worker in a thread; the peer, and what its thread died of."""
    exits: list[int] = []
    exited = threading.Event()
    monkeypatch.setattr(worker.os, "_exit", lambda code: (exits.append(code), exited.set()))
    ours, theirs = socket.socketpair()
    connection, deaths = Connection(theirs), []
    inbox = connection.inbox = Inbox()

    def run() -> None:
        try:
            Worker(core, connection).run()
        except Exception as exc:  # noqa: BLE001 (the test looks at it)
            deaths.append(exc)

    connection.start_receiving()
    thread = threading.Thread(target=run)
    thread.start()
    peer = Peer(ours)
    try:
        yield SimpleNamespace(
            peer=peer, inbox=inbox, deaths=deaths, thread=thread, exits=exits, exited=exited
        )
    finally:
        if thread.is_alive():
            peer.send(END)
        thread.join(10)
        peer.close()
        assert exited.wait(10)
        connection._file.close()
        theirs.close()


def submit(name, token_ids=(0, 1, 2), *, num=4, conversation=None, **fields) -> Submit:
    return Submit.of(
        GenerationRequest(
            request_id=name,
            token_ids=tuple(token_ids),
            params=SamplingParams(temperature=0.0, max_output_tokens=num, **fields),
            conversation_id=conversation or name,
        )
    )
