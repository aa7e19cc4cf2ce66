"""Every setting: its name, its meaning, and where its value came from.

A value comes from the first of: a flag (`--token-budget`), a variable (`SPLICE_TOKEN_BUDGET`), the
file `splice.toml` (`token_budget = …`), the default below. A name that none of the settings has is
refused together with the nearest one that exists. This is the only module that reads the
environment for settings; it is read once, by `load_settings`, and below the composition root only
the plain configurations made here are passed on.
"""

import os
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Literal, Self

from pydantic import BaseModel, ByteSize, ConfigDict, ValidationError, model_validator

from app.setting_faults import fault_of, unknown_name
from app.setting_fields import (
    DatabaseUrl,
    Names,
    Networks,
    OptionalBytes,
    OptionalCount,
    OptionalNumber,
    OptionalPath,
    Paths,
    Seconds,
    in_group,
    is_loopback,
)
from model.config import (
    AttentionName,
    CompileMode,
    Device,
    EngineConfig,
    Mode,
    Quantization,
)
from model.eviction import EvictionPolicy

ENV_PREFIX = "SPLICE_"
CONFIG_FILE = "splice.toml"

# Variables that are no settings: where the settings are, and what `splice chat` talks to.
_CONFIG_VARIABLE = "SPLICE_CONFIG"
# The disk tier's key is a secret, so it has no flag, no line in a file and no place in any list.
_KEY_VARIABLE = "SPLICE_KV_KEY"
_NO_SETTINGS = (_CONFIG_VARIABLE, _KEY_VARIABLE, "SPLICE_URL", "SPLICE_API_KEY")

_server = in_group("Server")
_model = in_group("Model")
_cache = in_group("Cache and scheduling")
_tiers = in_group("Tiers")
_reply = in_group("Replies")
_limits = in_group("Connections and limits")
_log = in_group("Log")


class SettingsError(Exception):
    """The settings can't be used; each line of the message is one fault, with what to do."""


