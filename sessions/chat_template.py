"""A model's chat template: messages to text or ids, safely, with a clock that stands still.

The template writes a model's control tokens; what users write never becomes one, also when it
looks like one (`sanitize_control_tokens`). Templates are a stranger's code: whatever they raise
is a refusal of the messages, and an InvalidInputError here.
"""

import threading  # noqa: TID251 - a lock alone: a tokenizer's state is not safe in two threads
from collections.abc import Sequence
from datetime import datetime
from typing import Any

import jinja2

from sessions.errors import InvalidInputError

Message = dict[str, str]  # what templates read: role and content

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

    def encode(
        self, messages: Sequence[Message], *, opens_reply: bool, clock_at: datetime | None = None
    ) -> tuple[int, ...]:
        """The ids of a conversation; with `opens_reply` up to where the reply begins."""
        options = {"tokenize": True, "return_dict": False, "sanitize_control_tokens": True}
        return tuple(self._apply(messages, opens_reply, clock_at, options))

    def write(
        self, messages: Sequence[Message], *, opens_reply: bool, clock_at: datetime | None = None
    ) -> str:
        """The text of a conversation of which every word is the program's own."""
        return str(self._apply(messages, opens_reply, clock_at, {"tokenize": False}))

    def encode_text(self, text: str) -> tuple[int, ...]:
        """The ids of text that `write` has made."""
        with self._lock:
            return tuple(self._tokenizer(text, add_special_tokens=False)["input_ids"])

    def _apply(
        self,
        messages: Sequence[Message],
        opens_reply: bool,  # noqa: FBT001 - handed on by the two above
        clock_at: datetime | None,
        options: dict[str, Any],
    ) -> Any:  # noqa: ANN401 - text or ids, by the options
        template = self._template
        if self._asks_time and clock_at is not None:
            template = _FROZEN_CLOCK + template
            options = {**options, "frozen_clock": _clock_values(clock_at)}
        try:
            with self._lock:
                return self._tokenizer.apply_chat_template(
                    list(messages),
                    chat_template=template,
                    add_generation_prompt=opens_reply,
                    **options,
                )
        except (jinja2.TemplateError, TypeError, ValueError) as exc:
            raise InvalidInputError(
                f"the model's chat template refuses these messages: {exc}", param="input"
            ) from exc


def _clock_values(now: datetime) -> dict[str, str]:
    padded = {f"%{code}": now.strftime(f"%{code}") for code in _CLOCK_CODES}
    # glibc's form without leading zeros, which templates use too.
    bare = {f"%-{code}": padded[f"%{code}"].lstrip("0") or "0" for code in "dmHIMSj"}
    return {**bare, **padded}
