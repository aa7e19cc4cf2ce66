"""An engine process without a model: every reply is the numbers from 0 on, at the pace of one a
step. A lost or repeated token shows in the text itself. The model's name is `scripted-` and the
milliseconds of a step; a reply is as long as `max_output_tokens` says, and a third of them might
have gone on.

Claims are honest and poor: nothing is ever reused.
"""

import select
import socket
import sys
import time
from pathlib import Path

from model.config import SamplingParams
from model.messages import (
    ClaimReport,
    EngineInfo,
    EngineStats,
    FinishReason,
    GenerationDelta,
    GenerationFinished,
    GenerationRequest,
    GenerationStarted,
    Histogram,
    MissReason,
)
from model.wire import HEADER, Answer, Cancel, Events, Query, Ready, Start, Submit, decode, encode

MODEL = "scripted-"
TOKENIZER = "tokenizer"  # below the folder of models
FIRST_ID = 1000
DEFAULT_TOKENS = 20


def text_of(num_tokens: int) -> str:
    """The only reply of so many tokens."""
    return "".join(f"{number} " for number in range(num_tokens))


class Generation:
    """One reply while it grows."""

    def __init__(self, request: GenerationRequest, max_context_tokens: int) -> None:
        self.request_id = request.request_id
        self.num_prompt = len(request.token_ids)
        self.num_done = len(request.resumed_ids or ())
        limit = request.params.max_output_tokens
        most = max_context_tokens - self.num_prompt
        self.limit = min(most, DEFAULT_TOKENS if limit is None else limit)
        self.is_cancelled = False

    def step(self):
        if self.is_cancelled or self.num_done >= self.limit:
            return self._finished()
        number = self.num_done
        self.num_done += 1
        return GenerationDelta(token_ids=(FIRST_ID + number,), text=f"{number} ")

    def _finished(self) -> GenerationFinished:
        reason = FinishReason.STOP if self.limit % 3 else FinishReason.LENGTH
        return GenerationFinished(
            reason=FinishReason.CANCELLED if self.is_cancelled else reason,
            token_ids=tuple(range(FIRST_ID, FIRST_ID + self.num_done)),
            text=text_of(self.num_done),
            num_rows_computed=self.num_prompt + max(self.num_done - 1, 0),
        )


class ScriptedWorker:
    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._generations: dict[str, Generation] = {}
        self._max_context_tokens = 0

    def run(self) -> None:
        start = self._receive()
        assert isinstance(start, Start)
        step_s = float(start.config.model.removeprefix(MODEL)) / 1000
        self._max_context_tokens = start.config.max_context_tokens or 1_000_000
        tokenizer = start.config.models_dir / TOKENIZER
        self._send(Ready(make_info(tokenizer, self._max_context_tokens)))
        due = time.monotonic()
        while True:
            wait_s = max(0.0, due - time.monotonic()) if self._generations else None
            if select.select([self._sock], [], [], wait_s)[0]:
                if not self._handle(self._receive()):
                    return
            elif self._generations:
                self._step()
            if time.monotonic() >= due:
                due = time.monotonic() + step_s

    def _handle(self, command) -> bool:
        match command:
            case None:
                return False
            case Submit():
                self._begin(command.unpack())
            case Cancel(request_id):
                if request_id in self._generations:
                    self._generations[request_id].is_cancelled = True
            case Query(query_id, "conversations"):
                self._send(Answer(query_id, frozenset()))
            case Query(query_id, "tables" | "residency"):
                self._send(Answer(query_id, ()))
            case Query(query_id, "stats", _):
                self._send(Answer(query_id, STATS))
            case Query(query_id, _, _):
                self._send(Answer(query_id, 0))
        return True

    def _begin(self, request: GenerationRequest) -> None:
        generation = self._generations[request.request_id] = Generation(
            request, self._max_context_tokens
        )
        claim = ClaimReport(
            num_prompt_tokens=generation.num_prompt,
            computed=generation.num_prompt,
            reason=MissReason.EVICTED if request.num_known_tokens else MissReason.NEW,
        )
        self._send(Events(((request.request_id, GenerationStarted(claim=claim)),)))

    def _step(self) -> None:
        events = [(name, generation.step()) for name, generation in self._generations.items()]
        for name, event in events:
            if isinstance(event, GenerationFinished):
                del self._generations[name]
        self._send(Events(tuple(events)))

    def _send(self, report) -> None:
        try:
            self._sock.sendall(encode(report))
        except BrokenPipeError:
            sys.exit()  # the server was killed

    def _receive(self):
        header = self._sock.recv(HEADER.size, socket.MSG_WAITALL)
        if len(header) < HEADER.size:
            return None
        (length,) = HEADER.unpack(header)
        return decode(self._sock.recv(length, socket.MSG_WAITALL))


def make_info(tokenizer: Path, max_context_tokens: int) -> EngineInfo:
    return EngineInfo(
        model_id="scripted",
        tokenizer_path=str(tokenizer),
        fingerprint="scripted",
        device="cpu",
        dtype="float32",
        kv_dtype="float32",
        mode="exact",
        attention="reference",
        weights_bytes=1,
        cache_bytes=1,
        num_blocks=1,
        block_size=16,
        block_bytes=1,
        max_context_tokens=max_context_tokens,
        vocab_size=1_000_000,
        eos_token_ids=(),
        sampling=SamplingParams(),
    )


_NO_TIMES = Histogram(bounds=(float("inf"),), counts=(0,), total=0.0)
STATS = EngineStats(
    num_blocks=1,
    blocks_running=0,
    blocks_parked=0,
    blocks_cached=0,
    blocks_empty=1,
    num_running=0,
    num_waiting=0,
    num_parked_tables=0,
    rows_computed_total=0,
    tokens_generated_total=0,
    tokens_by_source=(),
    misses_by_reason=(),
    finished_by_reason=(),
    preemptions_total=0,
    evicted_blocks_total=0,
    books_failures_total=0,
    steps_total=0,
    first_token_s=_NO_TIMES,
    inter_token_s=_NO_TIMES,
    queue_s=_NO_TIMES,
    restore_s=_NO_TIMES,
)


if __name__ == "__main__":
    with socket.socket(fileno=int(sys.argv[-1])) as end:
        ScriptedWorker(end).run()
