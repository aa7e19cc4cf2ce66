"""How a setting is declared: what kinds of values text can be, and the heading it stands under."""

import ipaddress
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, ByteSize, Field, IPvAnyNetwork

from app.database_url import served

_UNSET = ("", "none")


def is_loopback(host: str) -> bool:
    """Whether an address to listen on is only this machine's."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def _split(value: object) -> object:
    if isinstance(value, str):
        return tuple(part.strip() for part in value.split(",") if part.strip())
    return value


def _optional(value: object) -> object:
    return None if isinstance(value, str) and value.strip().lower() in _UNSET else value


def in_group(group: str) -> Any:  # noqa: ANN401 (pydantic's Field is typed so)
    """Make `Field` with the heading under which help and tables show it."""

    def field(default: object, description: str, **limits: object) -> Any:  # noqa: ANN401
        extra = {"group": group}
        return Field(default, description=description, json_schema_extra=extra, **limits)  # type: ignore[call-overload]  # the limits are pydantic's

    return field


Paths = Annotated[tuple[Path, ...], BeforeValidator(_split)]
Names = Annotated[tuple[str, ...], BeforeValidator(_split)]
Networks = Annotated[tuple[IPvAnyNetwork, ...], BeforeValidator(_split)]
OptionalPath = Annotated[Path | None, BeforeValidator(_optional)]
OptionalCount = Annotated[int | None, BeforeValidator(_optional)]
OptionalNumber = Annotated[float | None, BeforeValidator(_optional)]
OptionalBytes = Annotated[ByteSize | None, BeforeValidator(_optional)]
DatabaseUrl = Annotated[str, AfterValidator(served)]
Seconds = Annotated[float, Field(gt=0)]
