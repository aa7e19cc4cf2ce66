"""From messages to ids: whole conversations, or only what a new turn adds to one.

What a new turn adds is the difference between two renderings of a stub conversation, so that a
template which injects a default system message, counts or closes turns is followed exactly. It is
put behind the token log, which is never encoded again.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from model.errors import ModelLoadError
from sessions.chat_template import ChatTemplate, Message
from sessions.errors import InvalidInputError
from sessions.template_probe import (
    ASSISTANT,
    STUB,
    STUB_REPLY,
    STUB_SYSTEM,
    SYSTEM,
    USER,
    TemplateTraits,
    probe,
)
from sessions.token_log import common_prefix
from sessions.types import InputMessage


@dataclass(frozen=True, slots=True, kw_only=True)
class Continuation:
    """What follows a reply: its closing tokens, the new messages, the opening of the next reply."""

    token_ids: tuple[int, ...]
    num_closing: int

    def behind(self, reply_ids: Sequence[int]) -> tuple[int, ...]:
        """What is still to be added when the reply already ends with some of the closing tokens.

        A model that stops by itself samples the first of them.
        """
        most = min(self.num_closing, len(reply_ids))
        for size in range(most, 0, -1):
            if tuple(reply_ids[-size:]) == self.token_ids[:size]:
                return self.token_ids[size:]
        return self.token_ids


class Renderer:
    """One model's template. Every method blocks (milliseconds for a long text)."""

    def __init__(self, template: ChatTemplate) -> None:
        self._template = template
        self._traits = probe(template)

    @classmethod
    def load(cls, tokenizer_path: str) -> "Renderer":
        """Read the tokenizer in a folder and probe its template. Takes seconds.

        Raises ModelLoadError for what can't be read or rendered with.
        """
        # Here and not above: importing transformers takes longer than everything else together.
        from transformers import AutoTokenizer

        try:
            tokenizer = AutoTokenizer.from_pretrained(tokenizer_path)
        except (OSError, ValueError, KeyError) as exc:
            raise ModelLoadError(f"no tokenizer can be read from {tokenizer_path}: {exc}") from exc
        try:
            return cls(ChatTemplate(tokenizer))
        except InvalidInputError as exc:
            raise ModelLoadError(f"the chat template can't be used: {exc}") from exc

    @property
    def traits(self) -> TemplateTraits:
        """What the probe found."""
        return self._traits

    @property
    def minds_system(self) -> bool:
        """Whether `follow` must be told if the conversation has a system message."""
        return not self._traits.system_is_apart

    def begins_with_system(self, messages: Sequence[InputMessage]) -> bool:
        """Whether these messages, at the start, are rendered with a system message."""
        return bool(messages) and self._traits.takes_system and _role(messages[0]) == SYSTEM

    def whole(
        self, messages: Sequence[InputMessage], *, clock_at: datetime | None = None
    ) -> tuple[int, ...]:
        """A whole conversation, up to where its next reply begins.

        Without `clock_at` a template that asks for the time is told the real one. Raises
        InvalidInputError when the template refuses the messages.
        """
        fitted = fit(messages, self._traits, is_start=True)
        return self._template.encode(fitted, opens_reply=True, clock_at=clock_at)

    def follow(
        self, messages: Sequence[InputMessage], *, has_system: bool, clock_at: datetime
    ) -> Continuation | None:
        """What new messages add behind a reply; None when the whole must be rendered again.

        `has_system` matters only when `minds_system`.
        """
        traits = self._traits
        if not (traits.appends_behind_system if has_system else traits.appends_bare):
            return None
        stub = (*STUB_SYSTEM, *STUB) if has_system else STUB
        fitted = fit(messages, traits, is_start=False)
        written = self._template.write(stub, opens_reply=True, clock_at=clock_at)
        front = self._template.encode_text(written + STUB_REPLY["content"])
        replied = [*stub, STUB_REPLY]
        ids = self._template.encode([*replied, *fitted], opens_reply=True, clock_at=clock_at)
        if ids[: len(front)] != front:
            return None
        closed = self._template.encode(replied, opens_reply=False, clock_at=clock_at)
        added = ids[len(front) :]
        return Continuation(token_ids=added, num_closing=common_prefix(added, closed[len(front) :]))


def fit(
    messages: Sequence[InputMessage], traits: TemplateTraits, *, is_start: bool
) -> list[Message]:
    """Messages in the roles and order that the template takes, without losing a word.

    `developer` is `system` to every template. Leading system messages become one. Where a template
    takes no system message (or none that late), its text goes in front of the next user message;
    where it wants roles to alternate, messages of one role in a row become one.
    """
    plain = [{"role": _role(message), "content": message.text} for message in messages]
    lead: list[Message] = []
    if is_start:
        num_lead = next((n for n, m in enumerate(plain) if m["role"] != SYSTEM), len(plain))
        lead, plain = _joined(plain[:num_lead]), plain[num_lead:]
    if not traits.takes_late_system:
        plain = _folded(plain)
    if not traits.takes_system:
        plain, lead = _folded([*lead, *plain]), []
    fitted = [*lead, *plain]
    return fitted if traits.takes_runs else _joined(fitted)


def _role(message: InputMessage) -> str:
    return SYSTEM if message.role == "developer" else message.role


def _joined(messages: Sequence[Message]) -> list[Message]:
    joined: list[Message] = []
    for message in messages:
        if joined and joined[-1]["role"] == message["role"]:
            content = f"{joined[-1]['content']}\n\n{message['content']}"
            joined[-1] = {"role": message["role"], "content": content}
        else:
            joined.append(message)
    return joined


def _folded(messages: Sequence[Message]) -> list[Message]:
    """System messages as the beginning of the user message that comes next."""
    folded: list[Message] = []
    held: list[str] = []
    for message in messages:
        if message["role"] == SYSTEM:
            held.append(message["content"])
            continue
        if held and message["role"] == ASSISTANT:
            folded.append({"role": USER, "content": "\n\n".join(held)})
            held = []
        folded.append({**message, "content": "\n\n".join([*held, message["content"]])})
        held = []
    if held:
        folded.append({"role": USER, "content": "\n\n".join(held)})
    return folded
