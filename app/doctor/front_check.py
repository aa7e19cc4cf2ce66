"""The front end's own: settings that go together, the page, the port."""

import errno
import http.client
import json
import socket
import ssl
from pathlib import Path

from app import serving
from app.doctor.data_check import knows_keys
from app.doctor.finding import Finding, Findings
from app.settings import Settings, SettingsError
from app.start_check import check_memory
from app.traces_settings import traces_exporters
from app.tracing import check_installed

_ANSWER_S = 3
_EVERYWHERE = {"0.0.0.0": "127.0.0.1", "::": "::1"}


def check_settings(settings: Settings) -> list[Finding]:
    """What the settings say together, and the files they name."""
    found = Findings("settings")
    found.ok("known, and they go together")
    if not settings.is_guarded_by_address and not knows_keys(settings):
        found.fail(
            f"host {settings.host!r} can be reached from other machines, and there is no API key",
            "`splice keys create --owner NAME`, or listen on 127.0.0.1, or say --allow-remote",
        )
    elif settings.allow_remote and not knows_keys(settings):
        found.warn(
            "whoever reaches the server may read and delete everything",
            "`splice keys create --owner NAME` ends that",
        )
    if settings.tls_cert is not None and settings.tls_key is not None:
        try:
            serving.tls_context(settings.tls_cert.expanduser(), settings.tls_key.expanduser())
            found.ok("certificate and key can be used")
        except OSError as exc:
            found.fail(f"tls_cert and tls_key can't be used: {exc}", "name a pair in PEM")
    with found.failing(SettingsError):
        check_memory(settings)
    with found.failing(SettingsError):
        if exporters := traces_exporters():
            check_installed(exporters)
            found.ok(f"traces go to {', '.join(exporters)}")
    for path in settings.public_instructions:
        with found.failing(OSError, UnicodeDecodeError, advice="--public-instructions"):
            path.expanduser().read_text(encoding="utf-8")
    return found.all


def check_page(page_dir: Path) -> list[Finding]:
    """Whether the page is built."""
    page = Findings("page")
    if (page_dir / "index.html").exists():
        page.ok("built")
    else:
        page.warn("not built, so the server shows none", "`make page`, or install a wheel")
    return page.all


def check_port(settings: Settings) -> list[Finding]:
    """Whether the port can be listened on, or who does."""
    port = Findings("port")
    if settings.port == 0:
        port.ok("any that is free")
        return port.all
    name = f"{settings.host} port {settings.port}"
    try:
        with _reserved(settings.host, settings.port):
            port.ok(f"{name} is free")
    except OSError as exc:
        if exc.errno != errno.EADDRINUSE:
            port.fail(f"can't listen on {name}: {exc.strerror or exc}", "--host, --port")
        elif state := _splice_at(settings):
            port.fail(
                f"Splice listens on {name} already, and is {state}",
                "use that one, end it, or choose another --port",
            )
        else:
            port.fail(f"another program listens on {name}", "end it, or choose another --port")
    return port.all


def _reserved(host: str, port: int) -> socket.socket:
    """A socket on the port that doesn't listen. Raises OSError."""
    family, kind, protocol, _, address = socket.getaddrinfo(
        host.strip("[]"), port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )[0]
    sock = socket.socket(family, kind, protocol)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(address)
    except OSError:
        sock.close()
        raise
    return sock


def _splice_at(settings: Settings) -> str:
    """How the Splice that listens there is; empty when it is none."""
    host = settings.host.strip("[]")
    where = _EVERYWHERE.get(host, host), settings.port
    connection: http.client.HTTPConnection
    if settings.tls_cert is None:
        connection = http.client.HTTPConnection(*where, timeout=_ANSWER_S)
    else:
        anyone = ssl._create_unverified_context()
        connection = http.client.HTTPSConnection(*where, timeout=_ANSWER_S, context=anyone)
    try:
        connection.request("GET", "/readyz")
        answer = connection.getresponse()
        body = json.loads(answer.read())
        return str(body["status"]) if answer.getheader("Server") == "splice" else ""
    except (OSError, http.client.HTTPException, ValueError, KeyError, TypeError):
        return ""
    finally:
        connection.close()