class Settings(BaseModel):
    """All settings, checked. Make it with `load_settings`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    host: str = _server("127.0.0.1", "address to listen on")
    port: int = _server(8000, "port to listen on; 0 takes a free one", ge=0, le=65535)
    allow_remote: bool = _server(
        False,
        "listen on an address that other machines reach even while there are no API keys: "
        "whoever reaches it may then read and delete every conversation",
    )
    base_path: str = _server(
        "", "path that everything is below, as in `/chat`, where a proxy passes it on whole"
    )
    trusted_proxies: Networks = _server(
        (),
        "addresses or networks of proxies whose `X-Forwarded-For` and `X-Forwarded-Host` are "
        "believed; comma-separated",
    )
    tls_cert: OptionalPath = _server(None, "certificate chain in PEM; serves https")
    tls_key: OptionalPath = _server(None, "the certificate's private key in PEM")
    data_dir: Path = _server(Path("data"), "folder for everything kept: database, models")
    database_url: DatabaseUrl | None = _server(
        None, "SQLAlchemy URL of the database; by default `splice.db` in the data folder"
    )

    model: str = _model("default", "`default`, a folder, a `.gguf` file, or a Hugging Face id")
    model_alias: Names = _model((), "more names of the model, beside its own and `default`")
    device: Device = _model(Device.AUTO, "where the model runs; `auto` takes CUDA when it can")
    mode: Mode = _model(
        Mode.FAST, "`exact`: same ids and seed, same tokens, always; `fast`: quicker number formats"
    )
    attention: AttentionName = _model(
        AttentionName.AUTO, "attention backend; `auto` lets the mode decide"
    )
    quantization: Quantization = _model(
        Quantization.AUTO, "bits of weights while a CPU decodes; `auto` keeps a GGUF file's 4 and 8"
    )
    compile: CompileMode = _model(
        CompileMode.AUTO,
        "the model's step, compiled for this machine once, where `fast` computes on a CPU: `auto` "
        "while nobody computes, `first` before the server is ready, `off` never",
    )
    native_dir: Path = _model(
        Path("~/.cache/splice"), "folder for what is compiled for this machine"
    )
    max_context_tokens: OptionalCount = _model(
        None, "tokens a conversation may hold; can only lower what the model allows", ge=2
    )
    num_threads: int = _model(0, "threads torch computes with on a CPU; 0 keeps torch's own", ge=0)

    block_size: int = _cache(16, "tokens a block of the cache holds", ge=1, le=1024)
    num_blocks: OptionalCount = _cache(
        None, "blocks the cache has; by default a share of the free memory", ge=2
    )
    cache_bytes: OptionalBytes = _cache(
        None, "the cache's size in bytes, as in `2GiB`, instead of `num_blocks`", gt=0
    )
    token_budget: int = _cache(512, "tokens computed in one step at most", ge=1)
    max_itl_s: Seconds = _cache(
        0.2,
        "seconds that others' prompts may put between two tokens of a running reply: they are "
        "computed in smaller chunks while replies run; not in mode exact",
    )
    max_running: int = _cache(64, "replies generated at once at most", ge=1)
    max_waiting: int = _cache(1024, "turns that may wait; more are refused with 429", ge=0)
    check_books: bool = _cache(
        False, "check the cache's books after every step (for tests: it costs time)"
    )
    poison_blocks: bool = _cache(
        False, "fill blocks that nobody may read any more with NaN (for tests)"
    )

    disk_cache_bytes: ByteSize = _tiers(
        ByteSize(10 * 1024**3),
        "disk space for conversations that idle; 0 keeps them in memory only",
        ge=0,
    )
    kv_dir: OptionalPath = _tiers(
        None, "folder of the disk tier; by default `kv` in the data folder"
    )
    cpu_cache_bytes: ByteSize = _tiers(
        ByteSize(0),
        "host memory for conversations that idle, where the model runs on CUDA; 0 is none",
        ge=0,
    )
    spill_to_cpu_after_s: float = _tiers(
        5.0, "seconds a conversation idles before host memory has it too", ge=0
    )
    spill_to_disk_after_s: float = _tiers(
        30.0, "seconds a conversation idles before the disk has it too", ge=0
    )
    eviction: EvictionPolicy = _tiers(
        EvictionPolicy.VALUE, "what is given up first when room is short (docs/tiers.md)"
    )
    store_timeout_s: float = _tiers(
        60.0, "seconds at the stop in which conversations are brought into the tiers", ge=0
    )
    warm_up_s: float = _tiers(
        20.0, "seconds at the start in which busy system prompts are made ready; 0 is off", ge=0
    )

    default_temperature: OptionalNumber = _reply(
        None,
        "temperature where a request names none, 0 is greedy; by default what the model's makers "
        "recommend, or else 0.7",
        ge=0,
        le=2,
    )
    default_top_p: OptionalNumber = _reply(
        None,
        "top-p where a request names none; by default what the model's makers recommend, or else 1",
        gt=0,
        le=1,
    )
    default_max_output_tokens: OptionalCount = _reply(
        None,
        "longest reply in tokens where a request names none; by default the context's end",
        ge=1,
    )

    public_instructions: Paths = _reply(
        (),
        "files with system prompts, word for word, whose cached blocks all owners share; "
        "comma-separated",
    )
    max_turn_s: OptionalNumber = _reply(
        None, "seconds a reply may take, waiting included; by default no limit", gt=0
    )
    auto_titles: bool = _reply(
        True,
        "the model names sessions that have no title while nobody else wants it; a session can "
        "turn it off for itself (`auto_title`)",
    )

    allowed_origins: Names = _limits(
        (), "origins of web pages, beside the server's own, that may talk to it; comma-separated"
    )
    allowed_hosts: Names = _limits(
        (), "names it may be called by, beside loopback names and IP addresses; `*`: any"
    )
    max_body_bytes: ByteSize = _limits(
        ByteSize(8 * 1024**2), "longest request body or websocket frame in bytes", gt=0
    )
    outbox_size: int = _limits(256, "frames that may wait for one websocket", ge=1)
    max_streams: int = _limits(64, "replies one websocket may read at once", ge=1)
    max_subscriptions: int = _limits(64, "sessions one websocket may watch", ge=1)
    max_frames_per_s: int = _limits(
        200, "frames one websocket may send a second; one that sends more is closed", ge=1
    )
    max_sockets: int = _limits(1024, "websockets that may be open at once", ge=1)
    owner_max_sockets: OptionalCount = _limits(
        None, "websockets an owner may have open at once; by default no limit", ge=1
    )
    owner_requests_per_minute: OptionalCount = _limits(
        None, "requests and websocket frames an owner may send a minute; by default no limit", ge=1
    )
    owner_max_turns: OptionalCount = _limits(
        None, "replies an owner may have in the making at once; by default no limit", ge=1
    )
    send_timeout_s: Seconds = _limits(10.0, "seconds one send may take before the peer is dropped")
    heartbeat_s: Seconds = _limits(20.0, "seconds between pings on a websocket")
    sse_keepalive_s: Seconds = _limits(15.0, "seconds of silence before a comment on a stream")
    drain_timeout_s: Seconds = _limits(
        20.0, "seconds that running replies get to end when the server stops"
    )
    delete_grace_s: float = _limits(
        86400.0, "seconds in which the deletion of a session can be undone", ge=0
    )

    log_level: Literal["debug", "info", "warning", "error"] = _log("info", "least level logged")
    log_format: Literal["text", "json"] = _log("text", "`text` for people, `json` for machines")

    @model_validator(mode="after")
    def _fit_together(self) -> Self:
        if self.num_blocks is not None and self.cache_bytes is not None:
            raise ValueError("num_blocks and cache_bytes both set the cache's size: leave one out")
        if (self.tls_cert is None) != (self.tls_key is None):
            raise ValueError("tls_cert and tls_key go together: name both or neither")
        if not re.fullmatch(r"(/[A-Za-z0-9._~-]+)*", self.base_path):
            raise ValueError(
                "base_path begins with a slash, ends without one, and has letters, digits and ._~- "
                "in between"
            )
        if self.mode is Mode.EXACT and self.attention in (AttentionName.BATCHED, AttentionName.CPU):
            raise ValueError(f"mode exact needs the reference attention, not {self.attention}")
        if self.mode is Mode.EXACT and self.quantization in (Quantization.INT8, Quantization.INT4):
            raise ValueError(f"mode exact computes in float32 alone, not in {self.quantization}")
        if self.mode is Mode.EXACT and self.compile is CompileMode.FIRST:
            raise ValueError("mode exact computes every token the same way: it compiles no step")
        return self

    @property
    def is_guarded_by_address(self) -> bool:
        """Whether the server may run without API keys, by its address or by the operator's word."""
        is_only_near = is_loopback(self.host) and not self.trusted_proxies
        return self.allow_remote or is_only_near

    @property
    def models_dir(self) -> Path:
        """Where fetched models and what is derived from them lie."""
        return self.data_dir / "models"

    @property
    def default_database(self) -> Path:
        """SQLite's file, where no other database is named."""
        return self.data_dir.absolute() / "splice.db"

    @property
    def effective_database_url(self) -> str:
        """The database's URL, by default SQLite's in the data folder."""
        return self.database_url or f"sqlite+aiosqlite:///{self.default_database}"

    @property
    def effective_kv_dir(self) -> Path:
        """Where the tiers' files lie, by default in the data folder."""
        return (self.kv_dir or self.data_dir / "kv").expanduser().absolute()

    def engine_config(self, kv_key: str | None = None) -> EngineConfig:
        """What the engine's process is started with; `kv_key` encrypts what is on disk."""
        has_tiers = self.disk_cache_bytes or self.cpu_cache_bytes
        return EngineConfig(
            model=self.model,
            models_dir=self.models_dir,
            native_dir=self.native_dir,
            device=self.device,
            mode=self.mode,
            attention=self.attention,
            quantization=self.quantization,
            compile=self.compile,
            block_size=self.block_size,
            num_blocks=self.num_blocks,
            cache_bytes=None if self.cache_bytes is None else int(self.cache_bytes),
            token_budget=self.token_budget,
            max_itl_s=self.max_itl_s,
            max_running=self.max_running,
            max_waiting=self.max_waiting,
            max_context_tokens=self.max_context_tokens,
            num_threads=self.num_threads,
            eviction=self.eviction,
            kv_dir=self.effective_kv_dir if has_tiers else None,
            disk_tier_bytes=int(self.disk_cache_bytes),
            cpu_tier_bytes=int(self.cpu_cache_bytes),
            spill_to_cpu_after_s=self.spill_to_cpu_after_s,
            spill_to_disk_after_s=self.spill_to_disk_after_s,
            kv_key=kv_key,
            check_books=self.check_books,
            poison_blocks=self.poison_blocks,
        )


