"""`splice kv ls | stats | verify | gc`: what the tiers hold, asked of the server that runs.

`ls` shows the sessions of the key's owner; the others need a key with the scope `admin` where there
are keys. While no server answers, `ls`, `stats` and `verify` look into the folder itself; `verify`
changes what it finds damaged, and is refused as long as a server has the folder's lock.
"""

import json
import urllib.error
import urllib.request
from collections.abc import Callable
from datetime import UTC, datetime
from http import HTTPStatus
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from app.doctor.finding import size
from app.refusals import RefusalError, in_a_sentence
from app.server_address import KEY_HINT, reason_of, server_url
from app.setting_flags import given, parameter, with_flags
from app.settings import Settings, load_settings

Json = dict[str, Any]

kv = typer.Typer(help="The tiers: where conversations' states lie.", no_args_is_help=True)

_Url = Annotated[str, typer.Option("--url", envvar="SPLICE_URL", help="Where the server is.")]
_Key = Annotated[
    str | None, typer.Option("--key", envvar="SPLICE_API_KEY", help="API key, where it needs one.")
]
_AsJson = Annotated[bool, typer.Option("--json", help="Write JSON.")]
_ALSO = (
    parameter("url", _Url, default="http://127.0.0.1:8000"),
    parameter("key", _Key),
    parameter("as_json", _AsJson, default=False),
)
_LIST_WIDTH = 1_000
_TIMEOUT_S = 3600.0
"""Reading everything takes its time."""


class NobodyAnswersError(Exception):
    """There is no server at the address, and why."""

    def __str__(self) -> str:
        what, why = self.args
        return f"{what} ({why})"


class Server:
    """A running server, asked with one key. Raises RefusalError for an address that is none."""

    def __init__(self, url: str, key: str | None) -> None:
        self.url = server_url(url)
        self._headers = {} if key is None else {"Authorization": f"Bearer {key}"}

    def ask(self, method: str, path: str) -> Json:
        """The answer. Raises NobodyAnswersError, RefusalError."""
        body = b"{}" if method == "POST" else None
        headers = {**self._headers, "Content-Type": "application/json"}
        request = urllib.request.Request(self.url + path, data=body, method=method, headers=headers)
        try:
            with urllib.request.urlopen(request, timeout=_TIMEOUT_S) as answer:
                found: Json = json.load(answer)
                return found
        except urllib.error.HTTPError as exc:
            hint = f" ({KEY_HINT})" if exc.code == HTTPStatus.UNAUTHORIZED else ""
            raise RefusalError(f"{self.url}: {_message_of(exc)}{hint}") from exc
        except (urllib.error.URLError, ConnectionError, TimeoutError) as exc:
            raise NobodyAnswersError(f"no server answers at {self.url}", reason_of(exc)) from exc
        except ValueError as exc:
            raise RefusalError(f"{self.url} is no Splice: {exc}") from exc

    def sessions(self) -> list[Json]:
        """All of the owner's, those that lists don't show unasked behind the others."""
        return [*self._listed("true"), *self._listed("false")]

    def _listed(self, listed: str) -> list[Json]:
        query = f"/v1/sessions?limit=100&listed={listed}"
        page = self.ask("GET", query)
        found: list[Json] = [*page["data"]]
        while page["has_more"]:
            page = self.ask("GET", f"{query}&after={page['last_id']}")
            found += page["data"]
        return found


def _message_of(exc: urllib.error.HTTPError) -> str:
    try:
        return str(json.load(exc)["error"]["message"])
    except (ValueError, KeyError, TypeError):
        return f"status {exc.code}"


_Command = Callable[[Server, Settings, bool], None]


def _add(name: str, command: _Command) -> None:
    def run(
        config: Path | None,
        url: str,
        key: str | None,
        as_json: bool,  # noqa: FBT001 - a flag
        **flags: object,
    ) -> None:
        with in_a_sentence():
            settings = load_settings(given(flags), config_file=config)
            command(Server(url, key), settings, as_json)

    run.__doc__ = command.__doc__
    kv.command(name)(with_flags(run, "data_dir", "kv_dir", also=_ALSO))


def _list(server: Server, settings: Settings, as_json: bool) -> None:  # noqa: FBT001
    """List conversations: where the state of each is, how much, and since when."""
    try:
        rows = [_session_row(session) for session in server.sessions()]
    except NobodyAnswersError as exc:
        from app.kv_files import folders

        _tell_folder(exc, settings)
        unknown = dict.fromkeys(("title", "tokens", "bytes", "age_s"))
        rows = [
            {"id": name, "tier": "disk", **unknown}
            for folder in folders(settings)
            for name in folder.conversations
        ]
    if as_json:
        typer.echo(json.dumps(rows, indent=2))
        return
    table = Table("conversation", "title", "where", "tokens", "size", "age", box=None)
    for row in rows:
        table.add_row(
            row["id"],
            escape(row["title"] or ""),
            row["tier"] or "[dim]not cached[/dim]",
            "" if row["tokens"] is None else f"{row['tokens']:,}",
            "" if row["bytes"] is None else size(row["bytes"]),
            "" if row["age_s"] is None else _age(row["age_s"]),
        )
    # However narrow the terminal is, or the pipe is taken to be: an id that is cut names nothing.
    Console(width=_LIST_WIDTH, soft_wrap=True).print(table)


