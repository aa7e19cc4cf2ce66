"""A generation as the event loop's side holds it: enough to go on after a crash without a gap.

Invariants:
    what was delivered is never delivered again, and what follows fits behind it
    a generation that is in flight at two crashes ends, since it may well be their cause
"""

import asyncio
from dataclasses import replace

from model.errors import ModelError, RepeatedCrashError
from model.messages import (
    GenerationDelta,
    GenerationEvent,
    GenerationFinished,
    GenerationRequest,
    GenerationStarted,
)

_MAX_CRASHES = 2


class Flight:
    """One generation: its request, what was delivered of it, and its reader's queue.

    The queue is bounded by the tokens of the reply. Times are the event loop's, in seconds.
    """

    def __init__(self, request: GenerationRequest, now_s: float) -> None:
        self.stream: asyncio.Queue[GenerationEvent | ModelError] = asyncio.Queue()
        self.is_cancelled = False
        self.is_submitted = False  # to the process that there is now
        self._request = request
        self._arrived_s = now_s
        # What it is to go on behind was sampled before, and is no less a part of the reply.
        self._reply_ids: list[int] = list(request.resumed_ids or ())
        self._started: GenerationStarted | None = None
        self._started_s: float | None = None
        self._first_token_s: float | None = None
        self._num_rows_lost = 0
        self._num_crashes = 0

    def request(self, now_s: float) -> GenerationRequest:
        """What to submit: the request; to an engine that takes over, with the tokens that were
        delivered and what is left of the time."""
        request, deadline_s = self._request, self._request.params.deadline_s
        if deadline_s is not None:
            left_s = max(0.0, deadline_s - (now_s - self._arrived_s))
            request = replace(request, params=replace(request.params, deadline_s=left_s))
        if not self._num_crashes:
            return request
        return replace(request, resumed_ids=tuple(self._reply_ids))

    def deliver(self, event: GenerationEvent, now_s: float) -> None:
        """Hand an event on to the reader."""
        match event:
            case GenerationStarted():
                if self._started is not None:
                    return  # the engine that took over says it again
                self._started, self._started_s = event, now_s
            case GenerationDelta():
                if event.token_ids and self._first_token_s is None:
                    self._first_token_s = now_s
                self._reply_ids += event.token_ids
            case GenerationFinished():
                event = self._completed(event, now_s)
        self.stream.put_nowait(event)

    def fail(self, error: ModelError) -> None:
        """End the stream with an error."""
        self.stream.put_nowait(error)

    def survives_crash(self) -> bool:
        """Note a crash of the engine; whether the generation goes on. If not, it has failed."""
        self._num_crashes += 1
        if self._num_crashes >= _MAX_CRASHES:
            self.fail(RepeatedCrashError("the engine's process ended twice under this generation"))
            return False
        if self._started is not None:
            # The prompt's missing tokens and every token of the reply but the last were computed;
            # those that it began with, by whoever sampled them.
            num_before = max(0, len(self._request.resumed_ids or ()) - 1)
            num_rows = max(0, len(self._reply_ids) - 1) - num_before
            self._num_rows_lost += self._started.claim.computed + num_rows
        return True

    def _completed(self, event: GenerationFinished, now_s: float) -> GenerationFinished:
        """Add what an engine that is gone did and what time it took."""
        if not self._num_crashes:
            return event
        arrived, started, first = self._arrived_s, self._started_s, self._first_token_s
        return replace(
            event,
            num_rows_computed=event.num_rows_computed + self._num_rows_lost,
            queue_s=(now_s if started is None else started) - arrived,
            first_token_s=None if first is None else first - arrived,
            total_s=now_s - arrived,
        )
