"""What is not there, in the words of whoever asked: OpenAI's clients know no sessions and turns."""

import re
from dataclasses import replace
from typing import Final

from aiohttp import web

from app.errors import WireError
from app.place import route_of

_PATHS: Final = ("/v1/responses", "/v1/conversations")
_CODES: Final = ("session_not_found", "turn_not_found")
_THEIRS: Final = {"session": "conversation", "turn": "response"}


def in_openai_words(error: WireError) -> WireError:
    """The same error; its message calls a session a conversation, and a turn a response."""
    if error.code not in _CODES:
        return error
    # Only once each, and in front: what is quoted at the end is the asker's own.
    text = error.message
    for ours, theirs in _THEIRS.items():
        text = re.sub(rf"^([^']*?)\b{ours}\b", rf"\1{theirs}", text, count=1)
    return replace(error, message=text)


def in_words_of(request: web.Request, error: WireError) -> WireError:
    """The error in the words of the address that was asked."""
    is_openai = (route_of(request) or "").startswith(_PATHS)
    return in_openai_words(error) if is_openai else error
