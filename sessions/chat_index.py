"""The chats that stateless clients send again and again, found by what they say.

A client that keeps its history itself sends it back as text. What was said is looked up here, and
the exact ids that were fed and sampled for it are used again, so that nothing of it is computed
twice. Wrong it can never be: a chat is found only by all of its words, of its owner, its tools and
its model, and white space at the ends of messages is all that may differ.

Bounded in tokens and in chats; the chat used last stays longest, and whoever has most gives way, so
that no owner pushes out what is another's fair share.
"""

import hashlib
import json
from array import array
from collections import Counter, OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime

from sessions.messages import InputMessage, ToolCall
from sessions.tools import Tool
from sessions.types import OwnerId

MAX_TOKENS = 4_000_000
"""Sixteen megabytes."""
MAX_CHATS = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownChat:
    """The ids of a chat up to the end of a reply, and where they may still lie computed: in the
    engine's table of the generation `request_id`, parked under `conversation_id`.

    `replies` are the texts as they were sampled, by their messages' places: a client sends back
    less, without reasoning and blanks, and calls in its own spelling. Of a chat that had outgrown
    the context `num_dropped` messages behind the system's are missing, here and in the places.
    """

    token_ids: "array[int]"
    num_prompt_tokens: int
    request_id: str
    conversation_id: str
    clock_at: datetime | None
    replies: tuple[tuple[int, str], ...] = ()
    num_dropped: int = 0

    def as_said(self, messages: Sequence[InputMessage]) -> tuple[InputMessage, ...]:
        """The same messages, the replies among them as they were sampled."""
        said = list(messages)
        for place, text in self.replies:
            said[place] = InputMessage(role="assistant", text=text)
        return tuple(said)


def chain(
    owner: OwnerId, fingerprint: str, tools: Sequence[Tool], messages: Sequence[InputMessage]
) -> list[bytes]:
    """A key for the chat up to each message; the first is that of none."""
    offered = [[t.name, t.description, t.parameters] for t in tools]
    keys = [_digest(b"", [owner, fingerprint, offered])]
    for message in messages:
        keys.append(follow(keys[-1], message))
    return keys


def follow(key: bytes, message: InputMessage) -> bytes:
    """The key of a chat with one message more. Calls count by what they say, not by their ids."""
    role = "system" if message.role == "developer" else message.role
    calls = [[call.name, _canonical(call)] for call in message.calls]
    return _digest(key, [role, message.text.strip(), calls])


def _digest(key: bytes, said: list[object]) -> bytes:
    text = json.dumps(said, ensure_ascii=True)
    return hashlib.blake2b(key + text.encode(), digest_size=20).digest()


def _canonical(call: ToolCall) -> str:
    try:
        return json.dumps(json.loads(call.arguments), sort_keys=True)
    except (ValueError, RecursionError):
        return call.arguments


@dataclass(slots=True)
class _Share:
    """What one owner has in the index, the chat used last at the end."""

    chats: OrderedDict[bytes, KnownChat] = field(default_factory=OrderedDict)
    num_tokens: int = 0


class ChatIndex:
    """Used from one event loop."""

    def __init__(self, *, max_tokens: int = MAX_TOKENS, max_chats: int = MAX_CHATS) -> None:
        self._max_tokens = max_tokens
        self._max_chats = max_chats
        self._num_tokens = self._num_chats = 0
        self._shares: dict[OwnerId, _Share] = {}
        self._num_by_conversation: Counter[str] = Counter()
        self._released: list[str] = []

    def find(
        self, owner: OwnerId, keys: Sequence[bytes], messages: Sequence[InputMessage]
    ) -> tuple[int, KnownChat] | None:
        """The longest known beginning that ends with a reply and is followed by no other, and how
        many messages it has."""
        for place in range(len(messages) - 1, 0, -1):
            if messages[place].role == "assistant":
                return None  # one that was put in, or altered, behind all that is known
            if messages[place - 1].role == "assistant":
                chat = self._used(owner, keys[place])
                if chat is None:
                    continue
                return place, chat
        return None

    def find_part(self, owner: OwnerId, keys: Sequence[bytes]) -> KnownChat | None:
        """The longest known beginning, whatever follows."""
        found = (self._used(owner, key) for key in reversed(keys))
        return next((chat for chat in found if chat is not None), None)

    def put(self, owner: OwnerId, key: bytes, chat: KnownChat) -> None:
        """Know a chat; where there are too many, whoever has most loses the one used least
        recently."""
        self._num_by_conversation[chat.conversation_id] += 1
        self._drop(owner, key)
        share = self._shares.setdefault(owner, _Share())
        share.chats[key] = chat
        share.num_tokens += len(chat.token_ids)
        self._num_tokens += len(chat.token_ids)
        self._num_chats += 1
        while self._num_chats > 1 and self._is_full:
            self._drop(*self._least_missed(key))

    def take_released(self) -> list[str]:
        """Conversations of which nothing is known any more, each told once."""
        released, self._released = self._released, []
        return [c for c in released if not self._num_by_conversation[c]]

    @property
    def _is_full(self) -> bool:
        return self._num_tokens > self._max_tokens or self._num_chats > self._max_chats

    def _used(self, owner: OwnerId, key: bytes) -> KnownChat | None:
        share = self._shares.get(owner)
        chat = None if share is None else share.chats.get(key)
        if share is not None and chat is not None:
            share.chats.move_to_end(key)
        return chat

    def _least_missed(self, new: bytes) -> tuple[OwnerId, bytes]:
        """The oldest chat, but not the new one, of whoever has most of what there is too much of.
        Costs what there are owners."""
        is_long = self._num_tokens > self._max_tokens

        def size(owner: OwnerId) -> int:
            share = self._shares[owner]
            return share.num_tokens if is_long else len(share.chats)

        others = [o for o, share in self._shares.items() if len(share.chats) > (new in share.chats)]
        owner = max(others, key=size)
        return owner, next(iter(self._shares[owner].chats))

    def _drop(self, owner: OwnerId, key: bytes) -> None:
        share = self._shares.get(owner)
        chat = None if share is None else share.chats.pop(key, None)
        if share is None or chat is None:
            return
        share.num_tokens -= len(chat.token_ids)
        self._num_tokens -= len(chat.token_ids)
        self._num_chats -= 1
        if not share.chats:
            del self._shares[owner]
        self._num_by_conversation[chat.conversation_id] -= 1
        if not self._num_by_conversation[chat.conversation_id]:
            del self._num_by_conversation[chat.conversation_id]
            self._released.append(chat.conversation_id)
