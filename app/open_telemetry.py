"""A span for each turn, with children for what it waited for: queue, restore, prefill, decode.

The spans are made when the turn has ended, of the times that the engine measured, so nothing is
timed twice and a turn that goes on in another process is still one span. Its parent is whatever
trace the request named (W3C `traceparent`). Attributes are ids, counts and codes, after
OpenTelemetry's conventions for generative AI where those have a name; never what people wrote.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime

from opentelemetry import context
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, ConsoleSpanExporter, SpanExporter
from opentelemetry.trace import Span, SpanKind, Status, StatusCode, set_span_in_context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from opentelemetry.util.types import AttributeValue

from app.tracing import Tracing
from sessions.types import Timing, Turn, TurnStatus

_NANOSECONDS = 1_000_000_000
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class OpenTelemetry(Tracing):
    """Makes spans of turns and hands them to a provider, which it owns."""

    def __init__(self, provider: TracerProvider, version: str) -> None:
        self._provider = provider
        self._tracer = provider.get_tracer("splice", version)
        self._propagator = TraceContextTextMapPropagator()

    @contextmanager
    def arriving(self, headers: Mapping[str, str]) -> Iterator[None]:
        """Continue the trace that the headers name; without one, turns begin their own."""
        named = {name.lower(): value for name, value in headers.items()}
        token = context.attach(self._propagator.extract(named, context.Context()))
        try:
            yield
        finally:
            context.detach(token)

    def ended(self, turn: Turn) -> None:
        """Make the turn's spans."""
        began = _nanoseconds(turn.created_at)
        finished = _nanoseconds(turn.finished_at or turn.created_at)
        phases = [] if turn.timing is None else list(_phases(turn.timing))
        ends = [began + int(end * _NANOSECONDS) for _, _, end in phases]
        span = self._tracer.start_span(
            "turn", kind=SpanKind.SERVER, attributes=dict(_attributes(turn)), start_time=began
        )
        for name, start, end in phases:
            self._child(span, name, began, start, end)
        if turn.error is not None:
            span.set_status(Status(StatusCode.ERROR, turn.error.code))
        span.end(max(finished, *ends) if ends else finished)

    def close(self) -> None:
        """Send what was not sent yet."""
        self._provider.shutdown()

    def _child(self, turn: Span, name: str, began: int, start: float, end: float) -> None:
        place = set_span_in_context(turn, context.Context())
        at = began + int(start * _NANOSECONDS)
        span = self._tracer.start_span(name, context=place, start_time=at)
        span.end(began + int(end * _NANOSECONDS))


def open_telemetry(exporters: tuple[str, ...], version: str) -> OpenTelemetry:
    """Tracing to `otlp`, `console` or both. The exporters read their own variables."""
    own = Resource({"service.name": "splice", "service.version": version})
    provider = TracerProvider(resource=own.merge(OTELResourceDetector().detect()))
    for name in exporters:
        provider.add_span_processor(BatchSpanProcessor(_exporter(name)))
    return OpenTelemetry(provider, version)


def _exporter(name: str) -> SpanExporter:
    if name == "console":
        return ConsoleSpanExporter()
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

    return OTLPSpanExporter()


def _phases(timing: Timing) -> Iterator[tuple[str, float, float]]:
    """What a turn did, with beginning and end in seconds from its submission."""
    ready = timing.queue_s
    # A reply that was set back may have waited for more of it later.
    asked = max(0.0, ready - timing.restore_s)
    yield "queue", 0.0, asked
    if timing.restore_s:
        yield "restore", asked, ready
    first = timing.total_s if timing.first_token_s is None else timing.first_token_s
    yield "prefill", min(ready, first), first
    if timing.first_token_s is not None:
        yield "decode", first, timing.total_s


def _attributes(turn: Turn) -> Iterator[tuple[str, AttributeValue]]:
    yield "gen_ai.operation.name", "chat"
    yield "gen_ai.provider.name", "splice"
    yield "gen_ai.request.model", turn.model
    yield "gen_ai.conversation.id", turn.session_id
    yield "gen_ai.response.id", turn.id
    yield "gen_ai.response.finish_reasons", (_finish_reason(turn),)
    yield "splice.turn.status", str(turn.status)
    if turn.error is not None:
        yield "error.type", turn.error.code
    if turn.usage is not None:
        claim = turn.usage.claim
        yield "gen_ai.usage.input_tokens", turn.usage.input_tokens
        yield "gen_ai.usage.output_tokens", turn.usage.output_tokens
        yield "splice.rows_computed", turn.usage.num_rows_computed
        yield "splice.kv.device", claim.from_device
        yield "splice.kv.cpu", claim.from_cpu
        yield "splice.kv.disk", claim.from_disk
        yield "splice.kv.computed", claim.computed
        if claim.reason is not None:
            yield "splice.kv.reason", str(claim.reason)


def _finish_reason(turn: Turn) -> str:
    if turn.status is TurnStatus.COMPLETED:
        return "stop"
    return turn.incomplete_reason or str(turn.status)


def _nanoseconds(moment: datetime) -> int:
    since = moment - _EPOCH
    return ((since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds) * 1_000
