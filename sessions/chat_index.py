"""The chats that stateless clients send again and again, found by what they say.

A client that keeps its history itself sends it back as text. What was said is looked up here, and
the exact ids that were fed and sampled for it are used again, so that nothing of it is computed
twice. Wrong it can never be: a chat is found only by all of its words, of its owner, its tools and
its model, and white space at the ends of messages is all that may differ.

Bounded in tokens and in chats; the chat used last stays longest.
"""

import hashlib
import json
from array import array
from collections import Counter, OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
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


class ChatIndex:
    """Used from one event loop."""

    def __init__(self, *, max_tokens: int = MAX_TOKENS, max_chats: int = MAX_CHATS) -> None:
        self._max_tokens = max_tokens
        self._max_chats = max_chats
        self._num_tokens = 0
        self._chats: OrderedDict[bytes, KnownChat] = OrderedDict()
        self._num_by_conversation: Counter[str] = Counter()
        self._released: list[str] = []

    def find(
        self, keys: Sequence[bytes], messages: Sequence[InputMessage]
    ) -> tuple[int, KnownChat] | None:
        """The longest known beginning that ends with a reply and is followed by no other, and how
        many messages it has."""
        for place in range(len(messages) - 1, 0, -1):
            if messages[place].role == "assistant":
                return None  # one that was put in, or altered, behind all that is known
            if messages[place - 1].role == "assistant":
                chat = self._chats.get(keys[place])
                if chat is None:
                    continue
                self._chats.move_to_end(keys[place])
                return place, chat
        return None

    def find_part(self, keys: Sequence[bytes]) -> KnownChat | None:
        """The longest known beginning, whatever follows."""
        found = (self._chats.get(key) for key in reversed(keys))
        return next((chat for chat in found if chat is not None), None)

    def put(self, key: bytes, chat: KnownChat) -> None:
        """Know a chat; those used least recently are dropped for it."""
        self._num_by_conversation[chat.conversation_id] += 1
        self._drop(key)
        self._chats[key] = chat
        self._num_tokens += len(chat.token_ids)
        while len(self._chats) > 1 and (
            self._num_tokens > self._max_tokens or len(self._chats) > self._max_chats
        ):
            self._drop(next(iter(self._chats)))

    def take_released(self) -> list[str]:
        """Conversations of which nothing is known any more, each told once."""
        released, self._released = self._released, []
        return [c for c in released if not self._num_by_conversation[c]]

    def _drop(self, key: bytes) -> None:
        chat = self._chats.pop(key, None)
        if chat is None:
            return
        self._num_tokens -= len(chat.token_ids)
        self._num_by_conversation[chat.conversation_id] -= 1
        if not self._num_by_conversation[chat.conversation_id]:
            del self._num_by_conversation[chat.conversation_id]
            self._released.append(chat.conversation_id)