def load_settings(
    flags: Mapping[str, object],
    *,
    config_file: Path | None = None,
    environ: Mapping[str, str] | None = None,
) -> Settings:
    """The settings from all sources. Raises SettingsError naming every fault.

    `flags` has only those that were given. Without `config_file` the variable SPLICE_CONFIG names
    it, and else `splice.toml` in the working folder is read if there is one.
    """
    environ = os.environ if environ is None else environ
    # The weakest source first: a later one replaces its values.
    sources = [
        _from_file(config_file, environ),
        _from_environment(environ),
        {name: (f"flag {flag(name)}", value) for name, value in flags.items()},
    ]
    given = {name: entry for source in sources for name, entry in source.items()}
    try:
        return Settings.model_validate({name: value for name, (_, value) in given.items()})
    except ValidationError as exc:
        origins = {name: origin for name, (origin, _) in given.items()}
        faults = [fault_of(error, origins) for error in exc.errors(include_url=False)]
        raise SettingsError("\n".join(faults)) from exc


def kv_key(environ: Mapping[str, str] | None = None) -> str | None:
    """The disk tier's key, which only the environment may hold; None: nothing is encrypted."""
    return (os.environ if environ is None else environ).get(_KEY_VARIABLE) or None


def flag(name: str) -> str:
    """The flag of a setting."""
    return "--" + name.replace("_", "-")


