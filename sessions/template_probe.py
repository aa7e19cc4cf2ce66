"""What a chat template takes, and whether it is append-only: found out by trying, once, at load.

A template is append-only when a conversation's rendering only grows as the conversation does: what
was rendered stays as it was, and what is added does not depend on what was said before. Trimming
the white space around a reply is allowed: the token log keeps the reply as it was sampled.
Rewriting old turns (dropping their reasoning, moving the system message) is not.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from sessions.chat_template import ChatTemplate, Message
from sessions.errors import InvalidInputError

USER, ASSISTANT, SYSTEM = "user", "assistant", "system"
STUB: tuple[Message, ...] = ({"role": USER, "content": "x"},)
STUB_REPLY: Message = {"role": ASSISTANT, "content": "x"}
STUB_SYSTEM: tuple[Message, ...] = ({"role": SYSTEM, "content": "probe s"},)

_ASKS = ("y", "", " y \n", "<|im_end|>\n<|im_start|>system\ny", "</s>[INST] y [/INST]")
_REPLIES = (
    "x",
    "",  # ended at once
    "x  ",
    "  x",
    "x\n\n",
    "x, and then it was c",  # cut
    "<think>\nz\n</think>\n\nx",
    "<think>\nz",  # cut while reasoning
    "<|im_end|>x</s>",
    '<tool_call>\n{"name": "f", "arguments": {}}\n</tool_call>',
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TemplateTraits:
    """What a template takes. `appends_…`: append-only without, and behind, a system message.

    `system_is_apart`: what is appended is the same with and without one.
    """

    takes_system: bool
    takes_late_system: bool
    takes_runs: bool
    appends_bare: bool
    appends_behind_system: bool
    system_is_apart: bool


def probe(template: ChatTemplate) -> TemplateTraits:
    """Try the template out; raises InvalidInputError when it refuses even a plain message."""
    template.write(STUB, opens_reply=True)
    takes_system = _shows(template, (*STUB_SYSTEM, *STUB), "probe s")
    appends_bare = _appends(template, STUB)
    behind = (*STUB_SYSTEM, *STUB)
    appends_behind_system = takes_system and _appends(template, behind)
    return TemplateTraits(
        takes_system=takes_system,
        takes_late_system=_shows(template, (*STUB, STUB_REPLY, *STUB_SYSTEM, *STUB), "probe s"),
        takes_runs=_shows(template, ({"role": USER, "content": "probe r"}, *STUB), "probe r"),
        appends_bare=appends_bare,
        appends_behind_system=appends_behind_system,
        system_is_apart=not takes_system
        or (
            appends_bare
            and appends_behind_system
            and _appended(template, STUB, "y") == _appended(template, behind, "y")
        ),
    )


def _shows(template: ChatTemplate, messages: Sequence[Message], words: str) -> bool:
    try:
        return words in template.write(messages, opens_reply=True)
    except InvalidInputError:
        return False


def _appends(template: ChatTemplate, start: Sequence[Message]) -> bool:
    try:
        return all(_grows(template, start, ask) for ask in _ASKS) and _splits(template, start)
    except InvalidInputError:
        return False


def _grows(template: ChatTemplate, start: Sequence[Message], ask: str) -> bool:
    """Whether each reply is followed by the same text, in its turn and in the two after it."""
    appended = _appended(template, start, ask)
    if appended is None:
        return False
    asked: Message = {"role": USER, "content": ask}
    for reply in _REPLIES:
        said: Message = {"role": ASSISTANT, "content": reply}
        messages = list(start)
        written = template.write(messages, opens_reply=True)
        for _ in range(3):
            messages += [said, asked]
            longer = template.write(messages, opens_reply=True)
            if longer not in [written + shown + appended for shown in _trimmed(reply)]:
                return False
            written = longer
    return True


def _appended(template: ChatTemplate, start: Sequence[Message], ask: str) -> str | None:
    """What the template writes behind the stub's reply when `ask` follows."""
    written = template.write(start, opens_reply=True) + STUB_REPLY["content"]
    asked: Message = {"role": USER, "content": ask}
    longer = template.write([*start, STUB_REPLY, asked], opens_reply=True)
    return longer.removeprefix(written) if longer.startswith(written) else None


def _trimmed(reply: str) -> Iterator[str]:
    yield from (reply, reply.rstrip(), reply.lstrip(), reply.strip())


def _splits(template: ChatTemplate, start: Sequence[Message]) -> bool:
    """Whether what follows the stub's reply is tokens of its own, so that it can be cut off."""
    written = template.write(start, opens_reply=True) + STUB_REPLY["content"]
    front = template.encode_text(written)
    ids = template.encode([*start, STUB_REPLY, *STUB], opens_reply=True)
    return ids[: len(front)] == front
