"""A model's chat template: messages to text or ids, safely, with a clock that stands still.

The template writes a model's control tokens; what people write never becomes one, also when it
looks like one. Of a reply's text only the tags around its reasoning do: they are the model's own
way to speak, and give nobody another role. Templates are a stranger's code: whatever they raise
is a refusal of the messages, and an InvalidInputError here.
"""

import re
import threading  # noqa: TID251 - a lock alone: a tokenizer's state is not safe in two threads
from collections.abc import Sequence
from datetime import datetime
from typing import Any

import jinja2

from sessions.errors import InvalidInputError
from sessions.reasoning import KNOWN_TAGS, find_tags
from sessions.token_text import TokenText, token_text

Message = dict[str, Any]  # what templates read: role and content, an assistant's `tool_calls`, …

PLAIN_TEMPLATE = (
    "{% for message in messages %}"
    "{{ message['role'] | capitalize + ':\n' + message['content'] + '\n\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ 'Assistant:\n' }}{% endif %}"
)
"""For models that have none. Its roles are plain words, so here a user's text can forge one."""

# A template asks for the time by calling `strftime_now(format)`. transformers only lets plain
# values in, so the call is answered in the template's own language. The newline goes with the
# block it follows, so what comes after is rendered as before.
_FROZEN_CLOCK = (
    "{% macro strftime_now(format) %}{% set clock = namespace(text=format) %}"
    "{% for code, value in frozen_clock.items() %}"
    "{% set clock.text = clock.text.replace(code, value) %}"
    "{% endfor %}{{ clock.text }}{% endmacro %}\n"
)
_CLOCK_CODES = "aAwdbBmyYHIpMSfzZjUWcxXFTeGuV"


