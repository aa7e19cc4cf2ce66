"""Where the spans of turns go: nowhere, unless OpenTelemetry's own variables say where.

OpenTelemetry is an extra (`pip install 'splice-server[otel]'`); nothing here needs it before it is
asked for.
"""

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from importlib.util import find_spec

from app.settings import SettingsError
from sessions.types import Turn


class Tracing:
    """What the front end tells of requests and turns. This one keeps nothing of it."""

    def arriving(self, headers: Mapping[str, str]) -> AbstractContextManager[None]:
        """Let turns that begin in the block be part of the trace that the headers name."""
        return nullcontext()

    def ended(self, turn: Turn) -> None:
        """A turn is over; called in the context that it began in."""

    def close(self) -> None:
        """Send what was not sent yet; may wait for it for some seconds."""


NOT_TRACED = Tracing()


def make_tracing(exporters: tuple[str, ...], version: str) -> Tracing:
    """Tracing to these exporters (`app.traces_settings`); the empty one for none."""
    if not exporters:
        return NOT_TRACED
    check_installed(exporters)
    from app.open_telemetry import open_telemetry

    return open_telemetry(exporters, version)


def check_installed(exporters: tuple[str, ...]) -> None:
    """Raise SettingsError when spans are wanted and OpenTelemetry is not there."""
    needed = ["opentelemetry.sdk"] if exporters else []
    if "otlp" in exporters:
        needed.append("opentelemetry.exporter.otlp.proto.http")
    if not all(map(_is_there, needed)):
        raise SettingsError(
            "OTEL_… variables ask for traces, but OpenTelemetry is not installed: "
            "`pip install 'splice-server[otel]'`, or unset them (OTEL_SDK_DISABLED=true)"
        )


def _is_there(package: str) -> bool:
    try:
        return find_spec(package) is not None
    except ModuleNotFoundError:  # what it lies in is not there
        return False
