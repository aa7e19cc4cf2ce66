"""`splice keys create | list | revoke | disable-owner | enable-owner`: who may use the server.

They work on the database beside a running server, which follows within seconds. The secret is
printed once, alone on standard output, so that a script can take it; all else goes to standard
error.
"""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from app.data_dir import open_data_dir
from app.database_place import check_place, check_there, is_there, place_of
from app.refusals import RefusalError, in_a_sentence
from app.settings import Settings, SettingsError, load_settings
from sessions.api_keys import ApiKey, KeyId, Scope, digest_of, new_secret, owner_named
from sessions.ids import new_key_id

if TYPE_CHECKING:
    from sessions.database import Database
    from sessions.key_store import KeyStore

T = TypeVar("T")

_LIST_WIDTH = 1_000

keys = typer.Typer(help="API keys: who may use the server.", no_args_is_help=True)

Config = Annotated[
    Path | None, typer.Option("--config", help="Settings file, instead of splice.toml.")
]
DataDir = Annotated[str | None, typer.Option("--data-dir", help="The server's data folder.")]
Url = Annotated[str | None, typer.Option("--database-url", help="The server's database.")]


@keys.command("create")
def _create(
    owner: Annotated[
        str,
        typer.Option(
            "--owner",
            help="Whose sessions it opens; `anonymous` has those from before there were keys.",
        ),
    ],
    scope: Annotated[
        list[str] | None,
        typer.Option(
            "--scope",
            help="What it is good for; repeatable, `chat` if not given.",
            metavar="|".join(Scope),
        ),
    ] = None,
    name: Annotated[str | None, typer.Option("--name", help="What to list it as.")] = None,
    expires_days: Annotated[
        float | None, typer.Option("--expires-days", help="Days it is good for.", min=0)
    ] = None,
    config: Config = None,
    data_dir: DataDir = None,
    database_url: Url = None,
) -> None:
    """Make a key and print its secret, which is shown this once."""
    with in_a_sentence():
        settings = _settings(config, data_dir, database_url)
        check_place(settings)
        is_new = not is_there(settings)
        now = datetime.now(UTC)
        key = ApiKey(
            id=new_key_id(now),
            owner=owner_named(owner),
            name=name,
            scopes=frozenset(map(_scope, scope or [Scope.CHAT])),
            created_at=now,
            expires_at=None if expires_days is None else now + timedelta(days=expires_days),
        )
        secret = new_secret()
        is_first = _first_of_all(settings)
        _say(f"{'a new database' if is_new else 'database'}: {place_of(settings)}")
        _on_keys(settings, lambda store: store.add(key, digest_of(secret)))
        _say(f"made {key.id} for {key.owner}, scopes {_scopes(key)}; the secret is shown only now")
        if is_first:
            _say(
                "from now on every call of the API needs a key; conversations from before belong "
                "to `anonymous`, and `splice keys create --owner anonymous` opens them"
            )
        typer.echo(secret)


@keys.command("list")
def _list(config: Config = None, data_dir: DataDir = None, database_url: Url = None) -> None:
    """List the keys; no secret can be shown again."""
    with in_a_sentence():
        settings = _existing(config, data_dir, database_url)
        found = _on_keys(settings, lambda store: store.keys())
        table = Table("id", "owner", "name", "scopes", "created", "last used", "state", box=None)
        now = datetime.now(UTC)
        for key in found:
            table.add_row(
                key.id,
                escape(key.owner),
                escape(key.name or ""),
                _scopes(key),
                _day(key.created_at),
                "never" if key.last_used_at is None else f"{key.last_used_at:%Y-%m-%d %H:%M}",
                _state(key, now),
            )
        # However narrow the terminal is: an id that is cut could not be revoked.
        wide = Console(width=_LIST_WIDTH, soft_wrap=True)
        wide.print(table if found else "there are no keys")


@keys.command("revoke")
def _revoke(
    key_id: Annotated[str, typer.Argument(help="The key's id, as in `splice keys list`.")],
    config: Config = None,
    data_dir: DataDir = None,
    database_url: Url = None,
) -> None:
    """End a key. A running server refuses it within two seconds."""
    with in_a_sentence():
        settings = _existing(config, data_dir, database_url)
        now = datetime.now(UTC)
        key = _on_keys(settings, lambda store: store.revoke(KeyId(key_id), now))
        _say(f"{key.id} of {key.owner} is revoked")


