"""The prompt of a chat that is sent whole: known ids as far as they go, what is new behind them.

What a template would make of the history, now that more follows, does not matter as long as it
appends the same behind any history: the log is what was said. A template that counts or turns
things round is rendered again, and used if that costs next to nothing.
"""

from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from sessions.chat_index import KnownChat
from sessions.rendering import Continuation, Renderer
from sessions.tools import Tool
from sessions.types import InputMessage

_SHARE_KEPT = 0.95
"""Of a history that is rendered again so much must be as it was, or it is not rendered again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StatelessPrompt:
    """The ids to feed; the first `num_known` are those of the known chat, all of it or, where they
    had to leave it, up to `diverged_at`."""

    token_ids: "array[int]"
    num_known: int = 0
    diverged_at: int | None = None


class StatelessComposer:
    """Of one renderer. Every method blocks (milliseconds for a long text)."""

    def __init__(self, renderer: Renderer, eos_token_ids: Sequence[int]) -> None:
        self._renderer = renderer
        self._eos_token_ids = frozenset(eos_token_ids)

    def whole(
        self,
        messages: Sequence[InputMessage],
        tools: Sequence[Tool],
        clock_at: datetime | None,
    ) -> StatelessPrompt:
        """Of a chat of which nothing is known. Raises InvalidInputError."""
        ids = self._renderer.whole(messages, tools=tools, clock_at=clock_at)
        return StatelessPrompt(token_ids=array("i", ids))

    def behind(
        self,
        chat: KnownChat,
        num_known_messages: int,
        messages: Sequence[InputMessage],
        tools: Sequence[Tool],
    ) -> StatelessPrompt:
        """Of a chat whose first `num_known_messages` are known. Raises InvalidInputError."""
        told, new = messages[:num_known_messages], messages[num_known_messages:]
        renderer = self._renderer
        has_system = renderer.minds_system and renderer.begins_with_system(told, tools)
        clock_at = chat.clock_at or datetime.fromtimestamp(0)
        added = renderer.follow(
            new, has_system=has_system, clock_at=clock_at, only_answers=True, keeps_all=False
        )
        if added is not None:
            return self._appended(chat, added)
        again = self.again(chat, chat.as_said(messages), tools)
        if again.num_known >= _SHARE_KEPT * len(chat.token_ids):
            return again
        added = renderer.follow(new, has_system=has_system, clock_at=clock_at, keeps_all=True)
        return again if added is None else self._appended(chat, added)

    def again(
        self, chat: KnownChat, messages: Sequence[InputMessage], tools: Sequence[Tool]
    ) -> StatelessPrompt:
        """Of a chat that is rendered again, with the known ids as far as they say the same."""
        rendered = self._renderer.whole(messages, tools=tools, clock_at=chat.clock_at)
        keep, met = self._renderer.meet(chat.token_ids, rendered)
        ids = chat.token_ids[:keep]
        ids.extend(rendered[met:])
        is_whole = keep >= len(chat.token_ids) - self._ends_itself(chat)
        return StatelessPrompt(
            token_ids=ids, num_known=keep, diverged_at=None if is_whole else keep
        )

    def _appended(self, chat: KnownChat, added: Continuation) -> StatelessPrompt:
        reply_ids = chat.token_ids[chat.num_prompt_tokens :]
        rest = added.behind(reply_ids)
        front = chat.token_ids[:]
        if rest == added.token_ids and self._ends_itself(chat):
            # The model ended with a token that the template does not close a reply with.
            front.pop()
        num_known = len(front)
        front.extend(rest)
        return StatelessPrompt(token_ids=front, num_known=num_known)

    def _ends_itself(self, chat: KnownChat) -> bool:
        has_reply = len(chat.token_ids) > chat.num_prompt_tokens
        return has_reply and chat.token_ids[-1] in self._eos_token_ids
