"""Where spans go: OpenTelemetry's own variables, which are no settings of Splice's."""

import os
from collections.abc import Mapping

from app.settings import SettingsError

# OpenTelemetry's own variables; the narrower one goes first.
_OTLP_PLACES = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
_OTLP_PROTOCOLS = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")


def traces_exporters(environ: Mapping[str, str] | None = None) -> tuple[str, ...]:
    """Where OpenTelemetry's variables want spans to go: `otlp`, `console`, or nowhere.

    Nowhere where none is set. Raises SettingsError for what this server can't do.
    """
    environ = os.environ if environ is None else environ
    if environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return ()
    has_place = any(map(environ.get, _OTLP_PLACES))
    listed = environ.get("OTEL_TRACES_EXPORTER") or ("otlp" if has_place else "none")
    names = tuple(name.strip() for name in listed.split(",") if name.strip() not in ("", "none"))
    if unknown := [name for name in names if name not in ("otlp", "console")]:
        raise SettingsError(
            f"OTEL_TRACES_EXPORTER = {listed!r}: there is no exporter {unknown[0]!r} here, only "
            "otlp, console and none"
        )
    protocol = next(filter(None, map(environ.get, _OTLP_PROTOCOLS)), "http/protobuf")
    if "otlp" in names and protocol != "http/protobuf":
        raise SettingsError(f"traces are sent by http/protobuf, not by OTLP's {protocol!r}")
    return names
