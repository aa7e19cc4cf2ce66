"""Stands in for `python -m model.worker FD` where no model is needed. What it does is told by the
model's name and by each request's id. Starts in a fraction of a second, having no torch."""

import os
import signal
import socket
import sys
import time
from pathlib import Path

from model.config import SamplingParams
from model.errors import SequenceFailedError
from model.messages import (
    ClaimReport,
    EngineInfo,
    FinishReason,
    GenerationDelta,
    GenerationFinished,
    GenerationRequest,
    GenerationStarted,
)
from model.wire import (
    HEADER,
    Answer,
    Cancel,
    Events,
    Failure,
    LoadFailed,
    Logged,
    Progress,
    Query,
    Ready,
    Start,
    Submit,
    decode,
    encode,
)

CRASH_CODE = 7


def install(monkeypatch, folder: Path) -> None:
    """Let every engine's process be a stub."""
    program = folder / "stub-python"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m {__name__} "$@"\n')
    program.chmod(0o755)
    monkeypatch.setattr("model.process.sys.executable", str(program))


class StubWorker:
    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._file = sock.makefile("rb")

    def run(self) -> None:
        start = self._receive()
        assert isinstance(start, Start)
        self._send(Progress("loading"))
        with (start.config.models_dir / "lives").open("a") as lives:
            lives.write("x")
        num_lives = (start.config.models_dir / "lives").stat().st_size
        self._load(start.config.model, is_first=num_lives == 1)
        while (command := self._receive()) is not None:
            self._handle(command)

    def _load(self, model: str, *, is_first: bool) -> None:
        if model == "refused" or (model == "moved" and not is_first):
            self._send(LoadFailed("no such model"))
            sys.exit(0)
        if model == "never" or (model == "once" and not is_first):
            os._exit(CRASH_CODE)
        if model == "torn":
            self._sock.sendall(encode(Progress("more"))[:-3])
            os._exit(CRASH_CODE)
        if model == "loading":
            self._receive()
            sys.exit(0)
        if model == "talkative":
            self._send(Logged(30, "model.worker", "100% broken", ("resp_1",), "Traceback"))
        self._send(Ready(make_info(model)))
        if model == "deaf":
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            while True:
                time.sleep(60)

    def _handle(self, command) -> None:
        match command:
            case Submit():
                self._generate(command.unpack())
            case Cancel(request_id):
                self._say(request_id, GenerationDelta(token_ids=(), text="…"))
                self._say(request_id, finished(FinishReason.CANCELLED, (1,)))
            case Query(_, "evict", "die"):
                os._exit(CRASH_CODE)
            case Query(_, "evict", "never"):
                return
            case Query(query_id, "conversations"):
                self._send(Answer(query_id, frozenset()))
            case Query(query_id, "tables" | "residency"):
                self._send(Answer(query_id, ()))
            case Query(query_id, _, _):
                self._send(Answer(query_id, 3))

    def _generate(self, request: GenerationRequest) -> None:
        name = request.request_id
        num_tokens = len(request.token_ids)
        claim = ClaimReport(num_prompt_tokens=num_tokens, computed=num_tokens)
        self._say(name, GenerationStarted(claim=claim))
        if name.startswith("fail"):
            self._say(name, Failure.of(SequenceFailedError("broken")))
            return
        if name.startswith("echo") or (name.startswith("once") and request.resumed_ids is not None):
            for token_id in request.token_ids[len(request.resumed_ids or ()) : 50]:
                self._say(name, GenerationDelta(token_ids=(token_id,), text="x"))
            self._say(name, finished(FinishReason.STOP, request.token_ids))
            return
        self._say(name, GenerationDelta(token_ids=tuple(request.token_ids[:1]), text="x"))
        if name.startswith(("die", "once")):
            os.kill(os.getpid(), signal.SIGKILL)

    def _say(self, request_id: str, event) -> None:
        self._send(Events(((request_id, event),)))

    def _send(self, report) -> None:
        self._sock.sendall(encode(report))

    def _receive(self):
        header = self._file.read(HEADER.size)
        if len(header) < HEADER.size:
            return None
        return decode(self._file.read(*HEADER.unpack(header)))


def finished(reason: FinishReason, token_ids) -> GenerationFinished:
    return GenerationFinished(
        reason=reason,
        token_ids=tuple(token_ids),
        text="x" * len(token_ids),
        num_rows_computed=len(token_ids),
    )


def make_info(model: str) -> EngineInfo:
    return EngineInfo(
        model_id=model,
        tokenizer_path="",
        fingerprint="",
        device="cpu",
        dtype="float32",
        kv_dtype="float32",
        mode="exact",
        attention="reference",
        weights_bytes=1,
        cache_bytes=1,
        num_blocks=1,
        block_size=1,
        block_bytes=1,
        max_context_tokens=1,
        vocab_size=1,
        eos_token_ids=(),
        sampling=SamplingParams(),
    )


if __name__ == "__main__":
    with socket.socket(fileno=int(sys.argv[-1])) as end:
        StubWorker(end).run()
