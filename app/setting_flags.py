"""Flags made from the settings, for every command that looks at settings.

Typer reads a command's flags from its signature; here the signature is made from `Settings`, which
keeps flags and settings one thing.
"""

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from app.refusals import in_a_sentence
from app.settings import Settings, flag, load_settings
from app.settings_docs import default_of, group_of, meaning_of

ConfigFile = Annotated[
    Path | None, typer.Option("--config", help="Settings file, instead of splice.toml.")
]


def with_settings(command: Callable[[Settings], None], *names: str) -> Callable[..., None]:
    """Give a command a flag for each of the settings, and call it with those that result.

    `names` are the settings that the command looks at; all, when none is named.
    """

    def run(config: Path | None, **flags: object) -> None:
        with in_a_sentence():
            command(load_settings(given(flags), config_file=config))

    run.__name__, run.__doc__ = command.__name__.lstrip("_"), command.__doc__
    return with_flags(run, *names)


def with_flags(
    run: Callable[..., None], *names: str, also: tuple[inspect.Parameter, ...] = ()
) -> Callable[..., None]:
    """Let Typer pass a function the settings' flags, `config`, and the parameters in `also`."""
    parameters = [parameter("config", ConfigFile), *also]
    parameters += [parameter(name, _option(name)) for name in names or Settings.model_fields]
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {p.name: p.annotation for p in parameters}
    return run


def given(flags: dict[str, object]) -> dict[str, object]:
    """Those that were on the command line."""
    return {name: value for name, value in flags.items() if value is not None}


def parameter(name: str, annotation: object, default: object = None) -> inspect.Parameter:
    """One of a command's parameters."""
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation
    )


def _option(name: str) -> object:
    field = Settings.model_fields[name]
    is_switch = field.annotation is bool
    kind = bool if is_switch else str
    shown = default_of(field)
    # A switch can also be turned off, be it on by default or in the file.
    names = f"{flag(name)}/{flag('no_' + name)}" if is_switch else flag(name)
    option = typer.Option(
        names,
        help=meaning_of(field) + (f" [dim]\\[{shown}][/dim]" if shown else ""),
        show_default=False,
        rich_help_panel=group_of(field),
        metavar=None if is_switch else name.rpartition("_")[2].upper(),
    )
    return Annotated[kind | None, option]
