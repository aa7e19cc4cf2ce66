"""What is said of settings that can't be used: one line a fault, with what to do."""

import difflib
from collections.abc import Mapping

from pydantic_core import ErrorDetails

from app.database_url import without_password

# What pydantic says of these says nothing of what would be right.
_REASONS = {
    "byte_size": "a size is a number of bytes, or has a unit, as in 512MiB or 2GiB",
    "int_parsing": "input should be a whole number",
}


def unknown_name(kind: str, name: str, known: Mapping[str, object], prefix: str = "") -> str:
    """There is no such name; which of those that there are may have been meant."""
    # Without the prefix, which all of them share and which would make everything alike.
    wanted = name.removeprefix(prefix)
    by_rest = {full.removeprefix(prefix): full for full in known}
    near = difflib.get_close_matches(wanted, by_rest, n=2, cutoff=0.6)
    if not near:
        return f"unknown {kind} {name}: `splice settings` lists them all"
    return f"unknown {kind} {name}: did you mean {' or '.join(by_rest[rest] for rest in near)}?"


def fault_of(error: ErrorDetails, origins: Mapping[str, str]) -> str:
    """A value that can't be used, where it came from, and what would be right."""
    message = error["msg"].removeprefix("Value error, ")
    if not error["loc"]:
        return message
    name = str(error["loc"][0])
    message = _REASONS.get(error["type"]) or message[:1].lower() + message[1:]
    shown = error["input"]
    if name == "database_url" and isinstance(shown, str):
        shown = without_password(shown)
    return f"{name} ({origins.get(name, 'default')}) = {shown!r}: {message}"
