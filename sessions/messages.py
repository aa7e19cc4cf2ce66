"""What callers send: messages, and among them what a model called and what that returned."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCall:
    """A call that a model made. `arguments` is JSON text as it was said, which may be broken."""

    id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True, kw_only=True)
class InputMessage:
    """One message a caller sends. `role`: user, system, developer or assistant; text only.

    An assistant's may have `calls` behind its text and `reasoning` in front of it; a `tool`
    message is what the call `call_id` returned.
    """

    role: str
    text: str
    reasoning: str | None = None
    calls: tuple[ToolCall, ...] = ()
    call_id: str | None = None
