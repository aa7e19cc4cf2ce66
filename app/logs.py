"""How log records are written: a line for people, or a JSON object for machines.

Only ids and facts are logged above DEBUG, never a user's words. What belongs together is found by
`request_id`, `session_id`, `turn_id` and `owner`; lines for people have them at their end.
"""

import logging
import sys
from datetime import UTC, datetime
from typing import Any

import orjson

_TEXT = "%(asctime)s %(levelname)-7s %(name)s: %(message)s"
_IDS = ("request_id", "session_id", "turn_id", "owner", "peer")
_BARE = logging.LogRecord("", 0, "", 0, "", (), None).__dict__.keys() | {"message", "asctime"}
# They say at INFO what nobody operates by.
_QUIETER = ("alembic", "aiosqlite", "asyncio", "filelock", "httpx", "urllib3")


class JsonFormatter(logging.Formatter):
    """One JSON object a line: time, level, logger, message, what `extra` gave, the traceback."""

    def format(self, record: logging.LogRecord) -> str:
        """The record as a line of JSON; values that JSON doesn't know are written as text."""
        entry: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        entry |= {k: v for k, v in record.__dict__.items() if k not in _BARE}
        if record.exc_info:
            entry["exception"] = self.formatException(record.exc_info)
        return orjson.dumps(entry, default=str).decode()


class TextFormatter(logging.Formatter):
    """One line, with the ids that `extra` gave behind the message."""

    def __init__(self) -> None:
        super().__init__(_TEXT)

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 (the base's name)
        """The line without a traceback."""
        given = ((name, record.__dict__.get(name)) for name in _IDS)
        ids = " ".join(f"{name}={value}" for name, value in given if value)
        line = super().formatMessage(record)
        return f"{line} [{ids}]" if ids else line


def configure_logging(level: str, log_format: str) -> None:
    """Send this process's records to standard error. Replaces what was configured before."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if log_format == "json" else TextFormatter())
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    logging.captureWarnings(capture=True)
    for name in _QUIETER:
        logging.getLogger(name).setLevel(logging.WARNING)
