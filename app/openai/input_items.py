"""Responses' input items, read: a string, messages with parts, references to stored items.

Whatever the server can't honour (images, files, hosted tools' items) is refused by its place.
"""

from dataclasses import dataclass
from typing import Any, Final

from sessions.errors import InvalidInputError, UnsupportedInputError
from sessions.types import InputMessage, ItemId

MAX_ITEMS: Final = 4096

_ROLES: Final = ("user", "system", "developer", "assistant")
_TEXTS: Final = ("input_text", "output_text", "text")


@dataclass(frozen=True, slots=True)
class Reference:
    """An item that is stored already, by its id; `place` is where it was named."""

    id: ItemId
    place: str


Given = InputMessage | Reference


def read_items(value: object, place: str = "input") -> tuple[Given, ...]:
    """Read a request's input. Raises InvalidInputError, or UnsupportedInputError for what is
    understood and not taken."""
    if isinstance(value, str):
        return (InputMessage(role="user", text=value),)
    if not isinstance(value, list):
        raise InvalidInputError(f"{place} must be text or a list of items", param=place)
    if not 1 <= len(value) <= MAX_ITEMS:
        raise InvalidInputError(f"{place} has 1 to {MAX_ITEMS} items", param=place)
    return tuple(_item(item, f"{place}[{n}]") for n, item in enumerate(value))


def _item(item: object, place: str) -> Given:
    if not isinstance(item, dict):
        raise InvalidInputError(f"{place} must be an object", param=place)
    kind = item.get("type") or "message"
    if kind == "message" and "role" not in item and isinstance(item.get("id"), str):
        kind = "item_reference"  # as some clients abbreviate it
    if kind == "item_reference":
        return Reference(ItemId(_text_at(item, "id", place)), place)
    if kind == "message":
        return _message(item, place)
    if not isinstance(kind, str):
        raise InvalidInputError(f"{place}.type must be text", param=f"{place}.type")
    raise UnsupportedInputError(f"{kind[:64]} items are not supported", param=place)


def _message(item: dict[str, Any], place: str) -> InputMessage:
    role = item.get("role")
    if role not in _ROLES:
        known = ", ".join(_ROLES)
        raise InvalidInputError(f"{place}.role must be one of {known}", param=f"{place}.role")
    return InputMessage(role=role, text=text_of(item.get("content"), f"{place}.content"))


def text_of(content: object, place: str) -> str:
    """The text of a content: text itself, or a list of text parts."""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        raise InvalidInputError(f"{place} must be text or a list of parts", param=place)
    return "".join(_part(part, f"{place}[{n}]") for n, part in enumerate(content))


def _part(part: object, place: str) -> str:
    kind = part.get("type") if isinstance(part, dict) else None
    if not isinstance(part, dict) or not isinstance(kind, str):
        raise InvalidInputError(f"{place} must be a part with a type", param=place)
    if kind == "refusal":
        return _text_at(part, "refusal", place)
    if kind not in _TEXTS:
        raise UnsupportedInputError(f"{kind[:64]} parts are not supported", param=place)
    return _text_at(part, "text", place)


def _text_at(value: dict[str, Any], name: str, place: str) -> str:
    text = value.get(name)
    if not isinstance(text, str):
        raise InvalidInputError(f"{place}.{name} must be text", param=f"{place}.{name}")
    return text
