"""Where a reply's reasoning ends and its answer begins. Pure.

A reply has reasoning when it begins with it: between a model's tags, of which the first may stand
in the prompt already. The same tags later on are words of the answer's.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ReasoningTags:
    """What a model puts around its reasoning."""

    open: str
    close: str


THINK = ReasoningTags("<think>", "</think>")
KNOWN_TAGS = (
    THINK,
    ReasoningTags("[THINK]", "[/THINK]"),
    ReasoningTags("<seed:think>", "</seed:think>"),
    ReasoningTags("<|START_THINKING|>", "<|END_THINKING|>"),
    ReasoningTags("<thinking>", "</thinking>"),
    ReasoningTags("<reasoning>", "</reasoning>"),
)


def find_tags(template: str) -> ReasoningTags:
    """The tags that a template's source speaks of, the first of them; or else the usual ones."""
    places = [(at, tags) for tags in KNOWN_TAGS if (at := _place(template, tags)) >= 0]
    return min(places, key=lambda found: found[0])[1] if places else THINK


def _place(template: str, tags: ReasoningTags) -> int:
    return max(template.find(tags.close), template.find(tags.open))


def answer_of(reply: str, tags: ReasoningTags, *, is_open: bool) -> str:
    """A reply without its reasoning; empty when it was cut before it came to an answer.

    `is_open`: the prompt ended with the opening tag.
    """
    if not is_open and not reply.lstrip().startswith(tags.open):
        return reply
    _, is_closed, answer = reply.partition(tags.close)
    return answer.lstrip("\n") if is_closed else ""
