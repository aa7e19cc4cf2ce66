"""Responses' input items, read: a string, messages with parts, references to stored items.

Whatever the server can't honour (images, files, hosted tools' items) is refused by its place.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from app.item_object import unpacked
from sessions.errors import InvalidInputError, UnsupportedInputError
from sessions.item_messages import SUMMARY_HEAD, Draft
from sessions.types import ItemId, ItemKind

Json = dict[str, Any]

MAX_ITEMS: Final = 4096

_ROLES: Final = ("user", "system", "developer", "assistant")
_TEXTS: Final = ("input_text", "output_text", "text")


@dataclass(frozen=True, slots=True)
class Reference:
    """An item that is stored already, by its id; `place` is where it was named."""

    id: ItemId
    place: str


Given = Draft | Reference


def read_items(value: object, place: str = "input") -> tuple[Given, ...]:
    """Read a request's input. Raises InvalidInputError, or UnsupportedInputError for what is
    understood and not taken."""
    if isinstance(value, str):
        return (_said("user", value),)
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
    if not isinstance(kind, str):
        raise InvalidInputError(f"{place}.type must be text", param=f"{place}.type")
    read = _KINDS.get(kind)
    if read is None:
        raise UnsupportedInputError(f"{kind[:64]} items are not supported", param=place)
    return read(item, place)


def _reference(item: Json, place: str) -> Reference:
    return Reference(ItemId(_text_at(item, "id", place)), place)


def _call(item: Json, place: str) -> Draft:
    payload = {name: _text_at(item, name, place) for name in ("call_id", "name")}
    return Draft(
        kind=ItemKind.FUNCTION_CALL,
        role="assistant",
        text=_text_at(item, "arguments", place),
        payload=payload,
    )


def _output(item: Json, place: str) -> Draft:
    return Draft(
        kind=ItemKind.FUNCTION_CALL_OUTPUT,
        role="tool",
        text=text_of(item.get("output"), f"{place}.output"),
        payload={"call_id": _text_at(item, "call_id", place)},
    )


def _thought(item: Json, place: str) -> Draft:
    """Reasoning; what another server has encrypted, or only summed up, says nothing here."""
    content = item.get("content") or []
    parts = content if isinstance(content, list) else []
    raw = [p for p in parts if isinstance(p, dict) and p.get("type") == "reasoning_text"]
    text = "".join(part["text"] for part in raw if isinstance(part.get("text"), str))
    return Draft(kind=ItemKind.REASONING, role="assistant", text=text)


def _compaction(item: Json, place: str) -> Draft:
    summary = unpacked(_text_at(item, "encrypted_content", place))
    if summary is None:
        at = f"{place}.encrypted_content"
        raise InvalidInputError("this compaction was not made here", param=at)
    return Draft(kind=ItemKind.MESSAGE, role="user", text=SUMMARY_HEAD + summary)


def _message(item: Json, place: str) -> Draft:
    role = item.get("role")
    if role not in _ROLES:
        known = ", ".join(_ROLES)
        raise InvalidInputError(f"{place}.role must be one of {known}", param=f"{place}.role")
    return _said(role, text_of(item.get("content"), f"{place}.content"))


def _said(role: str, text: str) -> Draft:
    return Draft(kind=ItemKind.MESSAGE, role=role, text=text)


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


def _text_at(value: Json, name: str, place: str) -> str:
    text = value.get(name)
    if not isinstance(text, str):
        raise InvalidInputError(f"{place}.{name} must be text", param=f"{place}.{name}")
    return text


_KINDS: Final[dict[str, Callable[[Json, str], Given]]] = {
    "message": _message,
    "item_reference": _reference,
    "function_call": _call,
    "function_call_output": _output,
    "reasoning": _thought,
    "compaction": _compaction,
}
