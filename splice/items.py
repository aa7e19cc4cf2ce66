"""What a conversation is made of: messages, calls, their results, reasoning."""

from dataclasses import dataclass, field

from splice.json_value import Json, texts_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """One item. `type` is message, function_call, function_call_output, reasoning, compaction, or
    one that this version does not know.

    `text` is what was said: a message's or a thought's words, a call's result; empty otherwise.
    `role` is a message's. `call_id` joins a call (`name`, `arguments` as JSON text) to its result.
    """

    id: str
    type: str
    role: str | None
    text: str
    name: str | None
    call_id: str | None
    arguments: str | None
    raw: Json = field(repr=False)

    @classmethod
    def from_wire(cls, raw: Json) -> "Item":
        """Read a Responses item."""
        said = raw.get("output") if raw.get("type") == "function_call_output" else None
        return cls(
            id=raw.get("id") or "",
            type=raw.get("type") or "message",
            role=raw.get("role"),
            text=said if isinstance(said, str) else texts_of(raw.get("content")),
            name=raw.get("name"),
            call_id=raw.get("call_id"),
            arguments=raw.get("arguments"),
            raw=raw,
        )