class ChatTemplate:
    """One tokenizer with its template. Calls from several threads wait for each other."""

    def __init__(self, tokenizer: Any) -> None:  # noqa: ANN401 - transformers has no useful type
        self._tokenizer = tokenizer
        self.is_plain = tokenizer.chat_template is None
        self._template: str = PLAIN_TEMPLATE if self.is_plain else tokenizer.get_chat_template()
        self._asks_time = "strftime_now" in self._template
        self._lock = threading.Lock()
        self.response_template: dict[str, Any] | None = getattr(
            tokenizer, "response_template", None
        )
        self.tags = find_tags(self._template)
        decoder = getattr(getattr(tokenizer, "backend_tokenizer", None), "decoder", None)
        self._is_byte_level = "ByteLevel" in repr(decoder)
        self._added = {str(t): i for i, t in tokenizer.added_tokens_decoder.items()}
        self._special = {i: str(t) for i, t in tokenizer.added_tokens_decoder.items() if t.special}
        controls = _control_tokens(tokenizer, self._template)
        self._in_words = _any_of(controls)
        self._in_replies = _any_of(controls - {self.tags.open, self.tags.close})

    @property
    def source(self) -> str:
        """The template itself."""
        return self._template

    def encode(
        self,
        messages: Sequence[Message],
        *,
        opens_reply: bool,
        clock_at: datetime | None = None,
        tools: Sequence[Message] = (),
    ) -> tuple[int, ...]:
        """The ids of a conversation; with `opens_reply` up to where the reply begins."""
        marked = [self._marked(message) for message in messages]
        offered = [self._words(tool, self._in_words) for tool in tools]
        text = self.write(marked, opens_reply=opens_reply, clock_at=clock_at, tools=offered)
        try:
            return self._ids(text, sanitize_control_tokens=True)
        except ValueError as exc:
            # A tokenizer for which words are the same as control tokens can't be spoken to safely.
            raise _refusal(exc) from exc

    def write(
        self,
        messages: Sequence[Message],
        *,
        opens_reply: bool,
        clock_at: datetime | None = None,
        tools: Sequence[Message] = (),
    ) -> str:
        """The text of a conversation, to be encoded only if every word is the program's own."""
        template, options = self._template, {}
        if self._asks_time and clock_at is not None:
            template = _FROZEN_CLOCK + template
            options = {"frozen_clock": _clock_values(clock_at)}
        try:
            with self._lock:
                written = self._tokenizer.apply_chat_template(
                    list(messages),
                    tools=list(tools) or None,
                    chat_template=template,
                    add_generation_prompt=opens_reply,
                    tokenize=False,
                    **options,
                )
        except (jinja2.TemplateError, TypeError, ValueError) as exc:
            raise _refusal(exc) from exc
        return str(written)

    def encode_text(self, text: str) -> tuple[int, ...]:
        """The ids of text that `write` has made of the program's own words."""
        return self._ids(text)

    def encode_words(self, text: str) -> tuple[int, ...]:
        """The ids of text in which nothing is a control token."""
        return self._ids(text, split_special_tokens=True)

    def decode(self, token_ids: Sequence[int]) -> str:
        """The text of ids, control tokens included."""
        with self._lock:
            decoded = self._tokenizer.decode(list(token_ids), clean_up_tokenization_spaces=False)
        return str(decoded)

    def decode_words(self, token_ids: Sequence[int]) -> str:
        """The text of ids as a reply shows it, without control tokens."""
        with self._lock:
            decoded = self._tokenizer.decode(
                list(token_ids), skip_special_tokens=True, clean_up_tokenization_spaces=False
            )
        return str(decoded)

    def id_of(self, token: str) -> int | None:
        """The id of a token that is added to the vocabulary as a whole."""
        return self._added.get(token)

    def special(self, token_id: int) -> str:
        """What a special token is called, which no text shows; empty for any other."""
        return self._special.get(token_id, "")

    def tokens(self, token_ids: Sequence[int]) -> list[TokenText]:
        """What each id says by itself."""
        with self._lock:
            pieces = self._tokenizer.convert_ids_to_tokens(list(token_ids))
        return [
            token_text(
                piece or "",
                is_byte_level=self._is_byte_level,
                is_added=token_id in self._special or piece in self._added,
            )
            for token_id, piece in zip(token_ids, pieces, strict=True)
        ]

    def encode_raw(self, text: str) -> tuple[int, ...]:
        """The ids of text as it stands, with what the tokenizer puts in front of every text."""
        with self._lock:
            encoded = self._tokenizer(text)
        return tuple(encoded["input_ids"])

    def spell(self, token_ids: Sequence[int]) -> list[str]:
        """What each id stands for, so that equal spellings mean equal text and no word is ever
        spelled as a control token is."""
        added = set(self._added.values())
        with self._lock:
            pieces = self._tokenizer.convert_ids_to_tokens(list(token_ids))
        return [
            f"\0{token_id}\0" if piece is None or token_id in added else piece
            for token_id, piece in zip(token_ids, pieces, strict=True)
        ]

    def _ids(self, text: str, **options: bool) -> tuple[int, ...]:
        with self._lock:
            encoded = self._tokenizer(text, add_special_tokens=False, **options)
        return tuple(encoded["input_ids"])

    def _marked(self, message: Message) -> Message:
        is_reply = message["role"] == "assistant"
        controls = self._in_replies if is_reply else self._in_words
        return {
            name: self._words(value, controls if name == "content" else self._in_words)
            for name, value in message.items()
        }

    def _words(self, value: Any, controls: re.Pattern[str]) -> Any:  # noqa: ANN401 - any JSON
        """Mark the control tokens in all that people wrote, names of fields too."""
        # Here and not above: importing transformers takes longer than everything else together.
        from transformers.utils.chat_template_utils import mark_control_tokens

        if isinstance(value, dict):
            return {
                mark_control_tokens(key, controls): self._words(one, controls)
                for key, one in value.items()
            }
        if isinstance(value, list | tuple):
            return [self._words(one, controls) for one in value]
        return mark_control_tokens(value, controls)


def _control_tokens(tokenizer: Any, template: str) -> set[str]:  # noqa: ANN401 - as above
    """All special tokens, what reasoning stands between, and those others that the tokenizer or the
    template names: the rest (runs of spaces, HTML tags) are text like any other."""
    named = {word for tags in KNOWN_TAGS for word in (tags.open, tags.close)}
    named |= set(getattr(tokenizer, "chat_control_tokens", None) or ())
    return {
        token.content
        for token in tokenizer.added_tokens_decoder.values()
        if token.special
        or token.content in named
        or (token.content in template and not token.content.isspace())
    }


def _any_of(tokens: set[str]) -> re.Pattern[str]:
    """Matches the longest of them; nothing if there are none."""
    longest_first = sorted(tokens, key=len, reverse=True)
    return re.compile("|".join(map(re.escape, longest_first)) or "(?!)")


def _refusal(exc: Exception) -> InvalidInputError:
    return InvalidInputError(
        f"the model's chat template refuses these messages: {exc}", param="input"
    )


def _clock_values(now: datetime) -> dict[str, str]:
    padded = {f"%{code}": now.strftime(f"%{code}") for code in _CLOCK_CODES}
    # glibc's form without leading zeros, which templates use too.
    bare = {f"%-{code}": padded[f"%{code}"].lstrip("0") or "0" for code in "dmHIMSj"}
    return {**bare, **padded}