Owner = Annotated[str, typer.Argument(help="The owner's name, as in `splice keys list`.")]


@keys.command("disable-owner")
def _disable(
    owner: Owner, config: Config = None, data_dir: DataDir = None, database_url: Url = None
) -> None:
    """End all keys of an owner and let no new one be made. What the owner has is kept."""
    with in_a_sentence():
        settings = _existing(config, data_dir, database_url)
        now, name = datetime.now(UTC), owner_named(owner)
        num_ended = _on_keys(settings, lambda store: store.disable(name, now))
        _say(f"{name} is disabled; keys revoked: {num_ended}")


@keys.command("enable-owner")
def _enable(
    owner: Owner, config: Config = None, data_dir: DataDir = None, database_url: Url = None
) -> None:
    """Let keys of a disabled owner be made again; those revoked before stay so."""
    with in_a_sentence():
        settings = _existing(config, data_dir, database_url)
        name = owner_named(owner)
        _on_keys(settings, lambda store: store.enable(name))
        _say(f"{name} may have keys again: `splice keys create --owner {name}`")


def has_keys(settings: Settings) -> bool:
    """Whether a key was ever made; brings the schema up to date, so hold the data folder."""

    async def ask(database: "Database", store: "KeyStore") -> bool:
        await database.migrate()
        return await store.has_any()

    return asyncio.run(_with_store(settings, ask))


def _scope(text: str) -> Scope:
    try:
        return Scope(text)
    except ValueError:
        known = " and ".join(Scope)
        raise SettingsError(f"--scope {text}: there is no such scope, only {known}") from None


def _settings(config: Path | None, data_dir: str | None, database_url: str | None) -> Settings:
    flags = {"data_dir": data_dir, "database_url": database_url}
    given = {name: value for name, value in flags.items() if value is not None}
    return load_settings(given, config_file=config)


def _existing(config: Path | None, data_dir: str | None, database_url: str | None) -> Settings:
    """The settings of a database that is there already; says which it is."""
    settings = _settings(config, data_dir, database_url)
    check_there(settings)
    _say(f"database: {place_of(settings)}")
    return settings


def _first_of_all(settings: Settings) -> bool:
    """Whether there has been no key yet; makes the database if there is none."""

    async def pending(database: "Database", store: "KeyStore") -> bool:
        return bool(await database.pending())

    if not is_there(settings) or asyncio.run(_with_store(settings, pending)):
        with open_data_dir(settings.data_dir):
            return not has_keys(settings)
    return not _on_keys(settings, lambda store: store.has_any())


def _on_keys(settings: Settings, act: Callable[["KeyStore"], Awaitable[T]]) -> T:
    async def run(database: "Database", store: "KeyStore") -> T:
        if await database.pending():
            raise RefusalError(
                f"the database {place_of(settings)} lacks this version's tables: "
                "`splice db upgrade`"
            )
        return await act(store)

    check_there(settings)
    return asyncio.run(_with_store(settings, run))


async def _with_store(
    settings: Settings, act: Callable[["Database", "KeyStore"], Awaitable[T]]
) -> T:
    from sessions.database import Database
    from sessions.key_store import KeyStore

    database = Database(settings.effective_database_url)
    try:
        return await act(database, KeyStore(database))
    finally:
        await database.close()


def _state(key: ApiKey, now: datetime) -> str:
    if key.revoked_at is not None:
        return f"revoked {_day(key.revoked_at)}"
    if key.expires_at is None:
        return "valid"
    return f"{'valid until' if key.is_valid(now) else 'expired'} {_day(key.expires_at)}"


def _scopes(key: ApiKey) -> str:
    return ", ".join(sorted(key.scopes))


def _day(moment: datetime) -> str:
    return f"{moment:%Y-%m-%d}"


def _say(message: str) -> None:
    Console(stderr=True).print(escape(message), highlight=False, soft_wrap=True)
