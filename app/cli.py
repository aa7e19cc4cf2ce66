"""The command line: `splice serve`, `chat`, `doctor`, `keys`, `kv`, `models`, `db`,
`settings`, `check-config`.

Whatever an operator can cause ends in one sentence and an exit code (`app/refusals.py`). What is
imported slowly (torch, transformers, the database) is imported by the command that needs it.
"""

import asyncio
import logging
import socket
from collections.abc import Callable
from contextlib import closing
from dataclasses import asdict
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from app.data_dir import announce, open_data_dir
from app.database_place import check_place, check_there, is_there, place_of
from app.database_url import without_password
from app.doctor.command import doctor
from app.key_commands import has_keys, keys
from app.kv_commands import kv
from app.logs import configure_logging
from app.refusals import RefusalError
from app.setting_flags import with_settings
from app.settings import Settings, SettingsError, kv_key, variable
from app.settings_docs import default_of, meaning_of
from app.terminal.command import chat
from app.traces_settings import traces_exporters
from app.tracing import Tracing, make_tracing

if TYPE_CHECKING:
    import ssl

    from aiohttp import web

    from app.application import StartHooks
    from app.config import AppConfig
    from app.serving import Serving
    from model.messages import EngineInfo

logger = logging.getLogger(__name__)

app = typer.Typer(
    help="A chat server whose conversations stay in memory.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
models = typer.Typer(help="Models on this machine.", no_args_is_help=True)
database = typer.Typer(help="The database's schema.", no_args_is_help=True)
app.add_typer(models, name="models")
app.add_typer(database, name="db")
app.add_typer(keys, name="keys")
app.add_typer(kv, name="kv")
app.command("chat")(chat)
app.command("doctor")(doctor)


def main() -> None:
    """Run the command that the arguments name."""
    app()


@app.callback(invoke_without_command=True)
def _top(
    show_version: Annotated[
        bool, typer.Option("--version", help="Show the version and end.", is_eager=True)
    ] = False,
) -> None:
    if show_version:
        Console().print(_version(), highlight=False)
        raise typer.Exit


# ---------------------------------------------------------------------------- serve


def _serve(settings: Settings) -> None:
    """Serve the page, REST and the websocket."""
    tracing = make_tracing(traces_exporters(), _version())
    configure_logging(settings.log_level, settings.log_format)
    from app.start_check import check_start

    with closing(tracing), open_data_dir(settings.data_dir) as runner_id:
        check_start(settings)
        _check_reach(settings)
        _listen_and_serve(settings, runner_id, tracing)


def _check_reach(settings: Settings) -> None:
    """Refuse an address that other machines reach while nobody needs a key."""
    if settings.is_guarded_by_address or has_keys(settings):
        return
    raise SettingsError(
        f"host {settings.host!r} can be reached from other machines (by itself, or through one of "
        "trusted_proxies), and while there are no API keys whoever reaches it may read and delete "
        "everything: make a key (`splice keys create --owner NAME`), listen on 127.0.0.1, or say "
        "--allow-remote if the network itself is trusted"
    )


def _listen_and_serve(settings: Settings, runner_id: str, tracing: Tracing) -> None:
    from app import serving
    from app.application import StartHooks, build_application

    with _listening(settings) as sock:
        config = _app_config(settings, runner_id)
        tls = _tls(settings)
        url = serving.url_of(sock, is_secure=tls is not None) + settings.base_path
        announce(settings.data_dir, url)

        def build(hooks: StartHooks) -> "web.Application":
            engine_config = settings.engine_config(kv_key())
            return build_application(config, engine_config, hooks=hooks, tracing=tracing)

        _serve_on(settings, build, serving.Serving(sock, tls), url)


def _tls(settings: Settings) -> "ssl.SSLContext | None":
    from app import serving

    if settings.tls_cert is None or settings.tls_key is None:
        return None
    try:
        return serving.tls_context(settings.tls_cert.expanduser(), settings.tls_key.expanduser())
    except OSError as exc:  # an unusable certificate is one, too
        raise SettingsError(f"tls_cert and tls_key can't be used: {exc}") from exc


def _serve_on(
    settings: Settings,
    build: Callable[["StartHooks"], "web.Application"],
    server: "Serving",
    url: str,
) -> None:
    from app.application import StartHooks, drain, hurry
    from app.serving import settle

    console = Console(stderr=True)
    failures: list[str] = []

    is_for_machines = settings.log_format == "json"  # then every line is JSON

    def say(message: str) -> None:
        if is_for_machines:
            logger.info(message)
        else:
            console.print(f"[dim]·[/dim] {escape(message)}", highlight=False)

    def ready(info: "EngineInfo") -> None:
        settle()
        if is_for_machines:
            logger.info("ready", extra={"url": url, **asdict(info)})
        else:
            console.print(_banner(url, info, settings))

    def failed(message: str) -> None:
        failures.append(message)
        server.stop()

    async def stop(application: "web.Application") -> None:
        if not failures:  # a start that failed has no replies to wait for
            say(
                f"stopping: running replies get {settings.drain_timeout_s:g} s to end; "
                "Ctrl-C again cuts them off"
            )
        await drain(application)

    application = build(StartHooks(on_progress=say, on_ready=ready, on_failed=failed))
    say(f"listening on {url}; loading the model")
    settle()
    asyncio.run(server.run(application, stop, hurry))
    if failures:
        raise RefusalError(failures[0])
    say("stopped")


def _app_config(settings: Settings, runner_id: str) -> "AppConfig":
    from app.config import AppConfig, SamplingDefaults

    page = Path(__file__).parent / "page"
    return AppConfig(
        database_url=settings.effective_database_url,
        runner_id=runner_id,
        clock=lambda: datetime.now(UTC),
        allowed_origins=settings.allowed_origins,
        version=_version(),
        base_path=settings.base_path,
        trusted_proxies=settings.trusted_proxies,
        allowed_hosts=settings.allowed_hosts,
        max_body_bytes=int(settings.max_body_bytes),
        outbox_size=settings.outbox_size,
        max_streams=settings.max_streams,
        max_subscriptions=settings.max_subscriptions,
        max_frames_per_s=settings.max_frames_per_s,
        max_sockets=settings.max_sockets,
        owner_max_sockets=settings.owner_max_sockets,
        max_turns=settings.max_running + settings.max_waiting,
        owner_max_turns=settings.owner_max_turns,
        owner_requests_per_minute=settings.owner_requests_per_minute,
        send_timeout_s=settings.send_timeout_s,
        heartbeat_s=settings.heartbeat_s,
        sse_keepalive_s=settings.sse_keepalive_s,
        drain_timeout_s=settings.drain_timeout_s,
        delete_grace_s=settings.delete_grace_s,
        store_timeout_s=settings.store_timeout_s,
        warm_up_s=settings.warm_up_s,
        auto_titles=settings.auto_titles,
        model_aliases=("default", *settings.model_alias),
        page_dir=page if (page / "index.html").exists() else None,
        public_instructions=frozenset(map(_read_public, settings.public_instructions)),
        sampling=SamplingDefaults(
            temperature=settings.default_temperature,
            top_p=settings.default_top_p,
            max_output_tokens=settings.default_max_output_tokens,
            deadline_s=settings.max_turn_s,
        ),
    )


def _read_public(path: Path) -> str:
    """A system prompt as requests carry it: editors end a file with a newline, requests don't."""
    try:
        return path.expanduser().read_text(encoding="utf-8").rstrip("\n")
    except (OSError, UnicodeDecodeError) as exc:
        raise RefusalError(f"the public system prompt {path} can't be read: {exc}") from exc


def _listening(settings: Settings) -> socket.socket:
    from app import serving

    try:
        return serving.bind(settings.host, settings.port)
    except OSError as exc:
        raise RefusalError(
            f"can't listen on {settings.host} port {settings.port}: {exc.strerror}; "
            "end what listens there, or choose another with --port"
        ) from exc


def _banner(url: str, info: "EngineInfo", settings: Settings) -> Table:
    num_tokens = info.num_blocks * info.block_size
    table = Table.grid(padding=(0, 2))
    rows = [
        ("Splice", f"[bold]{url}[/bold]  (Ctrl-C stops)"),
        ("model", f"{escape(info.model_id)}, {info.max_context_tokens:,} tokens of context"),
        ("device", f"{info.device}, {info.dtype}, mode {info.mode}, attention {info.attention}"),
        ("weights", _weights(info)),
        (
            "cache",
            f"{_size(info.cache_bytes)}: {info.num_blocks:,} blocks, {num_tokens:,} tokens, "
            f"keys and values in {info.kv_dtype}",
        ),
        *_tier_rows(settings),
        ("data", escape(str(settings.data_dir.absolute()))),
    ]
    for name, value in rows:
        table.add_row(f"[dim]{name}[/dim]", value)
    return table


def _weights(info: "EngineInfo") -> str:
    if not info.packed_bytes:
        return _size(info.weights_bytes)
    bits = "as the file has them" if info.quantization == "file" else f"in {info.quantization}"
    return f"{_size(info.weights_bytes)}; to decode with, {_size(info.packed_bytes)} {bits}"


def _tier_rows(settings: Settings) -> list[tuple[str, str]]:
    rows = []
    if settings.cpu_cache_bytes:
        rows.append(("memory", f"up to {_size(settings.cpu_cache_bytes)} for what idles"))
    if settings.disk_cache_bytes:
        is_sealed = ", encrypted" if kv_key() else ""
        where = escape(str(settings.effective_kv_dir))
        rows.append(("disk", f"up to {_size(settings.disk_cache_bytes)}{is_sealed} in {where}"))
    return rows


def _size(num_bytes: int) -> str:
    size = float(num_bytes)
    for unit in ("bytes", "KiB", "MiB"):
        if size < 1024:
            return f"{size:.0f} {unit}"
        size /= 1024
    return f"{size:.1f} GiB"


app.command("serve")(with_settings(_serve))


# ---------------------------------------------------------------------------- the rest


def _fetch(settings: Settings) -> None:
    """Obtain the model that is set, so that `serve` needs no network."""
    from model.provision import obtain

    console = Console()
    source = obtain(settings.model, settings.models_dir, lambda m: console.print(escape(m)))
    console.print(f"{escape(source.model_id)} is at {escape(str(source.path))}", soft_wrap=True)


models.command("fetch")(with_settings(_fetch, "data_dir", "model"))


def _upgrade(settings: Settings) -> None:
    """Bring the database's schema to this version's."""
    from sessions.database import Database

    async def upgrade() -> None:
        store = Database(settings.effective_database_url)
        try:
            await store.migrate()
        finally:
            await store.close()

    check_place(settings)
    is_new = not is_there(settings)
    with open_data_dir(settings.data_dir):
        asyncio.run(upgrade())
    _say_at_schema(settings, "new database" if is_new else "database")


database.command("upgrade")(with_settings(_upgrade, "data_dir", "database_url"))


def _check(settings: Settings) -> None:
    """Say whether the database's schema is this version's; changes nothing. Exit code 1 if not."""
    from sessions.database import Database

    async def pending() -> tuple[str, ...]:
        store = Database(settings.effective_database_url)
        try:
            return await store.pending()
        finally:
            await store.close()

    check_there(settings)
    missing = asyncio.run(pending())
    if missing:
        raise RefusalError(
            f"the database {place_of(settings)} lacks {', '.join(missing)}; run `splice db upgrade`"
        )
    _say_at_schema(settings, "database")


def _say_at_schema(settings: Settings, kind: str) -> None:
    text = f"the {kind} {escape(place_of(settings))} is at this version's schema"
    Console().print(text, highlight=False, soft_wrap=True)


database.command("check")(with_settings(_check, "data_dir", "database_url"))


def _check_config(settings: Settings) -> None:
    """Check the settings and show what is in effect."""
    table = Table(box=None)
    table.add_column("setting")
    table.add_column("value", overflow="fold")
    for name in Settings.model_fields:
        value = getattr(settings, name)
        if name == "database_url":
            value = without_password(settings.effective_database_url)
        table.add_row(name, "" if value is None or value == () else escape(str(value)))
    Console().print(table)


app.command("check-config")(with_settings(_check_config))


@app.command("settings")
def _list_settings() -> None:
    """List every setting: variable, default, meaning."""
    table = Table("variable", "default", "meaning", box=None)
    for name, field in Settings.model_fields.items():
        table.add_row(variable(name), escape(default_of(field)), escape(meaning_of(field)))
    Console().print(table)


def _version() -> str:
    try:
        return version("splice-server")
    except PackageNotFoundError:
        return "unknown: the package is not installed"


if __name__ == "__main__":
    main()
