"""How much of a prompt all owners may share: what the template says by itself, and system prompts
that the operator declares public.

Everything behind it is an owner's own, and its blocks are salted. The count must be the same at
every turn of a session, for a block's hash depends on where the salt enters; so it depends on the
session's instructions and clock alone.
"""

from collections import OrderedDict
from collections.abc import Sequence
from datetime import datetime

from sessions.rendering import Renderer
from sessions.token_log import common_prefix
from sessions.types import InputMessage

_MAX_KNOWN = 4096
"""A count is a number behind a system prompt that its session holds too."""

SYSTEM_ROLES = ("system", "developer")


class PublicPrefixes:
    """Counts for one renderer. Its method blocks for two renderings the first time."""

    def __init__(self, renderer: Renderer, declared: frozenset[str]) -> None:
        self._renderer = renderer
        self._declared = declared
        self._known: OrderedDict[tuple[tuple[str, ...], datetime], int] = OrderedDict()

    def count(self, messages: Sequence[InputMessage], clock_at: datetime | None) -> int:
        """Leading public tokens of a conversation that begins with these messages."""
        lead = _lead(messages)
        if any(message.text not in self._declared for message in lead):
            return 0
        if clock_at is None:  # the real time, which may change the count
            return self._count(lead, None)
        key = (tuple(message.text for message in lead), clock_at)
        if key not in self._known:
            self._known[key] = self._count(lead, clock_at)
            if len(self._known) > _MAX_KNOWN:
                self._known.popitem(last=False)
        return self._known[key]

    def _count(self, lead: tuple[InputMessage, ...], clock_at: datetime | None) -> int:
        one, other = (
            self._renderer.whole((*lead, InputMessage(role="user", text=text)), clock_at=clock_at)
            for text in ("x", "y")
        )
        return common_prefix(one, other)


def _lead(messages: Sequence[InputMessage]) -> tuple[InputMessage, ...]:
    """The system messages at the start."""
    num_lead = next(
        (n for n, m in enumerate(messages) if m.role not in SYSTEM_ROLES), len(messages)
    )
    return tuple(messages[:num_lead])
