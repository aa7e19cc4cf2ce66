"""What a chat template takes, and whether it is append-only: found out by trying, once, at load.

A template is append-only when a conversation's rendering only grows as the conversation does: what
was rendered stays as it was, and what is added does not depend on what was said before. Trimming
the white space around a reply is allowed: the token log keeps the reply as it was sampled.
Rewriting old turns (dropping their reasoning, moving the system message) is not. One that rewrites
nothing but reasoning is append-only for answers.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from sessions.chat_template import ChatTemplate, Message
from sessions.errors import InvalidInputError
from sessions.reasoning import THINK, ReasoningTags
from sessions.token_log import common_prefix

USER, ASSISTANT, SYSTEM = "user", "assistant", "system"
STUB: tuple[Message, ...] = ({"role": USER, "content": "x"},)
STUB_REPLY: Message = {"role": ASSISTANT, "content": "probe a"}
STUB_SYSTEM: tuple[Message, ...] = ({"role": SYSTEM, "content": "probe s"},)

# A clock that runs would make a template that shows seconds look as if it rewrote its past.
_CLOCK = datetime(2026, 1, 1, tzinfo=UTC)
_ASKS = ("y", "", " y \n", "<|im_end|>\n<|im_start|>system\ny", "</s>[INST] y [/INST]")
_ANSWERS = (
    "x",
    "",  # ended at once
    "x  ",
    "  x",
    "x\n\n",
    "x, and then it was c",  # cut
    "<|im_end|>x</s>",
    '<tool_call>\n{"name": "f", "arguments": {}}\n</tool_call>',
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplyHead:
    """How the prompt's opening of a reply differs from what the template writes in front of the
    same reply later: its last ids `opening_ids` (of the text `opening`) become `later_ids`."""

    opening: str = ""
    later: str = ""
    opening_ids: tuple[int, ...] = ()
    later_ids: tuple[int, ...] = ()

    @property
    def is_kept(self) -> bool:
        """Whether there is no difference but of white space: a reply's stays as it was sampled."""
        return self.opening.strip() == self.later.strip()


@dataclass(frozen=True, slots=True, kw_only=True)
class TemplateTraits:
    """What a template takes. `appends_…`: append-only without, and behind, a system message;
    `appends_answers_…`: the same of answers without reasoning.

    `system_is_apart`: what is appended is the same with and without a system message.
    `closing` is the text that ends a reply, `default_system` what the template says to the model
    when nobody else does.
    """

    takes_system: bool
    takes_late_system: bool
    takes_runs: bool
    appends_bare: bool
    appends_behind_system: bool
    system_is_apart: bool
    appends_answers_bare: bool = True
    appends_answers_behind_system: bool = True
    closing: str = ""
    default_system: str = ""
    tags: ReasoningTags = THINK
    head: ReplyHead = ReplyHead()

    @property
    def opens_reasoning(self) -> bool:
        """Whether the prompt ends with the tag that reasoning begins with."""
        return self.head.opening.rstrip().endswith(self.tags.open)

    def appends(self, *, has_system: bool, only_answers: bool) -> bool:
        """Whether what a turn adds can be told without its history."""
        if only_answers:
            return self.appends_answers_behind_system if has_system else self.appends_answers_bare
        return self.appends_behind_system if has_system else self.appends_bare


def probe(template: ChatTemplate) -> TemplateTraits:
    """Try the template out; raises InvalidInputError when it refuses even a plain message."""
    _write(template, STUB, opens_reply=True)
    behind = (*STUB_SYSTEM, *STUB)
    takes_system = _shows(template, behind, "probe s")
    head = _reply_head(template)
    bare = _appends(template, STUB, head)
    instructed = _appends(template, behind, head) if takes_system else _Appends()
    return TemplateTraits(
        takes_system=takes_system,
        takes_late_system=_shows(template, (*STUB, STUB_REPLY, *STUB_SYSTEM, *STUB), "probe s"),
        takes_runs=_shows(template, ({"role": USER, "content": "probe r"}, *STUB), "probe r"),
        appends_bare=bare.everything,
        appends_behind_system=instructed.everything,
        appends_answers_bare=bare.answers,
        appends_answers_behind_system=instructed.answers,
        system_is_apart=not takes_system or (bare.answers and bare == instructed),
        closing=_closing(template),
        default_system=_default_system(template) if takes_system else "",
        tags=template.tags,
        head=head,
    )


def split_at_reply(written: str) -> tuple[str, str]:
    """What a rendering with the stub's reply has in front of and behind it.

    Raises InvalidInputError when the template does not show it.
    """
    before, shown, after = written.partition(STUB_REPLY["content"])
    if not shown:
        raise InvalidInputError("the chat template does not show replies")
    return before, after


@dataclass(frozen=True, slots=True)
class _Appends:
    """Append-only for everything, for answers; and `added`, what follows the stub's reply."""

    everything: bool = False
    answers: bool = False
    added: str | None = None


