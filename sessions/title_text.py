"""A title out of words: what a model is asked for one, and what is made of its answer. Pure."""

import re

from sessions.types import InputMessage

MAX_TITLE_CHARS = 60

# Enough to tell what a conversation is about.
_MAX_QUESTION_CHARS = 600
_MAX_REPLY_CHARS = 300
# A first line longer than this is an essay, and no title.
_MAX_LINE_CHARS = 120

_LABEL = re.compile(r"^\W*(?:\w+ ){0,3}title\W*(?: is)?\s*[:\-–—]\s*", re.I)  # noqa: RUF001
_EXCUSE = re.compile(r"^(?:sure|certainly|of course|here(?: is|'s)|i'm|i am|i can|as an)\b", re.I)
_AROUND = " \t\"'`´“”„‘’«»*_#>~-–—.,:;"  # noqa: RUF001 - what people and models quote with


def title_request(question: str, reply: str) -> tuple[InputMessage, ...]:
    """What the model is told of a conversation's beginning."""
    told = _cut(_one_line(question), _MAX_QUESTION_CHARS)
    answered = _cut(_one_line(reply), _MAX_REPLY_CHARS)
    return (
        InputMessage(role="system", text="You give conversations short titles."),
        InputMessage(
            role="user",
            text=(
                f"A conversation begins like this.\n\nUser: {told}\nAssistant: {answered}\n\n"
                "Write a title for it, of two to six words. Answer with the title alone."
            ),
        ),
    )


def to_title(answer: str) -> str | None:
    """What a model's answer says the title is; None when it says none."""
    line = next((line for line in map(_one_line, answer.splitlines()) if line.strip(_AROUND)), "")
    if len(line) > _MAX_LINE_CHARS or _EXCUSE.match(line) or line.endswith(":"):
        return None
    title = _LABEL.sub("", line).strip(_AROUND)
    words = title.lower().split()
    is_babble = len(words) > 3 and len(set(words)) <= len(words) // 2
    if is_babble or not any(map(str.isalpha, title)):
        return None
    return _cut(title, MAX_TITLE_CHARS)


def first_words(*texts: str) -> str | None:
    """The title of a conversation that has no better: how the first text that has words begins."""
    lines = map(_one_line, texts)
    line = next((line for line in lines if any(map(str.isalnum, line))), None)
    return None if line is None else _cut(line.strip("\"'`“”«»*_#> "), MAX_TITLE_CHARS)


def _one_line(text: str) -> str:
    """The text without what can't be seen."""
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())


def _cut(text: str, max_chars: int) -> str:
    """At most so many characters, whole words if there are any."""
    if len(text) <= max_chars:
        return text
    head = text[: max_chars - 1]
    if not text[max_chars - 1].isspace() and " " in head:
        head = head.rpartition(" ")[0]
    return head.rstrip(" ,;:.-") + "…"