def variable(name: str) -> str:
    """The environment variable of a setting."""
    return ENV_PREFIX + name.upper()


def _from_environment(environ: Mapping[str, str]) -> dict[str, tuple[str, object]]:
    known = {variable(name): name for name in Settings.model_fields}
    mine = [v for v in environ if v.startswith(ENV_PREFIX) and v not in _NO_SETTINGS]
    unknown = [v for v in mine if v not in known]
    if unknown:
        raise SettingsError(
            "\n".join(unknown_name("variable", v, known, ENV_PREFIX) for v in sorted(unknown))
        )
    return {known[v]: (f"variable {v}", environ[v]) for v in mine}


def _from_file(
    config_file: Path | None, environ: Mapping[str, str]
) -> dict[str, tuple[str, object]]:
    named = environ.get(_CONFIG_VARIABLE)
    path = config_file or (Path(named) if named else None)
    try:
        values = tomllib.loads((path or Path(CONFIG_FILE)).read_text(encoding="utf-8"))
    except FileNotFoundError as exc:
        if path is None:
            return {}
        raise SettingsError(f"there is no settings file {path}") from exc
    except (OSError, ValueError) as exc:
        raise SettingsError(
            f"the settings file {path or CONFIG_FILE} can't be read: {exc}"
        ) from exc
    tables = [key for key, value in values.items() if isinstance(value, dict)]
    if tables:
        raise SettingsError(
            f"{path or CONFIG_FILE} has the table [{tables[0]}]: write the settings without tables"
        )
    unknown = [key for key in values if key not in Settings.model_fields]
    if unknown:
        where = f"key of {path or CONFIG_FILE}"
        raise SettingsError(
            "\n".join(unknown_name(where, k, Settings.model_fields) for k in unknown)
        )
    return {name: (f"{path or CONFIG_FILE}", value) for name, value in values.items()}
