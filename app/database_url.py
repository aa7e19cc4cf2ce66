"""A database's URL as text: which kinds are served, which file it names, how it may be shown.

Nothing here opens anything; SQLAlchemy reads the URL for good in `sessions/database.py`.
"""

import re
from pathlib import Path
from typing import Final

_SERVED: Final = ("sqlite", "postgresql", "postgres")


def served(url: str) -> str:
    """The URL itself. Raises ValueError for a kind of database that isn't served."""
    scheme, there_is_one, _ = url.partition("://")
    if not there_is_one or scheme.partition("+")[0] not in _SERVED:
        raise ValueError(
            "only SQLite and PostgreSQL are served, as in sqlite:////var/lib/splice.db or "
            "postgresql://user:password@host/name"
        )
    return url


def file_of(url: str) -> Path | None:
    """SQLite's file; None where it has none (in memory, another kind, or SQLite's own `file:`)."""
    scheme, _, rest = url.partition("://")
    name = rest.partition("?")[0].partition("/")[2]
    if scheme.partition("+")[0] != "sqlite" or name in ("", ":memory:") or name.startswith("file:"):
        return None
    return Path(name).absolute()


def without_password(url: str) -> str:
    """The URL with a password in it made unreadable."""
    head, at, tail = url.rpartition("@")
    if at and not url.startswith("sqlite"):  # whose files may have any name
        scheme, _, user = head.partition("://")
        name, has_password, _ = user.partition(":")
        url = f"{scheme}://{name}{':***' if has_password else ''}@{tail}"
    return re.sub(r"(?i)([?&][^=&]*password)=[^&]*", r"\1=***", url)
