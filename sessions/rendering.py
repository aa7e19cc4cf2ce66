"""From messages to ids: whole conversations, or only what a new turn adds to one.

What a new turn adds is the difference between two renderings of a stub conversation, so that a
template which injects a default system message, counts or closes turns is followed exactly. It is
put behind the token log, which is never encoded again.
"""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from model.errors import ModelLoadError
from sessions.calling import Calling, as_template
from sessions.chat_template import ChatTemplate, Message
from sessions.errors import InvalidInputError
from sessions.reasoning import answer_of
from sessions.template_probe import (
    STUB,
    STUB_REPLY,
    STUB_SYSTEM,
    SYSTEM,
    USER,
    TemplateTraits,
    probe,
    split_at_reply,
)
from sessions.token_log import common_prefix, common_spelling
from sessions.token_text import TokenText
from sessions.tools import Tool
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
        self.calling = Calling(template, self._traits.tags, self._traits.head.opening)

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

    def begins_with_system(
        self, messages: Sequence[InputMessage], tools: Sequence[Tool] = ()
    ) -> bool:
        """Whether these messages, at the start, are rendered with a system message."""
        told, _ = self.calling.tell(messages, tools)
        fitted = fit(told, self._traits, is_start=True)
        return bool(fitted) and fitted[0]["role"] == SYSTEM

    def whole(
        self,
        messages: Sequence[InputMessage],
        *,
        clock_at: datetime | None = None,
        tools: Sequence[Tool] = (),
    ) -> tuple[int, ...]:
        """A whole conversation, up to where its next reply begins.

        Without `clock_at` a template that asks for the time is told the real one. Raises
        InvalidInputError when the template refuses the messages.
        """
        told, offered = self.calling.tell(messages, tools)
        fitted = fit(told, self._traits, is_start=True)
        return self._template.encode(fitted, opens_reply=True, clock_at=clock_at, tools=offered)

    def tokens(self, token_ids: Sequence[int]) -> list[TokenText]:
        """What each id says by itself."""
        return self._template.tokens(token_ids)

    def raw(self, text: str) -> tuple[int, ...]:
        """The ids of a text that is no conversation; control tokens in it are control tokens."""
        return self._template.encode_raw(text)

    def say(self, token_ids: Sequence[int]) -> str:
        """The text of ids, control tokens left out."""
        return self._template.decode_words(token_ids)

    def reply(self, text: str) -> tuple[int, ...] | None:
        """The ids of a reply's text, as far as it is; None when they would say something else."""
        ids = self._template.encode_words(text)
        return ids if self._template.decode_words(ids) == text else None

    def follow(
        self,
        messages: Sequence[InputMessage],
        *,
        has_system: bool,
        clock_at: datetime,
        only_answers: bool = False,
        keeps_all: bool = False,
    ) -> Continuation | None:
        """What new messages add behind a reply; None when the whole must be rendered again.

        `has_system` matters only when `minds_system`. With `only_answers` it does not matter what
        the template would make of earlier reasoning; with `keeps_all` nothing that it would make of
        the history does, as long as it appends the same behind any.
        """
        appends = self._traits.appends(has_system=has_system, only_answers=only_answers)
        if not appends and not keeps_all:
            return None
        replied = [*(STUB_SYSTEM if has_system else ()), *STUB, STUB_REPLY]
        told, _ = self.calling.tell(messages, ())
        try:
            added = self._behind(replied, told, clock_at)
            # What counts its messages adds something else behind two turns than behind one.
            longer = None if appends else self._behind([*replied, *replied[-2:]], told, clock_at)
        except InvalidInputError:
            if not any(message.call_id for message in messages):
                raise
            return None  # a result without its call, to which some templates object
        return added if appends or added == longer else None

    def _behind(
        self, replied: Sequence[Message], messages: Sequence[InputMessage], clock_at: datetime
    ) -> Continuation | None:
        """What messages add behind a conversation that ends with the stub's reply."""
        fitted = fit(messages, self._traits, is_start=False)
        told = self._template.write([*replied, *STUB], opens_reply=True, clock_at=clock_at)
        place = told.rindex(STUB_REPLY["content"]) if STUB_REPLY["content"] in told else 0
        split_at_reply(told)  # refuses what does not show it
        front_text = told[:place] + STUB_REPLY["content"]
        front = self._template.encode_text(front_text)
        ids = self._template.encode([*replied, *fitted], opens_reply=True, clock_at=clock_at)
        if ids[: len(front)] != front:
            return None
        closed = self._template.encode_text(front_text + self._traits.closing)
        added = ids[len(front) :]
        return Continuation(token_ids=added, num_closing=common_prefix(added, closed[len(front) :]))

    def meet(self, log: Sequence[int], rendered: Sequence[int]) -> tuple[int, int]:
        """How far a log says what a rendering says: so many ids of the first stand for so many of
        the second. Text counts, not how it was split: a sampled reply is often split otherwise
        than it would be encoded."""
        num_same = common_prefix(log, rendered)
        rest, told = self._template.spell(log[num_same:]), self._template.spell(rendered[num_same:])
        of_log, of_rendered = common_spelling(rest, told)
        return num_same + of_log, num_same + of_rendered

    # Reasoning

    def retell(self, reply: str) -> str:
        """A reply's text as the template must see it: with the tag that stood in the prompt."""
        return self._traits.head.opening + reply if self._traits.opens_reasoning else reply

    def answer(self, reply: str) -> str:
        """A reply's text without its reasoning."""
        return answer_of(reply, self._traits.tags, is_open=self._traits.opens_reasoning)

    def without_reasoning(
        self, prompt_ids: tuple[int, ...], reply_ids: tuple[int, ...]
    ) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """A turn's prompt and reply as they are remembered when reasoning is dropped.

        Whole tokens of the answer stay as they were sampled.
        """
        head = self._traits.head
        if not head.is_kept and prompt_ids[-len(head.opening_ids) :] == head.opening_ids:
            prompt_ids = prompt_ids[: -len(head.opening_ids)] + head.later_ids
        text = self._template.decode(reply_ids)
        num_cut = len(text) - len(self.answer(text))
        if num_cut == 0:
            return prompt_ids, reply_ids
        num_left = bisect_left(
            range(len(reply_ids)), num_cut, key=lambda n: len(self._template.decode(reply_ids[:n]))
        )
        while not text.startswith(spoken := self._template.decode(reply_ids[:num_left])):
            num_left += 1  # in the middle of a character
        rest = self._template.encode_words(text[num_cut : len(spoken)])
        return prompt_ids, rest + reply_ids[num_left:]


