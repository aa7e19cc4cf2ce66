"""Whether there is tracing, and where to."""

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from typer.testing import CliRunner

from app import tracing
from app.cli import app
from app.open_telemetry import OpenTelemetry, open_telemetry
from app.settings import SettingsError
from app.traces_settings import traces_exporters
from app.tracing import NOT_TRACED, make_tracing
from sessions.types import Timing
from tests.support.turns import make_turn

ENDPOINT = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:4318"}


@pytest.mark.parametrize(
    ("environ", "wanted"),
    [
        ({}, ()),
        ({"OTEL_SERVICE_NAME": "chat"}, ()),
        (ENDPOINT, ("otlp",)),
        ({"OTEL_TRACES_EXPORTER": "otlp, console"}, ("otlp", "console")),
        ({"OTEL_TRACES_EXPORTER": "none", **ENDPOINT}, ()),
        ({"OTEL_SDK_DISABLED": "true", **ENDPOINT}, ()),
    ],
)
def test_it_is_off_unless_its_variables_name_a_place(environ, wanted):
    assert traces_exporters(environ) == wanted


@pytest.mark.parametrize(
    "environ",
    [
        {"OTEL_TRACES_EXPORTER": "zipkin"},
        {"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc", **ENDPOINT},
    ],
)
def test_what_cannot_be_done_is_refused(environ):
    with pytest.raises(SettingsError, match=r"zipkin|grpc"):
        traces_exporters(environ)


def test_without_variables_the_package_is_not_even_looked_for(monkeypatch):
    monkeypatch.setattr(tracing, "find_spec", lambda name: pytest.fail(name))

    assert make_tracing((), "1") is NOT_TRACED


def test_without_the_package_it_is_refused_in_a_sentence(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(tracing, "find_spec", lambda name: None)

    result = CliRunner().invoke(app, ["serve", "--port", "0"], env=ENDPOINT)

    assert result.exit_code == 2
    assert "pip install 'splice-server[otel]'" in result.stderr
    assert not list(tmp_path.iterdir())


def test_a_package_whose_parent_is_missing_is_missing(monkeypatch):
    def find_spec(name):
        raise ModuleNotFoundError(name)

    monkeypatch.setattr(tracing, "find_spec", find_spec)
    with pytest.raises(SettingsError, match="not installed"):
        make_tracing(("console",), "1")


def test_the_service_is_splice_unless_the_variables_name_it(monkeypatch):
    traced = open_telemetry((), "1")
    monkeypatch.setenv("OTEL_SERVICE_NAME", "chat")
    named = open_telemetry((), "1")

    services = [t._provider.resource.attributes["service.name"] for t in (traced, named)]
    assert services == ["splice", "chat"]


def test_each_exporter_that_is_wanted_is_there(monkeypatch):
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:9")

    made = make_tracing(("otlp", "console"), "1")

    assert isinstance(made, OpenTelemetry)
    assert len(made._provider._active_span_processor._span_processors) == 2
    made.close()


def spans_of(timing):
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    traced = OpenTelemetry(provider, "1")
    traced.ended(make_turn(timing=timing))
    traced.close()
    *phases, turn = exporter.get_finished_spans()
    return {
        span.name: tuple(
            round((time - turn.start_time) / 1e9, 3) for time in (span.start_time, span.end_time)
        )
        for span in phases
    }


def test_what_came_back_from_other_tiers_has_a_span_between_queue_and_prefill():
    timing = Timing(queue_s=0.3, first_token_s=0.5, total_s=1.0, tokens_per_s=None, restore_s=0.2)

    assert spans_of(timing) == {
        "queue": (0.0, 0.1),
        "restore": (0.1, 0.3),
        "prefill": (0.3, 0.5),
        "decode": (0.5, 1.0),
    }


def test_what_came_back_after_a_reply_was_set_back_is_in_no_negative_time():
    timing = Timing(queue_s=0.3, first_token_s=0.5, total_s=1.0, tokens_per_s=None, restore_s=0.4)

    assert spans_of(timing)["queue"] == (0.0, 0.0)
    assert spans_of(timing)["restore"] == (0.0, 0.3)


def test_a_turn_without_a_token_has_no_decode():
    timing = Timing(queue_s=0.1, first_token_s=None, total_s=0.4, tokens_per_s=None)

    assert spans_of(timing) == {"queue": (0.0, 0.1), "prefill": (0.1, 0.4)}
