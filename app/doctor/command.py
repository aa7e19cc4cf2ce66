"""`splice doctor`: the checks in order, and their report for people or as JSON.

The exit code is 1 if anything fails. It keeps no lock, runs no migration, fetches and writes
nothing, so it may be run beside a server, which it finds in its own way, as a start would.
"""

import json
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from app.doctor.finding import Finding, Findings, Level
from app.setting_flags import given, parameter, with_flags
from app.settings import Settings, SettingsError, load_settings

_MARKS = {
    Level.OK: "[green]✓[/green]",
    Level.WARN: "[yellow]![/yellow]",
    Level.FAIL: "[red]✗[/red]",
}
_AsJson = Annotated[bool, typer.Option("--json", help="Write the findings as JSON.")]


def _doctor(config: Path | None, as_json: bool, **flags: object) -> None:  # noqa: FBT001 (a flag)
    """Check model, device, database, disk, tiers, port, settings and page, and say what to do.

    Changes nothing. Exit code 1 if anything fails.
    """
    findings = list(_examine(config, given(flags)))
    if as_json:
        typer.echo(json.dumps({"findings": [asdict(finding) for finding in findings]}, indent=2))
    else:
        _report(findings)
    if any(finding.level is Level.FAIL for finding in findings):
        raise typer.Exit(1)


def _examine(config: Path | None, flags: dict[str, object]) -> Iterator[Finding]:
    try:
        settings = load_settings(flags, config_file=config)
    except SettingsError as exc:
        found = Findings("settings")
        for line in str(exc).splitlines():
            found.fail(line, "the rest is checked once the settings can be read")
        yield from found.all
        return
    yield from examine(settings)


def examine(settings: Settings) -> Iterator[Finding]:
    """All checks, the quick ones first."""
    from app.doctor.data_check import check_database, check_disk
    from app.doctor.front_check import check_page, check_port, check_settings
    from app.doctor.tier_check import check_tiers

    yield from check_settings(settings)
    yield from check_page(Path(__file__).parent.parent / "page")
    yield from check_port(settings)
    yield from check_disk(settings)
    yield from check_tiers(settings)
    yield from check_database(settings)
    from app.doctor.engine_check import check_engine  # imports torch

    yield from check_engine(settings)


def _report(findings: list[Finding]) -> None:
    table = Table.grid(padding=(0, 2))
    table.add_column()
    table.add_column(style="dim")
    table.add_column(overflow="fold")
    for finding in findings:
        text = escape(finding.text)
        if finding.advice:
            text += f"\n[dim]→ {escape(finding.advice)}[/dim]"
        table.add_row(_MARKS[finding.level], finding.area, text)
    console = Console()
    console.print(table)
    num_failed = sum(finding.level is Level.FAIL for finding in findings)
    console.print(f"{num_failed} in the way" if num_failed else "nothing is in the way")


doctor = with_flags(_doctor, also=(parameter("as_json", _AsJson, default=False),))