def fit(
    messages: Sequence[InputMessage], traits: TemplateTraits, *, is_start: bool
) -> list[Message]:
    """Messages in the roles and order that the template takes, without losing a word.

    `developer` is `system` to every template. Leading system messages become one. Where a template
    takes no system message (or none that late), its text goes in front of the next user message;
    where it wants roles to alternate, messages of one role in a row become one. An empty system
    message says nothing, but at the start it keeps the template's own from being said.
    """
    names: dict[str, str] = {}
    plain = [_told(message, names) for message in messages]
    lead: list[Message] = []
    if is_start:
        num_lead = next((n for n, m in enumerate(plain) if m["role"] != SYSTEM), len(plain))
        lead, plain = _joined([m for m in plain[:num_lead] if m["content"]]), plain[num_lead:]
        if num_lead and not lead and (traits.default_system or not plain):
            lead = [{"role": SYSTEM, "content": ""}]
    plain = [m for m in plain if m["role"] != SYSTEM or m["content"]]
    if not traits.takes_late_system:
        plain = _folded(plain)
    if not traits.takes_system:
        plain, lead = _folded([*lead, *plain]), []
    fitted = [*lead, *plain]
    return fitted if traits.takes_runs else _joined(fitted)


def _told(message: InputMessage, names: dict[str, str]) -> Message:
    if message.calls or message.role == "tool":
        return as_template(message, names)
    role = SYSTEM if message.role == "developer" else message.role
    return {"role": role, "content": message.text}


def _joined(messages: Sequence[Message]) -> list[Message]:
    joined: list[Message] = []
    for message in messages:
        is_bare = message["role"] != "tool" and not {"tool_calls"} & {*message}
        if is_bare and joined and joined[-1]["role"] == message["role"]:
            content = f"{joined[-1]['content']}\n\n{message['content']}"
            joined[-1] = {**joined[-1], "content": content}
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
        if held and message["role"] != USER:
            folded.append({"role": USER, "content": "\n\n".join(held)})
            held = []
        folded.append({**message, "content": "\n\n".join([*held, message["content"]])})
        held = []
    if held:
        folded.append({"role": USER, "content": "\n\n".join(held)})
    return folded