def _tell_folder(exc: NobodyAnswersError, settings: Settings) -> None:
    text = f"{exc}: this is what the files in {settings.effective_kv_dir} say"
    Console(stderr=True).print(escape(text), highlight=False, soft_wrap=True)


def _session_row(session: Json) -> Json:
    place = session["kv"] or {}
    used_at = place.get("used_at")
    age_s = None if used_at is None else max(0, int(datetime.now(UTC).timestamp()) - used_at)
    tiers = dict.fromkeys([place["tier"], *place["stored_in"]]) if place else {}
    return {
        "id": session["id"],
        "title": session["title"],
        "tier": ", ".join(tiers) or None,
        "tokens": place.get("num_tokens"),
        "bytes": place.get("num_bytes"),
        "age_s": age_s,
    }


def _stats(server: Server, settings: Settings, as_json: bool) -> None:  # noqa: FBT001
    """Show what the tiers hold, and what happened in them."""
    try:
        tiers: list[Json] = server.ask("GET", "/v1/cache")["tiers"]
    except NobodyAnswersError as exc:
        _tell_folder(exc, settings)
        _stats_of_files(settings, as_json=as_json)
        return
    if as_json:
        typer.echo(json.dumps(tiers, indent=2))
        return
    if not tiers:
        Console().print("this server has no tiers: see --disk-cache-bytes and --cpu-cache-bytes")
        return
    table = Table("", *(tier["name"] for tier in tiers), box=None)
    table.add_row("works", *("yes" if tier["on"] else "[red]no[/red]" for tier in tiers))
    table.add_row("size", *(f"{size(t['used_bytes'])} of {size(t['quota_bytes'])}" for t in tiers))
    table.add_row("blocks", *(f"{t['num_blocks']:,} of {t['max_blocks']:,}" for t in tiers))
    names = ("conversations", "spilled", "restored", "evicted", "lost", "errors", "abandoned")
    for name in names:
        table.add_row(name, *(f"{tier[f'num_{name}']:,}" for tier in tiers))
    Console().print(table)


def _stats_of_files(settings: Settings, *, as_json: bool) -> None:
    from app.kv_files import folders

    found = list(folders(settings))
    if as_json:
        rows = [
            {
                "folder": str(folder.path),
                "fingerprint": folder.fingerprint,
                "num_bytes": folder.num_bytes,
                "num_conversations": len(folder.conversations),
            }
            for folder in found
        ]
        typer.echo(json.dumps(rows, indent=2))
        return
    table = Table("model", "size", "conversations", "folder", box=None)
    for folder in found:
        num_conversations = f"{len(folder.conversations):,}"
        path = escape(str(folder.path))
        table.add_row(folder.fingerprint, size(folder.num_bytes), num_conversations, path)
    Console().print(table)


def _verify(server: Server, settings: Settings, as_json: bool) -> None:  # noqa: FBT001
    """Read everything and drop what is damaged. Exit code 1 if something was."""
    try:
        num_lost = int(server.ask("POST", "/v1/cache/verify")["num_lost"])
    except NobodyAnswersError as exc:
        from app.kv_files import verify

        _tell_folder(exc, settings)
        _, num_lost = verify(settings)
    if as_json:
        typer.echo(json.dumps({"num_lost": num_lost}))
    elif num_lost:
        Console().print(f"{num_lost:,} damaged records are dropped; they will be computed again")
    else:
        Console().print("all records are whole")
    if num_lost:
        raise typer.Exit(1)


def _collect(server: Server, settings: Settings, as_json: bool) -> None:  # noqa: FBT001
    """Remove what no conversation has any more, and what other models left behind for long."""
    try:
        found = server.ask("POST", "/v1/cache/collect")
    except NobodyAnswersError as exc:
        raise RefusalError(
            f"{exc}, and only a server knows what is needed: it also does this at its start"
        ) from exc
    if as_json:
        typer.echo(json.dumps(found))
        return
    Console().print(
        f"{found['num_released']:,} conversations released, {found['num_folders']:,} folders of "
        "other models removed"
    )


def _age(seconds: int) -> str:
    for unit, length in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= length:
            return f"{seconds // length} {unit}"
    return f"{seconds} s"


_add("ls", _list)
_add("stats", _stats)
_add("verify", _verify)
_add("gc", _collect)
