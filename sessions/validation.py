"""What a caller sends, checked before anything is done with it. Pure.

Text must be storable and encodable: no lone surrogates (they have no UTF-8), no NUL (PostgreSQL
refuses it). The limits on metadata are OpenAI's.
"""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from model.config import SamplingParams
from sessions.errors import InvalidInputError, UnsupportedInputError
from sessions.types import InputMessage, TurnRequest

ROLES = ("user", "assistant", "system", "developer", "tool")
MAX_INPUT_CHARS = 2_000_000  # a million tokens or so: more than any context
MAX_TITLE_CHARS = 500
MAX_CLIENT_TURN_ID_CHARS = 200
MAX_METADATA_ENTRIES = 16
MAX_METADATA_KEY_CHARS = 64
MAX_METADATA_VALUE_CHARS = 512


def check_text(text: str, *, param: str) -> None:
    """Raise InvalidInputError for text that can't be stored."""
    if "\0" in text:
        raise InvalidInputError("the text contains a NUL character", param=param)
    try:
        text.encode()
    except UnicodeEncodeError as exc:
        raise InvalidInputError(
            f"the text is not valid Unicode: a lone surrogate at character {exc.start}",
            param=param,
        ) from exc


def storable(text: str) -> str:
    """Generated text as it can be stored: of the same length, without NULs."""
    return text.replace("\0", "\N{REPLACEMENT CHARACTER}")


def check_messages(messages: Sequence[InputMessage], *, max_chars: int) -> None:
    """Raise InvalidInputError for no messages, too much text, or text that can't be stored;
    UnsupportedInputError for a role that is none of ours."""
    if not messages:
        raise InvalidInputError("there must be at least one message", param="input")
    for number, message in enumerate(messages):
        if message.role not in ROLES or (message.role == "tool" and message.call_id is None):
            raise UnsupportedInputError(
                f"the role {message.role!r} is not one of {', '.join(ROLES)}",
                param=f"input[{number}].role",
            )
        for text in _texts_of(message):
            check_text(text, param=f"input[{number}].content")
    num_chars = sum(len(text) for message in messages for text in _texts_of(message))
    if num_chars > max_chars:
        raise InvalidInputError(
            f"the input has {num_chars} characters, {max_chars} are allowed", param="input"
        )


def _texts_of(message: InputMessage) -> tuple[str, ...]:
    """All that a message says, names of calls too."""
    called = (text for call in message.calls for text in (call.id, call.name, call.arguments))
    return (message.text, message.reasoning or "", message.call_id or "", *called)


def check_chat(messages: Sequence[InputMessage], *, max_chars: int) -> None:
    """As `check_messages`, of a whole chat with its calls and results: every result belongs to a
    call of the reply before it."""
    said = [replace(m, role="user") if m.role == "tool" else m for m in messages]
    check_messages(said, max_chars=max_chars)
    num_chars, open_calls = 0, frozenset[str]()
    for number, message in enumerate(messages):
        place = f"input[{number}]"
        for call in message.calls:
            check_text(call.name + call.arguments, param=f"{place}.tool_calls")
            num_chars += len(call.arguments)
        if message.role == "tool" and message.call_id not in open_calls:
            raise InvalidInputError(
                "a result must follow the reply that made the call it belongs to",
                param=f"{place}.tool_call_id",
            )
        if message.role != "tool":
            open_calls = frozenset(call.id for call in message.calls)
    if num_chars > max_chars:
        raise InvalidInputError(f"calls may have {max_chars} characters", param="input")


def check_request(request: TurnRequest, *, max_chars: int) -> None:
    """Everything about a turn's request that can be told without the session."""
    check_messages(request.input, max_chars=max_chars)
    check_params(request.params)
    check_client_turn_id(request.client_turn_id)
    check_metadata(request.metadata)


def check_params(params: SamplingParams) -> None:
    """Raise InvalidInputError for stop strings that can't be stored; the rest is numbers."""
    for number, stop in enumerate(params.stop):
        check_text(stop, param=f"stop[{number}]")


def check_client_turn_id(client_turn_id: str | None) -> None:
    """Raise InvalidInputError for an empty or overlong one."""
    if client_turn_id is None:
        return
    check_text(client_turn_id, param="client_turn_id")
    if not 0 < len(client_turn_id) <= MAX_CLIENT_TURN_ID_CHARS:
        raise InvalidInputError(
            f"client_turn_id must have 1 to {MAX_CLIENT_TURN_ID_CHARS} characters",
            param="client_turn_id",
        )


def check_session(
    title: str | None, instructions: str | None, metadata: dict[str, str], *, max_chars: int
) -> None:
    """Raise InvalidInputError for what a session can't be made of."""
    if title is not None:
        check_text(title, param="title")
        if len(title) > MAX_TITLE_CHARS:
            raise InvalidInputError(
                f"a title has at most {MAX_TITLE_CHARS} characters", param="title"
            )
    if instructions is not None:
        check_text(instructions, param="instructions")
        if len(instructions) > max_chars:
            raise InvalidInputError(
                f"the instructions have {len(instructions)} characters, {max_chars} are allowed",
                param="instructions",
            )
    check_metadata(metadata)


def check_metadata(metadata: dict[str, str]) -> None:
    """Raise InvalidInputError beyond OpenAI's limits."""
    if len(metadata) > MAX_METADATA_ENTRIES:
        raise InvalidInputError(
            f"metadata has at most {MAX_METADATA_ENTRIES} entries", param="metadata"
        )
    for key, value in metadata.items():
        check_text(key, param="metadata")
        check_text(value, param=f"metadata.{key}")
        if len(key) > MAX_METADATA_KEY_CHARS or len(value) > MAX_METADATA_VALUE_CHARS:
            raise InvalidInputError(
                f"metadata keys have at most {MAX_METADATA_KEY_CHARS} characters, values "
                f"{MAX_METADATA_VALUE_CHARS}",
                param=f"metadata.{key[:MAX_METADATA_KEY_CHARS]}",
            )


def digest(asked: dict[str, Any]) -> str:
    """A short name for what was asked, the same for the same values."""
    canonical = json.dumps(asked, sort_keys=True, ensure_ascii=True)
    return hashlib.sha256(canonical.encode()).hexdigest()
