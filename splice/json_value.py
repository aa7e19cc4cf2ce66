"""JSON objects as they come from the wire, and the words in them."""

from collections.abc import Mapping
from typing import Any

Json = Mapping[str, Any]


def texts_of(content: object) -> str:
    """All the text of a content: itself, or its parts' one behind the other; empty for none."""
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else []
    texts = (part.get("text") for part in parts if isinstance(part, dict))
    return "".join(text for text in texts if isinstance(text, str))