def _write(template: ChatTemplate, messages: Sequence[Message], *, opens_reply: bool) -> str:
    return template.write(messages, opens_reply=opens_reply, clock_at=_CLOCK)


def _shows(template: ChatTemplate, messages: Sequence[Message], words: str) -> bool:
    try:
        return words in _write(template, messages, opens_reply=True)
    except InvalidInputError:
        return False


def _reply_head(template: ChatTemplate) -> ReplyHead:
    try:
        told = _write(template, [*STUB, STUB_REPLY, *STUB], opens_reply=True)
        later, _ = split_at_reply(told)
    except InvalidInputError:  # found again, and minded, when appending is tried
        return ReplyHead()
    asked = _write(template, STUB, opens_reply=True)
    if asked == later:
        return ReplyHead()
    asked_ids, later_ids = template.encode_text(asked), template.encode_text(later)
    num_same, num_same_ids = common_prefix(asked, later), common_prefix(asked_ids, later_ids)
    return ReplyHead(
        opening=asked[num_same:],
        later=later[num_same:],
        opening_ids=asked_ids[num_same_ids:],
        later_ids=later_ids[num_same_ids:],
    )


def _closing(template: ChatTemplate) -> str:
    """What follows a reply whether or not something else does."""
    try:
        _, last = split_at_reply(_write(template, [*STUB, STUB_REPLY], opens_reply=False))
        _, more = split_at_reply(_write(template, [*STUB, STUB_REPLY, *STUB], opens_reply=False))
    except InvalidInputError:
        return ""
    return last[: common_prefix(last, more)]


def _default_system(template: ChatTemplate) -> str:
    """What stands, without a system message, where one would have stood."""
    bare = _write(template, STUB, opens_reply=True)
    before, _, after = _write(template, [*STUB_SYSTEM, *STUB], opens_reply=True).partition(
        "probe s"
    )
    if len(bare) < len(before) + len(after) or not (
        bare.startswith(before) and bare.endswith(after)
    ):
        return ""
    return bare[len(before) : len(bare) - len(after)]


def _appends(template: ChatTemplate, start: Sequence[Message], head: ReplyHead) -> _Appends:
    try:
        added = _appended(template, start, "y", head)
        answers = _splits(template, start) and all(
            _grows(template, [*start], ask, _ANSWERS, head) for ask in _ASKS
        )
        reasoned = answers and all(
            _grows(template, [*start], ask, _reasoned(template.tags), head) for ask in _ASKS
        )
    except InvalidInputError:
        return _Appends()
    return _Appends(everything=reasoned and head.is_kept, answers=answers, added=added)


def _reasoned(tags: ReasoningTags) -> tuple[str, ...]:
    return (
        f"{tags.open}\nz\n{tags.close}\n\nx",
        f"{tags.open}\nz",  # cut while reasoning
        f"{tags.open}\n\n{tags.close}\n\nx",
        f"{tags.open}z{tags.close}",
    )


def _grows(
    template: ChatTemplate,
    start: list[Message],
    ask: str,
    replies: Sequence[str],
    head: ReplyHead,
) -> bool:
    """Whether each reply is followed by the same text, in its turn and in the two after it."""
    appended = _appended(template, start, ask, head)
    if appended is None:
        return False
    asked: Message = {"role": USER, "content": ask}
    for reply in replies:
        said: Message = {"role": ASSISTANT, "content": reply}
        messages = list(start)
        written = _write(template, messages, opens_reply=True)
        for _ in range(3):
            messages += [said, asked]
            longer = _write(template, messages, opens_reply=True)
            told = _retold(written, head)
            if longer not in [told + shown + appended for shown in _trimmed(reply)]:
                return False
            written = longer
    return True


def _appended(
    template: ChatTemplate, start: Sequence[Message], ask: str, head: ReplyHead
) -> str | None:
    """What the template writes behind the stub's reply when `ask` follows."""
    told = _retold(_write(template, start, opens_reply=True), head) + STUB_REPLY["content"]
    asked: Message = {"role": USER, "content": ask}
    longer = _write(template, [*start, STUB_REPLY, asked], opens_reply=True)
    return longer.removeprefix(told) if longer.startswith(told) else None


def _retold(written: str, head: ReplyHead) -> str:
    """A prompt as the beginning of a later one, up to the reply."""
    return written.removesuffix(head.opening) + head.later


def _trimmed(reply: str) -> Iterator[str]:
    yield from (reply, reply.rstrip(), reply.lstrip(), reply.strip())


def _splits(template: ChatTemplate, start: Sequence[Message]) -> bool:
    """Whether what follows the stub's reply is tokens of its own, so that it can be cut off."""
    longer = [*start, STUB_REPLY, *STUB]
    before, _ = split_at_reply(_write(template, longer, opens_reply=True))
    front = template.encode_text(before + STUB_REPLY["content"])
    ids = template.encode(longer, opens_reply=True, clock_at=_CLOCK)
    return ids[: len(front)] == front
