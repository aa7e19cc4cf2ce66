"""How log records are written: a line for people, or a JSON object for machines.

Everything logs through the standard library, this program's layers and its packages alike;
structlog renders it. What belongs together is found by `request_id`, `session_id`, `turn_id` and
`owner`: whoever begins a request or a turn binds them, and every record made on its behalf, in
whatever layer, carries them.

Only ids and facts are logged above DEBUG, never a user's words; so tracebacks show no variables,
and what is no HTTP is noted without a word of what the peer sent.
"""

import logging
import sys
from contextlib import AbstractContextManager

import orjson
import structlog
from aiohttp import web
from aiohttp.http import HttpProcessingError
from structlog.typing import Processor

# They say at INFO what nobody operates by.
_QUIETER = ("alembic", "aiosqlite", "asyncio", "filelock", "httpx", "urllib3")
# No HTTP, or a body that is not what its headers say.
_PEERS_FAULTS = (HttpProcessingError, web.RequestPayloadError)


def configure_logging(level: str, log_format: str) -> None:
    """Send this process's records to standard error. Replaces what was configured before."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(formatter(log_format, is_colored=sys.stderr.isatty()))
    handler.addFilter(_without_what_peers_sent)
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    logging.captureWarnings(capture=True)
    for name in _QUIETER:
        logging.getLogger(name).setLevel(logging.WARNING)


def _without_what_peers_sent(record: logging.LogRecord) -> bool:
    """Take aiohttp's complaint about a peer for what it is: no error of ours, and to be kept short.

    It quotes the line that it could not read, which may be a key or a question.
    """
    exc = record.exc_info[1] if record.exc_info else None
    if record.name != "aiohttp.server" or not isinstance(exc, _PEERS_FAULTS):
        return True
    record.msg, record.args = "%s [%s]", (record.getMessage(), type(exc).__name__)
    record.exc_info = record.exc_text = None
    record.levelno, record.levelname = logging.INFO, "INFO"
    return logging.getLogger().isEnabledFor(logging.INFO)


def bound(**ids: str) -> AbstractContextManager[None]:
    """Let every record made in the block, and in tasks begun in it, carry these ids."""
    return structlog.contextvars.bound_contextvars(**ids)


def formatter(log_format: str, *, is_colored: bool = False) -> logging.Formatter:
    """What turns a record into its line: `json`, or else `text`."""
    gather: list[Processor] = [
        structlog.stdlib.ExtraAdder(),  # before what is bound, which it goes before
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso", utc=True, key="time"),
    ]
    write = _for_machines() if log_format == "json" else _for_people(is_colored=is_colored)
    finish: list[Processor] = [
        structlog.stdlib.ProcessorFormatter.remove_processors_meta,
        structlog.processors.EventRenamer("message"),
        *write,
    ]
    return structlog.stdlib.ProcessorFormatter(foreign_pre_chain=gather, processors=finish)


def _for_machines() -> list[Processor]:
    """One object a line: time, level, logger, message, ids, what `extra` gave, the traceback."""
    # What JSON doesn't know is written as text.
    as_json = structlog.processors.JSONRenderer(serializer=_dumps, default=str)
    return [structlog.processors.format_exc_info, as_json]


def _for_people(*, is_colored: bool) -> list[Processor]:
    return [
        structlog.dev.ConsoleRenderer(
            colors=is_colored,
            pad_event_to=0,
            pad_level=False,
            sort_keys=False,
            event_key="message",
            timestamp_key="time",
            exception_formatter=structlog.dev.plain_traceback,
        )
    ]


def _dumps(entry: object, default: object) -> str:
    return orjson.dumps(entry, default=default).decode()  # type: ignore[arg-type]  # as given above
